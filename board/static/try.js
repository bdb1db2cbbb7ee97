// A text whose characters are hidden by a click, and what a run says of each blank.
import { ask, button, card, choice, el, frame, keep, liveRuns, nameOf, show, view } from "./page.js";

const EXAMPLES = { play: "Ne daz rants iv Insk darku, sin na gald varpi se rards.", other: "To be, or not to be, that is the question." };
const SHARE = 0.15; // of the characters that are hidden at random
const MOST_CARDS = 48;
const PAUSE = { step: 200, exact: 600 }; // milliseconds
let [runs, run, truth, value] = [[], null, [], []]; // value: the characters; null where one is hidden
let [reply, exact, current, filled] = [null, null, 0, new Set()];
let [isBusy, isDirty, isFilling, timer] = [false, false, false, 0];

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const picker = el("select", { id: "run", onchange: () => (keep("run", picker.value.slice(0, 12)), start()) });
const input = el("textarea", { id: "text", rows: 3, oninput: () => load(input.value) });
const sheet = el("div", { className: "sheet", role: "group", ariaLabel: "Text: a click or the space bar hides a character, arrow keys move" });
const status = el("p", { className: "quiet", role: "status" });
const error = el("p", { className: "error", role: "alert" });
const bars = el("div", { className: "bars" });
const shades = el("input", { type: "checkbox", onchange: update });
const draws = el("input", { type: "checkbox" });
const orders = { certain: "most certain first", left: "from the left", right: "from the right", random: "in random order" };

function load(text) {
  truth = [...text].map((character) => (character === "_" ? null : character));
  value = [...truth];
  current = Math.min(current, Math.max(0, truth.length - 1));
  reset(() => {});
}

function reset(change) {
  isFilling = false;
  filled = new Set();
  value = [...truth];
  change();
  if (!reply) draw(); // while the model loads
  update();
}

const hideShare = () => reset(() => d3.shuffle(d3.range(truth.length)).slice(0, Math.ceil(SHARE * truth.length)).forEach((i) => (value[i] = null)));

// Where blanks are in the text: one per character, or with other tokens one per row of hidden characters.
const isCharacters = () => run.tokens === "characters";
const isStart = (i) => value[i] === null && (isCharacters() || value[i - 1] !== null || i === 0);
const template = () => value.map((character, i) => (character === null ? (isStart(i) ? "_" : "") : character.replace(/[_[\\]/, "\\$&"))).join("");
const blanks = () => reply.offsets.map((offset, k) => ({
  at: isCharacters() ? offset : d3.range(value.length).filter(isStart)[k], candidates: reply.candidates[k], exact: exact?.candidates[k],
}));

// Asks for the text as it is now. Changes meanwhile are asked for together afterwards.
async function update() {
  isDirty = true;
  if (isBusy || !run) return;
  isBusy = true;
  clearTimeout(timer);
  while (isDirty) {
    isDirty = false;
    exact = null;
    try {
      const began = performance.now();
      reply = await ask(`try/${run.uuid}`, "POST", { text: template(), attention: shades.checked && value.length ? current : null });
      status.textContent = `${reply.offsets.length} blank${reply.offsets.length === 1 ? "" : "s"}, answered in ${Math.round(performance.now() - began)} ms`;
      error.textContent = "";
    } catch (problem) {
      [reply, error.textContent] = [null, problem.message];
    }
    if (!isDirty) draw();
  }
  isBusy = false;
  if (reply?.is_of_play && reply.offsets.length && !isFilling) timer = setTimeout(askExact, PAUSE.exact);
}

async function askExact() {
  const text = template();
  try {
    const found = await ask(`try/${run.uuid}`, "POST", { text, exact: true, top: 64 });
    if (text !== template()) return;
    exact = found;
  } catch (problem) {
    status.textContent += `; ${problem.message}`;
  }
  draw();
}

function toggle(i) {
  current = i;
  value[i] = value[i] === null ? truth[i] : null; // what was typed as _ stays a blank
  filled.delete(i);
  update();
}

function draw() {
  const best = new Map((reply ? blanks() : []).map(({ at, candidates }) => [at, candidates[0]]));
  const shares = reply?.attention ?? [];
  const most = d3.max(shares);
  const hadFocus = sheet.contains(document.activeElement);
  sheet.replaceChildren(...value.map((character, i) => {
    const guess = best.get(i);
    const kind = character === null ? "blank" : guess ? "unknown" : filled.has(i) ? (truth[i] === null ? "filled" : truth[i] === character ? "right" : "wrong") : "";
    const text = (character ?? guess?.[0] ?? "_").replace(/\n/g, "↵");
    const said = character === null ? `hidden ${truth[i] ?? ""}, best guess ${guess?.[0] ?? "none"}` : { " ": "space", "\n": "line break" }[character] ?? character;
    const key = button(text, () => toggle(i), { className: kind, tabIndex: i === current ? 0 : -1, ariaLabel: said, ariaPressed: character === null });
    if (shares.length) key.style.background = i === current ? "" : `rgba(var(--shade), ${(0.8 * shares[i]) / most})`;
    return key;
  }));
  if (hadFocus) sheet.children[current]?.focus();
  const found = reply ? blanks() : [];
  bars.replaceChildren(...found.slice(0, MOST_CARDS).map(cardOf));
  if (found.length > MOST_CARDS) bars.append(el("p", { className: "quiet" }, `and ${found.length - MOST_CARDS} more`));
  if (!found.length) bars.append(el("p", { className: "quiet" }, "Hide a character above to see what the model expects there."));
}

function cardOf({ at, candidates, exact: known }) {
  const exactly = new Map(known ?? []);
  const listed = [...candidates, ...(known ?? []).slice(0, 3).filter(([token]) => !candidates.some(([other]) => other === token)).map(([token]) => [token, 0])];
  const bar = (name, share) => el("i", { className: name, style: `width:${100 * share}%` });
  const rows = listed.slice(0, 8).map(([token, share]) => el("tr", { className: token === truth[at] ? "truth" : "" },
    el("th", { scope: "row" }, token.replace(/\n/g, "↵").replace(/ /g, "␣")), el("td", {}, bar("model", share), known ? bar("exact", exactly.get(token) ?? 0) : null),
    el("td", { className: "number" }, show.share(share), known ? el("small", {}, ` ${show.share(exactly.get(token) ?? 0)}`) : null)));
  return el("div", {}, el("h3", {}, `character ${at + 1}${truth[at] == null ? "" : `, hidden: ${truth[at].replace(/\n/g, "↵").replace(/ /g, "␣")}`}`), el("table", {}, el("tbody", {}, ...rows)));
}

function put({ at, candidates }) {
  let rest = draws.checked ? Math.random() * d3.sum(candidates, ([, share]) => share) : 0;
  const [token] = candidates.find(([, share]) => (rest -= share) <= 0) ?? candidates[0];
  if (isCharacters()) [value[at], filled] = [token, filled.add(at)];
  else for (let i = at; value[i] === null; i++) [value[i], filled] = [i === at ? token : "", filled.add(i)];
}

async function fill(isAtOnce) {
  isFilling = true;
  const order = document.getElementById("order").value;
  const rank = { certain: ({ candidates }) => candidates[0][1], left: ({ at }) => -at, right: ({ at }) => at, random: Math.random }[order];
  while (isFilling && reply) {
    const open = blanks().filter(({ at }) => value[at] === null);
    if (!open.length) break;
    (isAtOnce ? open : [d3.greatest(open, rank)]).forEach(put);
    await update();
    await pause(PAUSE.step);
  }
  isFilling = false;
}

sheet.onkeydown = (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!step) return;
  event.preventDefault();
  current = Math.max(0, Math.min(current + step, value.length - 1));
  [...sheet.children].forEach((key, i) => (key.tabIndex = i === current ? 0 : -1));
  sheet.children[current].focus();
  if (shades.checked) update();
};

function start() {
  run = runs.find(({ uuid }) => uuid === picker.value);
  const example = EXAMPLES[run.text] ?? EXAMPLES.other;
  if (!input.value || Object.values(EXAMPLES).includes(input.value)) input.value = example;
  status.textContent = "The model is loading.";
  load(input.value);
  if (input.value === example) hideShare();
}

const check = (box, text) => el("label", {}, box, ` ${text}`);
frame("Try", "/runs", el("h1", {}, "Try a run"),
  el("div", { className: "controls" }, el("label", {}, "Run ", picker), status), error,
  card("Text", el("label", {}, "Type or paste; _ is a blank", input), sheet,
    el("div", { className: "controls" }, button(`Hide ${show.share(SHARE).replace(".0", "")}`, hideShare), button("Hide all", () => reset(() => value.fill(null))), button("Show all", () => reset(() => {})),
      check(shades, "attention of the selected character")),
    el("div", { className: "controls" }, button("Fill all at once", () => fill(true)), button("Fill one by one", () => fill(false)), choice("order", "order", orders, () => {}),
      check(draws, "draw at random"), button("Stop", () => (isFilling = false)))),
  card("Blanks: the model's probabilities, and on the play the exact ones", bars));
liveRuns((found) => {
  runs = found.filter((each) => !each.hidden && each.last.step != null);
  picker.replaceChildren(...runs.map(({ uuid, ...each }) => el("option", { value: uuid }, `${nameOf(each)} · ${each.text} · ${uuid.slice(0, 6)}`)));
  const wanted = run?.uuid ?? view.get("run");
  picker.value = (runs.find(({ uuid }) => wanted && uuid.startsWith(wanted)) ?? runs[0])?.uuid ?? "";
  if (!runs.length) status.textContent = "No run has been evaluated yet.";
  else if (run?.uuid !== picker.value) start();
});
