// Curves of chosen runs on common axes, and the keys in which they differ.
import { chart } from "./chart.js";
import {
  AXES, LINE_COLORS, accepts, axisOf, button, card, choice, controls, el, fill, frame, idOf, isCharacters, keep, linkTo,
  live, liveRuns, nameOf, row, runFilter, show, stateOf, table, toggle, view,
} from "./page.js";

const PER_CHARACTER = "loss.valid_per_character"; // the one loss that runs with other texts and tokens may share
const EXCESS = { title: "excess over the floor" };
const METRICS = { "loss.valid": {}, [PER_CHARACTER]: {}, "loss.train": {}, excess: EXCESS, "accuracy.valid": {} };
const DASHES = [["solid"], ["dashed", "7 3"], ["dotted", "2 3"]]; // of the first seven groups, the next, and so on
const NO_SETTINGS = new Set(["logs"]); // keys that change nothing in a run
const NONE = "none"; // in the address, if no run is chosen
const FIRST = 12; // runs that are chosen at first
const MOST_COLUMNS = 12; // of the table of keys
let runs = [];
let chosen = null; // uuids
let known = null; // uuids of all runs when they were drawn last
let styles = new Map(); // by group
const panels = el("div");
const trials = el("div.trials");
const list = el("ul.runs");
const keys = el("tbody");
const keyCard = card("Keys that differ", table("Keys that differ", el("table.keys", keys)));
const count = el("span.quiet", { role: "status" });
const error = el("p.error", { role: "alert" });

// The mean of runs that differ in their seed, and its band, by the number of the evaluation: [x, mean, low, high].
// A long curve leaves out rows: an evaluation counts if all curves that reach it have it.
function meanOf(curves) {
  const ends = curves.map((curve) => d3.max(curve, ([number]) => number));
  const found = d3.groups(curves.flat(), ([number]) => number)
    .filter(([number, points]) => points.length === ends.filter((end) => end >= number).length)
    .map(([, points]) => [1, 2].map((i) => d3.mean(points, (p) => p[i])).concat(d3.extent(points, (p) => p[2])));
  return d3.sort(found, ([x]) => x);
}

const titleOf = (name) => METRICS[name].title ?? name;
const valuesOf = (run, name) => run.curve[name === PER_CHARACTER && isCharacters(run) ? "loss.valid" : name];
// The name of a run without the words that all listed runs share.
function labelOf(run) {
  const isShared = (word) => runs.every((each) => nameOf(each).split(" ").includes(word));
  const own = nameOf(run).split(" ").filter((word) => !isShared(word));
  return [...(own.length ? own : [nameOf(run)]), run.name.startsWith("mlm, ") ? "" : run.name].join(" ").trim();
}

// A color and a dash per group of runs that differ only in their seed, whichever others are chosen.
function stylesOf(all) {
  const groups = [...new Set(d3.sort(all, (run) => run.began).map((run) => run.group))];
  return new Map(groups.map((group, i) => {
    const [border, dash] = DASHES[Math.floor(i / LINE_COLORS) % DASHES.length];
    return [group, { color: `var(--c${i % LINE_COLORS})`, border, dash }];
  }));
}

function drawCharts() {
  const name = axes.y.value;
  const drawn = runs.filter((run) => chosen.has(run.uuid) && valuesOf(run, name));
  const units = d3.groups(d3.sort(drawn, (run) => run.began), (run) => (name === PER_CHARACTER ? "" : run.unit));
  const newCard = ([unit, [run]]) => el("section.card", chart(unit ? `${run.text}, ${run.tokens}` : "all texts", 420));
  d3.select(panels).selectAll("section").data(units, ([unit]) => unit).join((enter) => enter.append(newCard))
    .each(([, members], i, cards) => cards[i].firstChild.draw(contentOf(members, name)));
  const unknown = view.getAll("run").filter((id) => id !== NONE && !runs.some(({ uuid }) => uuid.startsWith(id)));
  error.textContent = unknown.length ? `No run begins with ${unknown.join(" or ")}.` : "";
  const without = chosen.size - drawn.length;
  const said = without ? `, ${without} without ${titleOf(name)}` : "";
  const cut = chosen.size > MOST_COLUMNS ? `, ${MOST_COLUMNS} of them in the table of keys` : "";
  count.textContent = `${chosen.size} of ${runs.length} runs chosen${said}${cut}`;
  panels.dataset.empty = runs.length ? "Nothing to draw: choose runs that have been evaluated." : "No runs yet.";
  drawKeys(runs.filter((run) => chosen.has(run.uuid)).slice(0, MOST_COLUMNS));
}

// The runs of one unit as a chart draws them.
function contentOf(members, name) {
  const [x, [{ references }]] = [axes.x.value, members];
  const curveOf = (run) => d3.zip(run.curve.row, run.curve[x] ?? [], valuesOf(run, name))
    .filter((point) => point.every(Number.isFinite));
  const series = d3.groups(members, (run) => run.group).map(([group, seeds]) => ({
    name: labelOf(seeds[0]) + (seeds.length > 1 ? `, ${seeds.length} seeds` : ""),
    ...styles.get(group),
    points: meanOf(seeds.map(curveOf)),
  }));
  const [kind, format, end] = name.startsWith("accuracy") ? ["share of", show.share, "s"] : ["nats per", show.loss, ""];
  const token = name === PER_CHARACTER || isCharacters(members[0]) ? "character" : "token";
  return {
    x: { ...axisOf(x, members), isLog: axes.xlog.checked },
    y: { title: `${titleOf(name)}, ${kind} masked ${token}${end}`, format, isLog: axes.ylog.checked },
    series,
    references: name === "loss.valid" && references.counting ? [{ name: "counting", y: references.counting }] : [],
  };
}

function swatch(run) {
  const { color, border } = styles.get(run.group);
  return el("span.swatch", { style: `border-top: 3px ${border} ${color}` });
}

function drawKeys(columns) {
  const head = (run) => el("span.nowrap", swatch(run), linkTo(run, idOf(run)));
  const text = (run, key) => (key in run.configs ? show.any(run.configs[key]) : "–");
  const all = new Set(columns.flatMap((run) => Object.keys(run.configs)).filter((key) => !NO_SETTINGS.has(key)));
  const different = [...all].filter((key) => new Set(columns.map((run) => text(run, key))).size > 1);
  const loss = (run) => run.last["loss.valid"];
  const firstOf = (run) => columns.find((each) => each.unit === run.unit && loss(each) != null);
  const isComparable = (run) => loss(run) != null && firstOf(run) !== run;
  const gap = (run) => (isComparable(run) ? ` (${d3.format("+.3f")(loss(run) - loss(firstOf(run)))})` : "");
  const facts = {
    run: head,
    "loss.valid": (run) => `${show.loss(loss(run))}${gap(run)}`,
    correct: (run) => show.share(run.last["accuracy.valid"]),
    ...Object.fromEntries(different.map((key) => [key, (run) => text(run, key)])),
  };
  keyCard.hidden = !columns.length;
  fill(keys, ...Object.entries(facts).map(([title, cell]) => row(title, ...columns.map(cell))));
}

function choose(uuids) {
  chosen = new Set(uuids);
  view.delete("run");
  for (const uuid of chosen.size ? chosen : [NONE]) view.append("run", uuid.slice(0, 12));
  keep("filter", view.get("filter"));
  drawList();
  drawCharts();
}

const isListed = (run) => (!run.hidden || chosen.has(run.uuid)) && accepts(run);

function drawList() {
  fill(list, ...runs.filter(isListed).map((run) => {
    const box = el("input", { type: "checkbox", id: `box-${run.uuid}`, checked: chosen.has(run.uuid) });
    box.onchange = () => choose(box.checked ? [...chosen, run.uuid] : [...chosen].filter((uuid) => uuid !== run.uuid));
    const tokens = isCharacters(run) ? "" : run.tokens;
    const facts = [show.loss(run.last["loss.valid"]), run.text, tokens, `seed ${run.seed}`];
    const item = el("li", el("label", box, swatch(run), el("span", labelOf(run))),
      el("small", `${facts.filter(Boolean).join(" · ")} `, run.state === "completed" ? null : stateOf(run)));
    item.dataset.run = run.uuid;
    return item;
  }));
}

function load(found) {
  [runs, styles] = [found, stylesOf(found)];
  const wanted = view.getAll("run");
  const asked = ({ uuid }) => wanted.some((id) => uuid.startsWith(id));
  const first = wanted.length ? runs.filter(asked) : runs.filter((run) => !run.hidden).slice(0, FIRST);
  const isNew = ({ uuid }) => !known.has(uuid); // it was not there before
  const kept = known ? runs.filter((run) => chosen.has(run.uuid) || isNew(run)) : first;
  for (const { uuid } of known && wanted.length ? runs.filter(isNew) : []) view.append("run", uuid.slice(0, 12));
  keep("filter", view.get("filter")); // and the runs, in the address
  [chosen, known] = [kept, runs].map((some) => new Set(some.map((run) => run.uuid)));
  drawList();
  drawCharts();
}

// The intervals of the trials of trial.py after each pair: a band, whose edges are dashed lines.
function drawTrials(found) {
  fill(trials, ...found.map(({ base, by }) => el("section.card", chart(`trial against ${base}: ${by}`, 260))));
  found.forEach((trial, i) => trials.children[i].firstChild.draw(intervalsOf(trial)));
}

function intervalsOf({ by, equal, smallest, intervals }) {
  const series = Object.entries(intervals).flatMap(([name, points], i) => {
    const color = `var(--c${i % LINE_COLORS})`;
    const edge = (at) => ({ name: "", color, dash: "2 3", points: points.map((p) => [p[0], p[at]]) });
    return [{ name, color, points }, edge(2), edge(3)];
  });
  return {
    x: { title: `pairs, equal ${equal}`, format: show.number },
    y: { title: "variant minus base", format: by === "loss.valid" ? show.loss : show.number, top: Infinity },
    series,
    references: [-smallest, 0, smallest].map((y) => ({ name: y ? "smallest" : "no change", y })),
    hasLabels: true,
  };
}

const axes = controls(drawCharts, choice("draw", "y", METRICS), choice("against", "x", AXES),
  toggle("log axis", "xlog"), toggle("log values", "ylog"), count);
const all = button("All", () => choose([...chosen, ...runs.filter(isListed).map((run) => run.uuid)]));
const selection = controls(drawList, runFilter(), all, button("None", () => choose([])));
const explained = el("p.quiet", "Runs that differ only in their seed share a color: the line is their mean, ",
  "the band goes from the lowest to the highest.");
frame("Compare", el("h1", "Compare runs"), axes, error,
  el("div.compare", panels, card("Runs", selection, list, explained)), keyCard, trials);
liveRuns(load);
live(() => "trials", drawTrials);
