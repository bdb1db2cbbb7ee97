// All runs as a table that sorts and filters.
import {
  accepts, ask, button, controls, el, fill, frame, idOf, keep, linkTo, liveRuns, nameOf, row, runFilter, show, stateOf,
  table, toggle, view,
} from "./page.js";

const MOST_COMPARED = 100;
const TIME = { dateStyle: "short", timeStyle: "short" };
const COLUMNS = [ // title, value, format of numbers
  ["run", nameOf],
  ["text", (run) => run.text],
  ["loss.valid", (run) => run.last["loss.valid"], show.loss],
  ["correct", (run) => run.last["accuracy.valid"], show.share],
  ["duration", (run) => run.last.seconds, show.seconds],
  ["seed", (run) => run.seed, (value) => value ?? ""],
  ["began", (run) => run.began, (value) => new Date(1000 * value).toLocaleString([], TIME)],
  ["state", (run) => run.state],
  ["curve"],
  ["actions"],
];
let runs = [];
const count = el("span.quiet", { role: "status" });
const compared = el("a", "compare these"); // at most MOST_COMPARED
const head = el("tr");
const body = el("tbody");

function sparkline({ curve: { step = [], "loss.valid": losses = [] } }) {
  const points = d3.zip(step, losses).filter((point) => point.every(Number.isFinite));
  const svg = d3.create("svg").attr("class", "spark").attr("width", 80).attr("height", 22).attr("aria-hidden", "true");
  const x = d3.scaleLinear(d3.extent(points, (p) => p[0]), [2, 78]);
  const y = d3.scaleLinear(d3.extent(points, (p) => p[1]), [20, 2]);
  svg.append("path").attr("class", "line").attr("d", d3.line((p) => x(p[0]), (p) => y(p[1]))(points));
  return svg.node();
}

async function remove(run) {
  const what = `Delete the curves, the log and the settings that the dashboard has of ${nameOf(run)} (${idOf(run)})?`;
  const stays = `Its folder ${run.folder} stays, and python dashboard.py --import brings it back.`;
  if (confirm(`${what}\n\n${stays}`)) await ask(`runs/${run.uuid}`, "DELETE");
}

function rowOf(run) {
  const hide = () => ask(`runs/${run.uuid}/hidden`, "PUT", { hidden: !run.hidden });
  const safely = (onclick) => () => onclick().catch((error) => alert(error.message));
  const does = (text, onclick, id) => button(text, safely(onclick),
    { id: `${id}-${run.uuid}`, ariaLabel: `${text} ${nameOf(run)} ${idOf(run)}` });
  const actions = [does(run.hidden ? "Show" : "Hide", hide, "hide"), does("Delete", () => remove(run), "delete")];
  const values = COLUMNS.slice(1, -3).map(([, value, format]) => (format ? format(value(run)) : value(run)));
  const line = row(linkTo(run, nameOf(run)), ...values, stateOf(run), sparkline(run), el("span.actions", ...actions));
  line.cells[0].append(` ${idOf(run)}`);
  COLUMNS.forEach(([title, , format], i) => {
    line.cells[i].dataset.title = title;
    line.cells[i].classList.toggle("number", format !== undefined);
  });
  line.dataset.run = run.uuid;
  return line;
}

function draw() {
  const [name, isDescending] = [view.get("sort") ?? "began", !view.has("up")];
  const value = COLUMNS.find(([title]) => title === name)?.[1] ?? ((run) => run.began);
  const direction = isDescending ? d3.descending : d3.ascending;
  const shown = runs.filter((run) => (view.has("hidden") || !run.hidden) && accepts(run));
  const sorted = d3.sort(shown, (a, b) => (value(a) == null) - (value(b) == null) || direction(value(a), value(b)));
  fill(head, ...COLUMNS.map(([title, value, format]) => {
    const sort = () => (keep("sort", title), keep("up", (title !== name || isDescending) && "1"), draw());
    const ariaSort = title === name ? (isDescending ? "descending" : "ascending") : "none";
    return el("th", { scope: "col", ariaSort, className: format ? "number" : "" },
      value ? button(title, sort, { id: `sort-${title}` }) : title);
  }));
  fill(body, ...sorted.map(rowOf));
  const none = "No runs yet: make train starts one, python dashboard.py --import all adds earlier ones.";
  const chosen = sorted.slice(0, MOST_COMPARED).map((run) => ["run", run.uuid.slice(0, 12)]);
  compared.href = `/compare?${new URLSearchParams(chosen)}`;
  compared.hidden = !chosen.length;
  count.textContent = runs.length ? `${shown.length} of ${runs.length} runs` : none;
}

const list = table("Runs", el("table.list", el("thead", head), body));
frame("Runs", el("h1", "Runs"), controls(draw, runFilter(), toggle("hidden runs too", "hidden"), count, compared),
  el("section.card", list));
liveRuns((all) => ((runs = all), draw()));
