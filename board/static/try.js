// A text whose characters are hidden by a click, and what a run says of each blank.
import { ABSENT, ask, liveRuns, site } from "./models.js";
import {
  SECOND, button, card, choice, controls, el, fill, frame, idOf, isCharacters, keep, nameOf, pause, seen, show, toggle,
  view,
} from "./page.js";

const EXAMPLES = {
  play: "Ne daz rants iv Insk darku, sin na gald varpi se rards.",
  other: "To be, or not to be, that is the question.",
};
const BLANK = "\ue000"; // a character for private use
const SHARE = 0.15; // of the characters that "Hide 15%" hides
const [MOST_CARDS, MOST_ROWS, SMALLEST] = [48, 8, 0.003]; // blanks, tokens of each, and their probability
const PAUSE = { step: 200, exact: 600 }; // milliseconds
let [run, truth, value] = [null, [], []]; // value: the characters; null where one is hidden
let [reply, exact, current] = [null, null, 0];
let [answering, isDirty, writer, timer] = [null, false, null, 0]; // writer: the loop that fills blanks

const filled = new Set(); // positions that the model has filled
const picker = el("select", { id: "run" });
const input = el("textarea", { id: "text", rows: 3, autocomplete: "off", oninput: () => load(input.value) });
const sheet = el("div.sheet", { role: "group", ariaLabel: "Text: the space bar hides a character, arrow keys move" });
const status = el("p.quiet", { role: "status" });
const error = el("p.error", { role: "alert" });
const bars = el("div.bars");
const ORDERS = { // of blanks: the one with the greatest value is filled first
  certain: { title: "most certain first", value: ({ candidates }) => candidates[0][1] },
  left: { title: "from the left", value: ({ at }) => -at },
  right: { title: "from the right", value: ({ at }) => at },
  random: { title: "in random order", value: Math.random },
};

function load(text) {
  truth = [...text].map((character) => (character === "_" ? null : character));
  current = Math.min(current, Math.max(0, truth.length - 1));
  hide([]);
}

function hide(positions) {
  writer = null;
  filled.clear();
  value = [...truth];
  for (const i of positions) value[i] = null;
  if (!reply) draw(); // while the model loads
  update();
}

const everywhere = () => d3.range(truth.length);
const hideShare = () => hide(d3.shuffle(everywhere()).slice(0, Math.ceil(SHARE * truth.length)));

// Where blanks are in the text: one per character, or with subwords one per row of hidden characters.
const isJoined = (i) => !["characters", "bytes"].includes(run.tokens) && value[i - 1] === null;
const isStart = (i) => value[i] === null && !isJoined(i);
const template = () => value.map((each, i) => (isStart(i) ? BLANK : each ?? "")).join("");

function blanks() {
  const starts = isCharacters(run) ? reply.offsets : d3.range(value.length).filter(isStart);
  return starts.map((at, k) => ({ at, candidates: reply.candidates[k], exact: exact?.candidates[k] }));
}

// Asks for the text as it is now. Changes meanwhile are asked for together afterwards.
function update() {
  isDirty = true;
  if (run) answering ??= answer().finally(() => (answering = null));
  return answering;
}

async function answer() {
  clearTimeout(timer);
  while (isDirty) {
    [isDirty, exact] = [false, null];
    try {
      await site.ready?.();
      const began = performance.now();
      const attention = view.has("attention") && value.length ? current : null;
      reply = await ask(`try/${run.uuid}`, "POST", { text: template(), attention, blank: BLANK });
      const [n, took] = [reply.offsets.length, Math.round(performance.now() - began)];
      status.textContent = `${n} blank${n === 1 ? "" : "s"}, answered in ${took} ms`;
      error.textContent = "";
    } catch (problem) {
      [reply, status.textContent, error.textContent] = [null, "", problem.message];
    }
    if (!isDirty) draw();
  }
  if (error.textContent === ABSENT) timer = setTimeout(update, SECOND);
  else if (reply?.is_of_play && reply.offsets.length && !writer) timer = setTimeout(askExact, PAUSE.exact);
}

async function askExact() {
  const [asked, text] = [run, template()];
  const isStale = () => run !== asked || text !== template();
  try {
    const found = await ask(`try/${asked.uuid}`, "POST", { text, exact: true, top: 64, blank: BLANK });
    if (isStale()) return;
    exact = found;
  } catch (problem) {
    if (isStale()) return;
    status.textContent += `; ${problem.message}`;
  }
  draw();
}

function click(i) {
  current = i;
  value[i] = value[i] === null ? truth[i] : null; // what was typed as _ stays a blank
  filled.delete(i);
  update();
}

function draw() {
  const found = reply ? blanks() : [];
  const guesses = new Map(found.map(({ at, candidates }) => [at, candidates[0][0]]));
  const shares = reply?.attention ?? [];
  const most = d3.max(shares);
  fill(sheet, ...value.map((character, i) => {
    const guess = guesses.get(i);
    const judged = truth[i] === null ? "filled" : truth[i] === character ? "right" : "wrong";
    const className = character === null || guess ? "blank" : filled.has(i) ? judged : "";
    const text = (guess ?? character ?? "_").replace(/\n/g, "↵"); // unknown characters are blanks too
    const name = { " ": "space", "\n": "line break" }[character] ?? character;
    const ariaLabel = (guess === undefined ? name : null) ?? `hidden ${truth[i] ?? ""}, best guess ${guess ?? "none"}`;
    const shade = shares.length && i !== current ? `background: rgba(var(--shade), ${(0.45 * shares[i]) / most})` : "";
    const tabIndex = i === current ? 0 : -1;
    return button(text, () => click(i), { id: `at${i}`, className, style: shade, tabIndex, ariaLabel,
      ariaPressed: character === null });
  }));
  bars.replaceChildren(...found.slice(0, MOST_CARDS).map(cardOf));
  if (found.length > MOST_CARDS) bars.append(el("p.quiet", `and ${found.length - MOST_CARDS} more`));
  if (!found.length) bars.append(el("p.quiet", "Hide a character to see what the model expects there."));
}

function cardOf({ at, candidates, exact: known = [] }) {
  const shares = [candidates, known].map((pairs) => // of the model, and exact; parts of characters look alike
    d3.rollup(pairs, (same) => d3.sum(same, ([, share]) => share), ([token]) => token));
  const of = (token) => shares.map((each) => each.get(token) ?? 0);
  const tokens = d3.sort(new Set([...candidates, ...known].map(([token]) => token)), (token) => -d3.max(of(token)));
  const shown = tokens.filter((token, i) => i < MOST_ROWS && (i < 1 || d3.max(of(token)) >= SMALLEST));
  const bar = (kind, share) => el(`i.${kind}`, { style: `width:${100 * share}%` });
  const rows = shown.map((token) => {
    const [ours, exactly] = of(token);
    const cells = known.length ? [bar("exact", exactly), el("small", ` ${show.share(exactly)}`)] : [];
    return el(token === truth[at] ? "tr.truth" : "tr", el("th", { scope: "row" }, seen(token)),
      el("td", bar("model", ours), cells[0]), el("td.number", ours ? show.share(ours) : "–", cells[1]));
  });
  const hidden = truth[at] == null ? "" : `, hidden: ${seen(truth[at])}`;
  return el("div", el("h3", `character ${at + 1}${hidden}`), el("table", el("tbody", ...rows)));
}

function put({ at, candidates }) {
  let rest = view.has("draw") ? Math.random() * d3.sum(candidates, ([, share]) => share) : 0;
  const [token] = candidates.find(([, share]) => (rest -= share) <= 0) ?? candidates[0];
  let end = at + 1;
  while (end < value.length && value[end] === null && isJoined(end)) end += 1;
  value.fill("", at, end); // a subword fills a row of hidden characters
  value[at] = token;
  d3.range(at, end).forEach((i) => filled.add(i));
}

async function write(isAtOnce) {
  const own = (writer = {}); // an earlier loop ends
  await answering; // else the reply may be to an earlier text
  while (writer === own && reply) {
    const open = blanks().filter(({ at }) => value[at] === null);
    if (!open.length) break;
    (isAtOnce ? open : [d3.greatest(open, ORDERS[filling.order.value].value)]).forEach(put);
    await Promise.all([update(), pause(PAUSE.step)]);
  }
  if (writer === own) writer = null;
}

sheet.onkeydown = (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!step) return;
  event.preventDefault();
  current = Math.max(0, Math.min(current + step, value.length - 1));
  [...sheet.children].forEach((key, i) => (key.tabIndex = i === current ? 0 : -1));
  sheet.children[current].focus();
  if (view.has("attention")) update();
};

function start(chosen) {
  run = chosen;
  const [before, example] = [input.value, site.example || (EXAMPLES[run.text] ?? EXAMPLES.other)];
  const hidden = everywhere().filter((i) => value[i] === null || filled.has(i)); // also of the next run
  if (!before || Object.values(EXAMPLES).includes(before)) input.value = example;
  [reply, status.textContent, error.textContent] = [null, "The model is loading.", ""];
  load(input.value);
  input.value === before ? hide(hidden) : hideShare();
}

// The runs to choose from. The first is the one in the address, or else the newest.
function offer(all) {
  const runs = all.filter((each) => !each.hidden && each.last.step != null);
  const option = (each) => el("option", { value: each.uuid }, `${idOf(each)} · ${nameOf(each)} · ${each.text}`);
  picker.replaceChildren(...runs.map(option));
  const wanted = run?.uuid ?? view.get("run") ?? runs[0]?.uuid;
  const found = runs.filter(({ uuid }) => wanted && uuid.startsWith(wanted));
  picker.value = found.length === 1 ? found[0].uuid : "";
  picker.onchange = () => {
    keep("run", picker.value.slice(0, 12));
    start(runs.find(({ uuid }) => uuid === picker.value));
  };
  if (!runs.length) status.textContent = "No run has been evaluated yet.";
  else if (found.length !== 1)
    error.textContent = `${found.length || "No"} evaluated runs begin with ${wanted}: choose one.`;
  else if (run?.uuid !== found[0].uuid) start(found[0]);
}

const hiding = controls(update, button("Hide 15%", hideShare), button("Hide all", () => hide(everywhere())),
  button("Show all", () => hide([])),
  site.hasAttention ? toggle("attention of the selected character", "attention") : null);
const filling = controls(() => {}, button("Fill all at once", () => write(true)),
  button("Fill one by one", () => write(false)), choice("order", "order", ORDERS), toggle("draw at random", "draw"),
  button("Stop", () => (writer = null)));
const exactly = site.exact ? [el("i.exact"), site.exact] : [];
const legend = el("p.legend", el("i.model"), "the model", ...exactly);
const choosing = site.about ?? el("label", "Run ", picker);
frame("Try", el("h1", site.title), el("div.controls", choosing, status), error,
  card("Text", el("label", "Type or paste; _ is a blank", input), sheet, hiding, filling),
  card("Probabilities of each blank", legend, bars));
liveRuns(offer);
