// One run: its figures, curves, samples, keys, knobs and log, read from its folder while it trains.
import { chart } from "./chart.js";
import {
  AXES, ask, axisOf, card, choice, controls, el, frame, isCharacters, live, nameOf, row, seen, show, stateOf, toggle,
} from "./page.js";

const uuid = location.pathname.split("/")[2];
const LOSSES = ["loss.train", "loss.valid", "loss.valid_stderr", "floor.valid"];
const LARGE = new Set([...Object.keys(AXES), "wall_seconds", ...LOSSES]); // columns without a small chart
const SHARES = new Set(["accuracy.valid", "accuracy.train", "masking_prob"]);
const LIMITS = { step: "training.max_steps", chars: "training.max_chars", seconds: "training.max_seconds" };
const USAGE = { // charts of the hardware: columns and what they are called
  CPU: { cpu: "all", cpu_of_run: "this run" },
  Memory: { memory: "all", memory_of_run: "this run" },
  GPU: { gpu: "compute", gpu_memory: "memory" },
};
const FIRST = ["accuracy.valid", "excess", "learning_rate", "grad_norm"]; // of the small charts
const LOG_LINES = 500;
const FILES = ["metrics.jsonl", "hardware.jsonl", "log.txt"];
const files = Object.fromEntries(FILES.map((name) => [name, { to: 0, text: "" }]));
let run = null;

const title = el("h1");
const figures = el("dl.figures");
const loss = chart("Loss", 460);
const charts = el("div.small");
const smalls = {};
const [yours, others, nOthers] = [el("tbody"), el("tbody"), el("summary")]; // keys
const log = el("pre", { tabIndex: 0 });
const [note, kept] = [el("p.quiet"), el("p.quiet")];

function smallChart(name, content) {
  const style = `order: ${name in USAGE ? 2 : +!FIRST.includes(name)}`; // the hardware comes last
  if (!(name in smalls)) charts.append(el("section.card", { style }, (smalls[name] = chart(name, 180))));
  smalls[name].draw(content);
}

const json = (name) => files[name].text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
const color = (i) => `var(--c${i})`;

// Where stages begin on an axis: by the progress of the rows around it.
function stagesOf(rows, axis) {
  const { configs } = run;
  const spent = (row) => ([name, key]) => (configs[key] ? row[name] / configs[key] : 0);
  const progress = (row) => d3.max(Object.entries(LIMITS), spent(row));
  const known = [{ x: 0, progress: 0 }, ...rows.map((row) => ({ x: row[axis], progress: progress(row) }))];
  const at = d3.scaleLinear(known.map((row) => row.progress), known.map((row) => row.x)).clamp(true);
  let from = 0;
  return (configs["training.stages"] ?? []).map((stage) => {
    const rates = [stage.masking_prob ?? configs["masking.masking_prob"]].flat();
    const masked = rates.map((rate) => `${+(100 * rate).toFixed(1)}%`).join("/");
    const texts = [`${stage.seq_len} long, ${masked} masked`, `${stage.seq_len}, ${masked}`, `${stage.seq_len}`, ""];
    const begin = { from, x: at(from), texts };
    from = stage.until;
    return begin;
  }).filter((stage) => stage.from <= known[known.length - 1].progress && known.length > 1);
}

function drawCharts() {
  if (!run) return;
  const rows = json("metrics.jsonl");
  const axis = axes.x.value;
  const x = { ...axisOf(axis, [run]), isLog: axes.xlog.checked };
  const points = (name) => rows.map((each) => [each[axis], each[name]]);
  const withError = ({ [axis]: at, "loss.valid": value, "loss.valid_stderr": error }) =>
    [at, value, value - error, value + error];
  const unit = isCharacters(run) ? "character" : "token";
  loss.draw({
    x,
    y: { title: `nats per masked ${unit}`, format: show.loss, isLog: axes.ylog.checked },
    series: [
      { name: "train", color: color(1), points: points("loss.train") },
      { name: "valid", color: color(0), points: rows.map(withError) },
      { name: "planned", color: color(2), dash: "7 3", points: plannedOf(rows, axis) },
    ],
    references: Object.entries(run.references).map(([name, y]) => ({ name, y })),
    stages: stagesOf(rows, axis),
    hasLabels: true,
  });
  const names = new Set([...FIRST, ...rows.flatMap((row) => Object.keys(row))].filter((name) => !LARGE.has(name)));
  for (const name of names) {
    if (new Set(rows.map((row) => row[name]).filter(Number.isFinite)).size < 2) continue; // constant
    const y = { format: SHARES.has(name) ? show.share : show.number };
    smallChart(name, { x, y, series: [{ name, color: color(0), points: points(name) }] });
  }
  const usage = json("hardware.jsonl");
  const time = { title: "seconds since the start", format: show.number };
  for (const [kind, columns] of Object.entries(USAGE)) {
    const used = Object.entries(columns).filter(([column]) => usage.some((row) => column in row));
    const ofTime = (column) => usage.map((row) => [row.time - run.began, row[column]]);
    const series = used.map(([column, name], i) => ({ name, color: color(i), points: ofTime(column) }));
    const y = { title: "% used", format: show.count, top: 100 };
    if (used.length) smallChart(kind, { x: time, y, series, hasLabels: true });
  }
  drawFigures(rows[rows.length - 1]);
}

// The losses that a plan expects and their intervals, as far as the run has come.
function plannedOf(rows, axis) {
  const known = [{ chars: 0, [axis]: 0 }, ...rows];
  const at = d3.scaleLinear(known.map((row) => row.chars), known.map((row) => row[axis]));
  const shown = (run.planned ?? []).filter((row) => row.chars <= 1.01 * known[known.length - 1].chars);
  return shown.map(({ chars, low, loss: middle, high }) => [at(chars), middle, low, high]);
}

function drawFigures(row) {
  const over = run.references.counting && row && row["loss.valid"] - run.references.counting;
  const gap = row && (row.excess != null ? ["excess over the floor", show.loss(row.excess)] : over
    ? [over > 0 ? "above counting" : "below counting", show.loss(Math.abs(over))] : null);
  const found = row ? [
    ["loss.valid", show.loss(row["loss.valid"]), ` ± ${show.loss(row["loss.valid_stderr"])}`],
    ["correct", show.share(row["accuracy.valid"])],
    gap,
    ["of training", show.seconds(row.seconds)],
    [`${isCharacters(run) ? "characters" : "tokens"} per second`, show.count(row.chars_per_second)],
  ] : [];
  figures.replaceChildren(...found.filter(Boolean).map(([name, value, more = ""]) =>
    el("div", el("dt", name), el("dd", value, el("small", more)))));
}

// Samples: the colored lines of the log, by evaluation.
const slider = el("input", { type: "range", min: 0, id: "evaluation", ariaLabel: "Evaluation", oninput: drawSample });
const sample = el("div.sample", { tabIndex: 0, role: "region", ariaLabel: "Sample" });
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
  when.textContent = step ? `after step ${step}` : "No samples.";
  slider.ariaValueText = when.textContent;
  sample.replaceChildren(...lines.map(({ line }) => el("p", ...line.split("\x1b[0m").flatMap((part) => {
    const [, plain, code, marked] = /^(.*?)(?:\x1b\[3(\d)m\[(.*)\])?$/s.exec(part);
    const [, guess, truth] = (code === "1" && /^(.+?)!(.+)$/s.exec(marked)) || []; // 1: red
    if (!marked) return [plain];
    if (!guess) return [plain, el("b.right", seen(marked))];
    return [plain, el("b.wrong", seen(guess)), el("s", seen(truth))];
  }))));
}

function drawKeys() {
  const rows = (isYours) => Object.entries(run.configs).filter(([name]) => run.explicit.includes(name) === isYours)
    .map(([name, value]) => row(name, show.any(value)));
  yours.replaceChildren(...rows(true));
  others.replaceChildren(...rows(false));
  nOthers.textContent = `${others.rows.length} other keys`;
}

// Knobs. Updates change only a field's default value, so a value that was typed here stays until it is sent.
const shownKnob = (value) => (value == null ? "as scheduled" : String(value));
const factor = el("input", { name: "learning_rate_factor", inputMode: "decimal" });
const rate = el("input", { name: "masking_prob", inputMode: "decimal", placeholder: "as scheduled" });
const knobState = el("p.quiet");
const knobError = el("p.error", { role: "alert" });
const fields = [factor, rate].map((field) => el("label", `${field.name} `, field));
const form = el("form", { id: "knobs" }, ...fields, el("button", "Set"));
form.onsubmit = async (event) => {
  event.preventDefault();
  try {
    const values = Object.fromEntries(new FormData(form));
    values.masking_prob ||= "none";
    setKnobs((await ask(`runs/${uuid}/knobs`, "PUT", values)).knobs);
    form.reset();
    knobError.textContent = "";
  } catch (error) {
    knobError.textContent = error.message;
  }
};
const knobs = card("Knobs", form, knobState, knobError);

function setKnobs(requested) {
  factor.defaultValue = requested.learning_rate_factor;
  rate.defaultValue = requested.masking_prob ?? "";
}

function drawKnobs() {
  const { current, requested } = run.knobs;
  knobs.hidden = run.state !== "in progress";
  setKnobs(requested);
  knobState.textContent = Object.keys(current).map((name) => `${name} ${shownKnob(current[name])}` +
    (current[name] === requested[name] ? "" : ` (requested: ${shownKnob(requested[name])})`)).join(", ");
}

function draw(found) {
  const isResumed = run && run.started !== found.started; // its files were cut: they are read anew
  run = found;
  if (isResumed) return FILES.forEach((name) => (files[name] = { to: 0, text: "" }));
  let isGrown = false;
  for (const [name, { from, to, text }] of Object.entries(run.pieces)) {
    files[name] = { to, text: (from === files[name].to ? files[name].text : "") + text };
    isGrown ||= text !== "";
  }
  title.replaceChildren(nameOf(run), " ", stateOf(run));
  const missing = run.is_here ? "" : " is not on this machine: labml's page has the curves";
  note.textContent = `${run.name} · ${run.uuid} · ${run.folder}${missing}`;
  const names = run.kept.map((name) => `${run.uuid.slice(0, 12)}@${name}`);
  kept.textContent = names.length ? `Kept checkpoints: ${names.join(", ")}` : "";
  drawKeys();
  drawKnobs();
  if (!isGrown && figures.children.length) return;
  drawCharts();
  readSamples();
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.textContent = files["log.txt"].text.replace(/\x1b\[[0-9;]*m/g, "").split("\n").slice(-LOG_LINES).join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

const links = ["Compare", "Try"].map((name) =>
  el("a", { href: `/${name.toLowerCase()}?run=${uuid.slice(0, 12)}` }, name));
const axes = controls(drawCharts, choice("against", "x", AXES), toggle("log axis", "xlog"), toggle("log loss", "ylog"),
  ...links);
const legend = el("p.quiet", el("b.right", "right"), ", ", el("b.wrong", "wrong"), ", ", el("s", "the truth"));
const shownKeys = card("Keys, yours first", el("table", yours), el("details", nOthers, el("table", others)));
const side = el("div", card("Samples", el("label.slider", when, slider), sample, legend), shownKeys);
document.getElementById("labml").href = "?labml";
const wide = el("div.wide", el("section.card", loss), side);
frame("Run", title, note, kept, figures, knobs, axes, wide, charts, card("Log", log));
const starts = () => new URLSearchParams(Object.entries(files).map(([name, { to }]) => [name, to]));
live(() => `runs/${uuid}?${starts()}`, draw);
