// All runs as a table that sorts and filters.
import { ask, button, el, frame, keep, liveRuns, nameOf, show, stateOf, toggle, view } from "./page.js";

const COLUMNS = [ // title, value, format
  ["run", nameOf],
  ["text", (run) => run.text],
  ["loss.valid", (run) => run.last["loss.valid"], show.loss],
  ["best", (run) => run.best, show.loss],
  ["correct", (run) => run.last["accuracy.valid"], show.share],
  ["duration", (run) => run.last.seconds, show.seconds],
  ["characters", (run) => run.last.chars, show.count],
  ["seed", (run) => run.seed, String],
  ["began", (run) => run.began, (value) => new Date(1000 * value).toLocaleString([], { dateStyle: "short", timeStyle: "short" })],
  ["state", (run) => run.state],
];
let runs = [];
const filter = el("input", { type: "search", id: "filter", placeholder: "preset, key=value, text, state", value: view.get("filter") ?? "" });
filter.oninput = () => (keep("filter", filter.value), draw());
const count = el("span", { className: "quiet", role: "status" });
const head = el("tr");
const body = el("tbody");

function sparkline(run) {
  const points = d3.zip(run.curve.step ?? [], run.curve["loss.valid"] ?? []).filter((point) => point.every(Number.isFinite));
  const svg = d3.create("svg").attr("class", "spark").attr("width", 80).attr("height", 22).attr("aria-hidden", "true");
  const x = d3.scaleLinear(d3.extent(points, (p) => p[0]), [2, 78]);
  const y = d3.scaleLinear(d3.extent(points, (p) => p[1]), [20, 2]);
  svg.append("path").attr("class", "line").attr("d", d3.line((p) => x(p[0]), (p) => y(p[1]))(points));
  return svg.node();
}

async function remove(run) {
  const what = `Delete ${nameOf(run)} (${run.uuid.slice(0, 8)}) from the dashboard: its curves, log and settings here?\n\n` +
    `Its folder ${run.folder} stays, and python dashboard.py --import brings it back. "Hide" only takes it off this list.`;
  if (confirm(what)) await ask(`runs/${run.uuid}`, "DELETE");
}

function row(run) {
  const cells = COLUMNS.map(([title, value, format]) => {
    const shown = value(run);
    if (title === "run") return el("th", { scope: "row" }, el("a", { href: `/run/${run.uuid}` }, shown), ` ${run.uuid.slice(0, 6)}`);
    if (title === "state") return el("td", {}, stateOf(run));
    return el("td", { className: format ? "number" : "" }, shown == null ? "" : format ? format(shown) : shown);
  });
  const hide = button(run.hidden ? "Show" : "Hide", () => ask(`runs/${run.uuid}/hidden`, "PUT", { hidden: !run.hidden }));
  const actions = [hide, button("Delete", () => remove(run))];
  for (const each of actions) each.ariaLabel = `${each.textContent} ${nameOf(run)} ${run.uuid.slice(0, 6)}`;
  const line = el("tr", {}, ...cells, el("td", {}, sparkline(run)), el("td", { className: "actions" }, ...actions));
  line.dataset.run = run.uuid;
  return line;
}

function draw() {
  const [name, isDescending] = [view.get("sort") ?? "began", !view.has("up")];
  const value = COLUMNS.find(([title]) => title === name)?.[1] ?? ((run) => run.began);
  const direction = isDescending ? d3.descending : d3.ascending;
  const words = filter.value.toLowerCase().split(/\s+/);
  const text = (run) => [nameOf(run), run.name, run.tokens, run.uuid, run.state, run.folder].join(" ").toLowerCase();
  const shown = runs.filter((run) => (view.has("hidden") || !run.hidden) && words.every((word) => text(run).includes(word)));
  const sorted = d3.sort(shown, (a, b) => (value(a) == null) - (value(b) == null) || direction(value(a), value(b)));
  head.replaceChildren(...COLUMNS.map(([title, , format]) => {
    const sort = button(title, () => (keep("sort", title), keep("up", title === name && isDescending && "1"), draw()));
    const order = title === name ? (isDescending ? "descending" : "ascending") : "none";
    return el("th", { scope: "col", ariaSort: order, className: format ? "number" : "" }, sort);
  }), el("th", { scope: "col" }, "curve"), el("th", { scope: "col" }, "actions"));
  body.replaceChildren(...sorted.map(row));
  const none = runs.length ? "" : "No runs yet: make train starts one, python dashboard.py --import all adds earlier ones.";
  count.textContent = none || `${shown.length} of ${runs.length} runs`;
}

const controls = el("div", { className: "controls" }, el("label", {}, "Filter ", filter), toggle("hidden runs too", "hidden", draw), count);
const table = el("div", { className: "card table", tabIndex: 0, role: "region", ariaLabel: "Runs" }, el("table", {}, el("thead", {}, head), body));
frame("Runs", "/runs", el("h1", {}, "Runs"), controls, table);
liveRuns((all) => ((runs = all), draw()));
