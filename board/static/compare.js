// Curves of chosen runs on common axes, and the keys in which they differ.
import { chart, robustTop } from "./chart.js";
import {
  AXES, LINE_COLORS, button, card, choice, el, frame, idOf, keep, liveRuns, nameOf, runFilter, show, stateOf, table,
  toggle, view,
} from "./page.js";

const PER_CHARACTER = "loss.valid_per_character"; // the one loss that runs with other texts and tokens may share
const METRICS = {
  "loss.valid": "loss.valid",
  [PER_CHARACTER]: PER_CHARACTER,
  "loss.train": "loss.train",
  excess: "excess over the floor",
  "accuracy.valid": "accuracy.valid",
};
const DASHES = [null, "7 3", "2 3"]; // of the first seven groups, the next seven, and so on
const NEARLY = 0.02; // of the range
const FIRST = 12; // runs that are chosen at first
const MOST_COLUMNS = 12; // of the table of keys
let runs = [];
let chosen = null; // uuids
let known = null; // uuids of all runs when they were drawn last
const charts = new Map(); // by unit
const panels = el("div");
const list = el("ul.runs");
const keys = el("table");
const count = el("span.quiet", { role: "status" });
const filter = runFilter(drawList);

// The value of a curve, a list of [x, y], at x; between two points on the straight line.
function at(curve, x) {
  const i = Math.min(Math.max(d3.bisector((point) => point[0]).left(curve, x), 1), curve.length - 1);
  const [[x0, y0], [x1, y1]] = [curve[Math.max(0, i - 1)], curve[i]];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

// [x, mean, low, high] of runs that differ in their seed, over those that reach x.
function band(curves) {
  if (curves.length < 2) return (curves[0] ?? []).map(([x, y]) => [x, y, y, y]);
  // Seeds are evaluated at slightly different times: the band begins and ends where nearly all of them do.
  const [starts, ends] = [curves.map((curve) => curve[0][0]), curves.map((curve) => curve[curve.length - 1][0])];
  const slack = NEARLY * (d3.max(ends) - d3.min(starts));
  const low = d3.max(starts.filter((x) => x <= d3.min(starts) + slack));
  const high = d3.min(ends.filter((x) => x >= d3.max(ends) - slack));
  const xs = d3.sort(new Set([low, high, ...curves.flat().map(([x]) => x)])).filter((x) => low <= x && x <= high);
  return xs.map((x) => {
    const reaching = curves.filter((curve) => curve[0][0] <= x && x <= curve[curve.length - 1][0]);
    const values = reaching.map((curve) => at(curve, x));
    return [x, d3.mean(values), ...d3.extent(values)];
  });
}

const isCharacters = (run) => run.tokens === "characters";
const valuesOf = (run, metric) => run.curve[metric === PER_CHARACTER && isCharacters(run) ? "loss.valid" : metric];
const labelOf = (run) => (run.name.startsWith("mlm, ") ? nameOf(run) : `${nameOf(run)} ${run.name}`);

// A color and a dash per group of runs that differ only in their seed, whichever others are chosen.
function styles() {
  const groups = [...new Set(d3.sort(runs, (run) => run.began).map((run) => run.group))];
  const dash = (i) => DASHES[Math.floor(i / LINE_COLORS) % DASHES.length];
  return new Map(groups.map((group, i) => [group, { color: `var(--c${i % LINE_COLORS})`, dash: dash(i) }]));
}

function drawCharts() {
  const [axis, metric] = ["x", "y"].map((id) => document.getElementById(id).value);
  const [x, y] = ["xlog", "ylog"].map((id) => ({ isLog: document.getElementById(id).checked }));
  const drawn = runs.filter((run) => chosen.has(run.uuid) && valuesOf(run, metric));
  const style = styles();
  const units = d3.groups(d3.sort(drawn, (run) => run.began), (run) => (metric === PER_CHARACTER ? "" : run.unit));
  for (const [unit, figure] of charts) {
    if (!units.some(([each]) => each === unit)) (figure.parentElement.remove(), charts.delete(unit));
  }
  for (const [unit, members] of units) {
    const [{ text, tokens, references }] = members;
    if (!charts.has(unit)) {
      charts.set(unit, chart(unit ? `${text}, ${tokens}` : "all texts", 420));
      panels.append(el("section.card", charts.get(unit)));
    }
    const series = d3.groups(members, (run) => run.group).map(([group, seeds]) => {
      const isPoint = (point) => point.every(Number.isFinite);
      const curves = seeds.map((run) => d3.zip(run.curve[axis] ?? [], valuesOf(run, metric)).filter(isPoint));
      const points = band(curves.filter((curve) => curve.length));
      const name = nameOf(seeds[0]) + (seeds.length > 1 ? `, ${seeds.length} seeds` : "");
      const spread = points.map(([a, , low, high]) => [a, low, high]);
      return { name, ...style.get(group), points: points.map(([a, mean]) => [a, mean]), band: spread };
    });
    const isShare = metric.startsWith("accuracy");
    const token = isCharacters({ tokens }) || !unit ? "character" : "token";
    const per = `${isShare ? "share of masked" : "nats per masked"} ${token}`;
    const top = robustTop(series.map(({ points }) => points.map(([, value]) => value)));
    charts.get(unit).draw({
      x: { ...x, ...AXES[axis] },
      y: { ...y, title: `${METRICS[metric]}, ${per}`, format: isShare ? show.share : show.loss, top },
      series,
      references: metric === "loss.valid" && references.counting ? [{ name: "counting", y: references.counting }] : [],
    });
  }
  const without = chosen.size - drawn.length;
  const said = without ? `, ${without} without ${METRICS[metric]}` : "";
  count.textContent = `${chosen.size} of ${runs.length} runs chosen${said}`;
  panels.dataset.empty = runs.length ? "Nothing to draw: choose runs that have been evaluated." : "No runs yet.";
  drawKeys(runs.filter((run) => chosen.has(run.uuid)).slice(0, MOST_COLUMNS), style);
}

const linkTo = (run) => el("a", { href: `/run/${run.uuid}` }, idOf(run));
const swatch = ({ color }) => el("span.swatch", { style: `background:${color}` });

function drawKeys(columns, style) {
  const all = new Set(columns.flatMap((run) => Object.keys(run.configs)));
  const text = (run, key) => (key in run.configs ? show.any(run.configs[key]) : "–");
  const different = [...all].filter((key) => new Set(columns.map((run) => text(run, key))).size > 1);
  const head = (title, ...cells) => el("tr", el("th", { scope: "row" }, title), ...cells);
  keys.replaceChildren(el("tbody",
    head("run", ...columns.map((run) => el("td.nowrap", swatch(style.get(run.group)), linkTo(run)))),
    head("loss.valid", ...columns.map((run) => el("td", show.loss(run.last["loss.valid"])))),
    head("correct", ...columns.map((run) => el("td", show.share(run.last["accuracy.valid"])))),
    ...different.map((key) => head(key, ...columns.map((run) => el("td", text(run, key)))))));
}

function choose(uuids) {
  chosen = new Set(uuids);
  view.delete("run");
  for (const uuid of chosen.size ? chosen : ["none"]) view.append("run", uuid.slice(0, 12));
  keep("filter", filter.value);
  drawList();
  drawCharts();
}

const isListed = (run) => (!run.hidden || chosen.has(run.uuid)) && filter.accepts(run);

function drawList() {
  const style = styles();
  list.replaceChildren(...runs.filter(isListed).map((run) => {
    const box = el("input", { type: "checkbox", checked: chosen.has(run.uuid) });
    box.onchange = () => choose(box.checked ? [...chosen, run.uuid] : [...chosen].filter((uuid) => uuid !== run.uuid));
    const tokens = isCharacters(run) ? "" : run.tokens;
    const facts = [show.loss(run.last["loss.valid"]), run.text, tokens, `seed ${run.seed}`];
    const item = el("li", el("label", box, swatch(style.get(run.group)), el("span", labelOf(run))),
      el("small", `${facts.filter(Boolean).join(" · ")} `, run.state === "completed" ? null : stateOf(run)));
    item.dataset.run = run.uuid;
    return item;
  }));
}

function load(found) {
  runs = found;
  const wanted = view.getAll("run");
  const asked = runs.filter((run) => wanted.some((id) => run.uuid.startsWith(id)));
  const newest = runs.filter((run) => !run.hidden).slice(0, FIRST);
  chosen ??= new Set((wanted.length ? asked : newest).map((run) => run.uuid));
  for (const run of runs) if (known && !known.has(run.uuid)) chosen.add(run.uuid); // it has just begun
  known = new Set(runs.map((run) => run.uuid));
  chosen = new Set([...chosen].filter((uuid) => known.has(uuid)));
  drawList();
  drawCharts();
}

const axes = Object.fromEntries(Object.entries(AXES).map(([name, { title }]) => [name, title]));
const controls = el("div.controls", choice("draw", "y", METRICS, drawCharts), choice("against", "x", axes, drawCharts),
  toggle("log axis", "xlog", drawCharts), toggle("log values", "ylog", drawCharts), count);
const all = button("All", () => choose([...chosen, ...runs.filter(isListed).map((run) => run.uuid)]));
const buttons = el("div.controls", el("label", "Filter ", filter), all, button("None", () => choose([])));
const explained = el("p.quiet", "Runs that differ only in their seed share a color: the line is their mean, ",
  "the band goes from the lowest to the highest.");
const drawn = el("div", panels, card("Keys that differ", table("Keys that differ", keys)));
frame("Compare", "/runs", el("h1", "Compare runs"), controls,
  el("div.compare", drawn, card("Runs", buttons, list, explained)));
liveRuns(load);
