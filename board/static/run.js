// One run: its figures, curves, samples, keys, knobs and log, read from its folder while it trains.
import { chart } from "./chart.js";
import { AXES, ask, button, card, choice, el, frame, live, nameOf, show, stateOf, toggle } from "./page.js";

const uuid = location.pathname.split("/")[2];
const PLAIN = new Set([...Object.keys(AXES), "wall_seconds", "loss.train", "loss.valid", "loss.valid_stderr", "floor.valid"]);
const FORMATS = { "accuracy.valid": show.share, "accuracy.train": show.share, masking_prob: show.share, chars_per_second: show.count };
const FIRST = ["accuracy.valid", "excess", "learning_rate", "grad_norm"]; // of the small charts
const LOG_LINES = 500;
const files = Object.fromEntries(["metrics.jsonl", "hardware.jsonl", "log.txt"].map((name) => [name, { to: 0, text: "" }]));
let run = null;

const title = el("h1");
const figures = el("dl", { className: "figures" });
const loss = chart("Loss", 400);
const charts = el("div", { className: "small" });
const smalls = {};
const shownKeys = el("div");
const log = el("pre", { tabIndex: 0 });
const note = el("p", { className: "quiet" });

function smallChart(name, content) {
  if (!(name in smalls)) charts.append(el("section", { className: "card" }, (smalls[name] = chart(name, 180))));
  smalls[name].draw(content);
}

const json = (name) => files[name].text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
const color = (i) => `var(--c${i})`;

// Where stages begin on an axis: by the progress of the rows around it.
function stagesOf(rows, axis) {
  const { configs } = run;
  const limits = { step: configs["training.max_steps"], chars: configs["training.max_chars"], seconds: configs["training.max_seconds"] };
  const progress = (row) => d3.max(Object.keys(limits), (name) => (limits[name] ? row[name] / limits[name] : 0));
  const known = [{ x: 0, progress: 0 }, ...rows.map((row) => ({ x: row[axis], progress: progress(row) }))];
  const at = d3.scaleLinear(known.map((row) => row.progress), known.map((row) => row.x)).clamp(true);
  let from = 0;
  return (configs["training.stages"] ?? []).map((stage) => {
    const rate = [stage.masking_prob ?? configs["masking.masking_prob"]].flat().map((each) => `${+(100 * each).toFixed(1)}%`);
    const begin = { from, x: at(from), text: `${stage.seq_len} long, ${rate.join("/")} masked`, short: `${stage.seq_len}` };
    from = stage.until;
    return begin;
  }).filter((stage) => stage.from <= known[known.length - 1].progress && known.length > 1);
}

function drawCharts() {
  if (!run) return;
  const rows = json("metrics.jsonl");
  const axis = document.getElementById("x").value;
  const x = { ...AXES[axis], isLog: document.getElementById("xlog").checked };
  const points = (name) => rows.map((row) => [row[axis], row[name]]);
  const band = rows.filter((row) => row["loss.valid_stderr"] != null)
    .map((row) => [row[axis], row["loss.valid"] - row["loss.valid_stderr"], row["loss.valid"] + row["loss.valid_stderr"]]);
  const unit = run.tokens === "characters" ? "character" : "token";
  loss.draw({
    x,
    y: { title: `nats per masked ${unit}`, format: show.loss, isLog: document.getElementById("ylog").checked },
    series: [
      { name: "train", color: color(1), points: points("loss.train") },
      { name: "valid", color: color(0), points: points("loss.valid"), band },
    ],
    references: Object.entries(run.references).map(([name, y]) => ({ name, y })),
    stages: stagesOf(rows, axis),
    hasLabels: true,
  });
  const names = new Set([...FIRST, ...rows.flatMap((row) => Object.keys(row))].filter((name) => !PLAIN.has(name)));
  for (const name of names) {
    if (new Set(rows.map((row) => row[name]).filter(Number.isFinite)).size < 2) continue; // constant
    smallChart(name, { x, y: { format: FORMATS[name] ?? show.number }, series: [{ name, color: color(0), points: points(name) }] });
  }
  const usage = json("hardware.jsonl");
  const minutes = { title: "seconds since the start", format: show.number };
  for (const [kind, columns] of Object.entries({ CPU: ["cpu", "cpu_of_run"], Memory: ["memory", "memory_of_run"], GPU: ["gpu", "gpu_memory"] })) {
    const used = columns.filter((name) => usage.some((row) => name in row));
    const series = used.map((name, i) => ({ name: name.replace(/^(cpu|memory)_of_/, "this ").replace(/^(cpu|memory)$/, "all"), color: color(i), points: usage.map((row) => [row.time - run.began, row[name]]) }));
    if (used.length) smallChart(kind, { x: minutes, y: { title: "% used", format: show.count }, series, hasLabels: true });
  }
  drawFigures(rows[rows.length - 1]);
}

function drawFigures(row) {
  const gap = row && (row.excess != null ? ["excess over the floor", show.loss(row.excess)] : run.references.counting
    ? ["below counting", show.loss(run.references.counting - row["loss.valid"])] : null);
  const found = row ? [
    ["loss.valid", `${show.loss(row["loss.valid"])}`, row["loss.valid_stderr"] == null ? "" : ` ± ${show.loss(row["loss.valid_stderr"])}`],
    ["correct", show.share(row["accuracy.valid"])],
    gap,
    ["of training", show.seconds(row.seconds)],
    ["characters per second", show.count(row.chars_per_second)],
  ] : [];
  figures.replaceChildren(...found.filter(Boolean).map(([name, value, more = ""]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, more)))));
}

// Samples: the colored lines of the log, by evaluation.
const slider = el("input", { type: "range", min: 0, id: "evaluation", ariaLabel: "Evaluation", oninput: drawSample });
const sample = el("div", { className: "sample", tabIndex: 0, role: "region", ariaLabel: "Sample" });
const when = el("output");
let samples = [];

function readSamples() {
  const wasLast = +slider.value >= samples.length - 1;
  let step = "";
  samples = d3.groups(files["log.txt"].text.split("\n").flatMap((line) => {
    step = /^step +([\d,]+) /.exec(line)?.[1] ?? step;
    return line.includes("\x1b[") ? [{ step, line }] : [];
  }), ({ step: of }) => of);
  slider.max = Math.max(0, samples.length - 1);
  slider.disabled = samples.length < 2;
  if (wasLast) slider.value = slider.max;
  drawSample();
}

function drawSample() {
  const [step, lines] = samples[+slider.value] ?? ["", []];
  when.textContent = step ? `after step ${step}` : "No samples yet.";
  slider.ariaValueText = when.textContent;
  sample.replaceChildren(...lines.map(({ line }) => el("p", {}, ...line.split("\x1b[0m").flatMap((part) => {
    const [, plain, marked] = /^(.*?)(?:\x1b\[3\dm\[(.*)\])?$/s.exec(part);
    const [, guess, truth] = /^(.+?)!(.+)$/s.exec(marked ?? "") ?? [];
    const space = (text) => text.replace(/ /g, "␣");
    if (!marked) return [plain];
    if (!guess) return [plain, el("b", { className: "right" }, space(marked))];
    return [plain, el("b", { className: "wrong" }, space(guess)), el("s", {}, space(truth))];
  }))));
}

function drawKeys() {
  const rows = (names) => el("table", {}, el("tbody", {}, ...names.map((name) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, show.any(run.configs[name]))))));
  const [yours, others] = [true, false].map((is) => Object.keys(run.configs).filter((name) => run.explicit.includes(name) === is));
  const open = shownKeys.querySelector("details")?.open ?? false;
  shownKeys.replaceChildren(rows(yours), el("details", { open }, el("summary", {}, `${others.length} keys of the preset`), rows(others)));
}

// Knobs: only those that were changed here are sent, since others may have been set elsewhere.
const shownKnob = (value) => (value == null ? "as scheduled" : String(value));
const factor = el("input", { name: "learning_rate_factor", type: "number", step: "any", min: 0.01, max: 10 });
const rate = el("select", { name: "masking_prob" });
const knobState = el("p", { className: "quiet" });
const knobError = el("p", { className: "error", role: "alert" });
const changed = new Set();
const form = el("form", { id: "knobs", noValidate: true }, ...[factor, rate].map((field) => el("label", {}, `${field.name} `, field)), el("button", {}, "Set"));
form.oninput = (event) => changed.add(event.target);
form.onsubmit = async (event) => {
  event.preventDefault();
  try {
    await ask(`runs/${uuid}/knobs`, "PUT", Object.fromEntries([...changed].map((field) => [field.name, field.value])));
    changed.clear();
    knobError.textContent = "";
  } catch (error) {
    knobError.textContent = error.message;
  }
};
const knobs = card("Knobs", form, knobState, knobError);

function drawKnobs() {
  const { current, requested, rates } = run.knobs;
  knobs.hidden = run.state !== "in progress";
  if (!rate.length) rate.append(...[null, ...rates].map((value) => el("option", { value: value ?? "none" }, shownKnob(value))));
  for (const field of [factor, rate]) if (!changed.has(field)) field.value = requested[field.name] ?? "none";
  knobState.textContent = Object.keys(current).map((name) => `${name} ${shownKnob(current[name])}` +
    (current[name] === requested[name] ? "" : ` (requested: ${shownKnob(requested[name])})`)).join(", ");
}

function draw(found) {
  if (found.error) return location.replace(`/run/${uuid}?labml`); // a run of a plain labml client
  run = found;
  const isNew = Object.entries(run.pieces).filter(([name, piece]) => {
    files[name] = { to: piece.to, text: (piece.from === files[name].to ? files[name].text : "") + piece.text };
    return piece.text;
  });
  title.replaceChildren(nameOf(run), " ", stateOf(run));
  note.textContent = `${run.name} · ${run.uuid} · ${run.is_here ? run.folder : `${run.folder} is not on this machine: labml's page has the curves`}`;
  drawKeys();
  drawKnobs();
  if (!isNew.length && figures.children.length) return;
  drawCharts();
  readSamples();
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.textContent = files["log.txt"].text.replace(/\x1b\[[0-9;]*m/g, "").split("\n").slice(-LOG_LINES).join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

const axes = choice("against", "x", Object.fromEntries(Object.entries(AXES).map(([name, { title: text }]) => [name, text])), drawCharts);
const controls = el("div", { className: "controls" }, axes, toggle("log axis", "xlog", drawCharts), toggle("log loss", "ylog", drawCharts),
  el("a", { href: `/compare?run=${uuid.slice(0, 12)}` }, "Compare"), el("a", { href: `/try?run=${uuid.slice(0, 12)}` }, "Try"));
const legend = el("p", { className: "quiet" }, el("b", { className: "right" }, "right"), ", ", el("b", { className: "wrong" }, "wrong"), ", ", el("s", {}, "the truth"));
frame("Run", `/run/${uuid}`, title, note, figures, knobs, controls,
  el("div", { className: "wide" }, el("section", { className: "card" }, loss),     el("div", {}, card("Samples", el("label", { className: "slider" }, when, slider), sample, legend), card("Keys, yours first", shownKeys))),
  charts, card("Log", log));
live(() => `runs/${uuid}?${new URLSearchParams(Object.entries(files).map(([name, { to }]) => [name, to]))}`, draw);
