// All runs as a table that sorts and filters.
import {
  ask, button, el, frame, idOf, keep, liveRuns, nameOf, runFilter, show, stateOf, table, toggle, view,
} from "./page.js";

const TIME = { dateStyle: "short", timeStyle: "short" };
const COLUMNS = [ // title, value, format
  ["run", nameOf],
  ["text", (run) => run.text],
  ["loss.valid", (run) => run.last["loss.valid"], show.loss],
  ["best", (run) => run.best, show.loss],
  ["correct", (run) => run.last["accuracy.valid"], show.share],
  ["duration", (run) => run.last.seconds, show.seconds],
  ["characters", (run) => run.last.chars, show.count],
  ["seed", (run) => run.seed, String],
  ["began", (run) => run.began, (value) => new Date(1000 * value).toLocaleString([], TIME)],
  ["state", (run) => run.state],
];
let runs = [];
const filter = runFilter(draw);
const count = el("span.quiet", { role: "status" });
const head = el("tr");
const body = el("tbody");

function sparkline(run) {
  const all = d3.zip(run.curve.step ?? [], run.curve["loss.valid"] ?? []);
  const points = all.filter((point) => point.every(Number.isFinite));
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

function row(run) {
  const cells = COLUMNS.map(([title, value, format]) => {
    const shown = value(run);
    const link = el("a", { href: `/run/${run.uuid}` }, shown ?? "");
    if (title === "run") return el("th", { scope: "row" }, link, ` ${idOf(run)}`);
    if (title === "state") return el("td", stateOf(run));
    return el("td", { className: format ? "number" : "" }, format && shown != null ? format(shown) : shown);
  });
  const hide = () => ask(`runs/${run.uuid}/hidden`, "PUT", { hidden: !run.hidden });
  const actions = [button(run.hidden ? "Show" : "Hide", hide), button("Delete", () => remove(run))];
  for (const each of actions) each.ariaLabel = `${each.textContent} ${nameOf(run)} ${idOf(run)}`;
  const line = el("tr", ...cells, el("td", sparkline(run)), el("td.actions", ...actions));
  [...line.cells].forEach((cell, i) => (cell.dataset.title = COLUMNS[i]?.[0] ?? ["curve", ""][i - COLUMNS.length]));
  line.dataset.run = run.uuid;
  return line;
}

function draw() {
  const [name, isDescending] = [view.get("sort") ?? "began", !view.has("up")];
  const value = COLUMNS.find(([title]) => title === name)?.[1] ?? ((run) => run.began);
  const direction = isDescending ? d3.descending : d3.ascending;
  const shown = runs.filter((run) => (view.has("hidden") || !run.hidden) && filter.accepts(run));
  const sorted = d3.sort(shown, (a, b) => (value(a) == null) - (value(b) == null) || direction(value(a), value(b)));
  head.replaceChildren(...COLUMNS.map(([title, , format]) => {
    const sort = button(title, () => (keep("sort", title), keep("up", title === name && isDescending && "1"), draw()));
    const order = title === name ? (isDescending ? "descending" : "ascending") : "none";
    return el("th", { scope: "col", ariaSort: order, className: format ? "number" : "" }, sort);
  }), el("th", { scope: "col" }, "curve"), el("th", { scope: "col" }, "actions"));
  body.replaceChildren(...sorted.map(row));
  const none = "No runs yet: make train starts one, python dashboard.py --import all adds earlier ones.";
  count.textContent = runs.length ? `${shown.length} of ${runs.length} runs` : none;
}

const hidden = toggle("hidden runs too", "hidden", draw);
const controls = el("div.controls", el("label", "Filter ", filter), hidden, count);
const list = table("Runs", el("table.list", el("thead", head), body));
frame("Runs", "/runs", el("h1", "Runs"), controls, el("section.card", list));
liveRuns((all) => ((runs = all), draw()));
