// Helpers of all pages. Data reaches the document as text only, never as HTML.
export const SECOND = 1000; // in milliseconds
export const view = new URLSearchParams(location.search); // what is shown, so that an address shows it again
export const LINE_COLORS = 7; // --c0 to --c6 in folio.css

// An element: el("p.quiet", { id: "note" }, "text", child). The properties may be left out.
export function el(tag, ...children) {
  const [name, ...classes] = tag.split(".");
  const properties = children[0]?.constructor === Object ? children.shift() : {};
  const element = Object.assign(document.createElement(name), { className: classes.join(" ") }, properties);
  element.append(...children.filter((child) => child != null));
  return element;
}

// Replaces the children of an element. The focus goes from an element to the new one with the same id.
export function fill(parent, ...children) {
  const { id } = document.activeElement;
  parent.replaceChildren(...children);
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}

const orNothing = (format) => (value) => (value == null ? "" : format(value));
export const show = {
  loss: orNothing((value) => value.toFixed(3)),
  share: orNothing((value) => `${(100 * value).toFixed(1)}%`),
  count: orNothing((value) => d3.format(Math.abs(value) >= 1e6 ? ".3~s" : ",.0f")(value)),
  seconds: orNothing((value) => (value < 600 ? `${Math.round(value)} s` : value < 7200
    ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`)),
  number: (value) => (Math.abs(value) >= 1e4 ? show.count(value) : String(+value.toPrecision(4))),
  any: (value) => (typeof value === "string" ? value // others as on the command line
    : JSON.stringify(value).replaceAll('"', "").replace(/[,:]/g, "$& ")),
};
export const AXES = { // of time: the column, and its format
  seconds: { title: "seconds of training", format: show.number },
  step: { title: "steps", format: show.count },
  chars: { title: "characters", format: show.count },
};

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
export const isCharacters = (run) => run.tokens === "characters";
export const axisOf = (name, runs) => ({ // a character is a token too
  ...AXES[name], ...(name === "chars" && !runs.every(isCharacters) && { title: "tokens" }),
});
export const linkTo = (run, text) => el("a", { id: `open-${run.uuid}`, href: `/run/${run.uuid}` }, text);

export const ABSENT = "the dashboard does not answer";

export async function ask(path, method = "GET", message = undefined) {
  const sent = fetch(`/api/folio/${path}`, { method, body: message && JSON.stringify(message) });
  const response = await sent.catch(() => { throw new Error(ABSENT); });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

// Calls `draw` with what `path()` has, now and whenever it changes. A hidden tab asks nothing.
export async function live(path, draw) {
  const absent = el("p", { id: "absent", role: "status" });
  for (let last = ""; ; await pause(SECOND)) {
    try {
      if (document.hidden) continue;
      const found = await ask(path());
      const text = JSON.stringify(found);
      if (text !== last) draw(found);
      last = text;
      absent.remove();
    } catch (error) {
      console.error(error);
      absent.textContent = `This page may be old: ${error.message}.`;
      document.body.append(absent);
    }
  }
}

export function liveRuns(draw) {
  let known = "";
  return live(() => `runs?known=${known}`, ({ revision, runs }) => {
    known = revision;
    if (runs) draw(d3.sort(runs, (run) => -run.began));
  });
}

// Controls: a form whose fields are part of the address.

export function keep(name, value) {
  value ? view.set(name, value) : view.delete(name);
  history.replaceState(null, "", `${location.pathname}?${view}`);
}

export function controls(redraw, ...content) {
  const form = el("form.controls", { onsubmit: () => false }, ...content);
  form.oninput = ({ target: { name, type, checked, value } }) => {
    if (name) keep(name, type === "checkbox" ? checked && "1" : value);
    redraw();
  };
  return form;
}

export function choice(label, name, options) {
  const option = ([value, { title }]) => el("option", { value, selected: value === view.get(name) }, title ?? value);
  return el("label", `${label} `, el("select", { name, id: name }, ...Object.entries(options).map(option)));
}

export const toggle = (label, name) =>
  el("label", el("input", { type: "checkbox", name, id: name, checked: view.has(name) }), ` ${label}`);

export const button = (text, onclick, properties) => el("button", { type: "button", onclick, ...properties }, text);

// A filter of runs, and whether it accepts one: all of its words are found.
export const runFilter = () => el("label", "Filter ", el("input",
  { type: "search", name: "filter", id: "filter", placeholder: "words", value: view.get("filter") ?? "" }));

export function accepts(run) {
  const said = [nameOf(run), run.name, run.text, run.tokens, run.uuid, run.state, `seed=${run.seed}`];
  const text = said.join(" ").toLowerCase();
  const fits = (word) => (/^seed=\d/.test(word) ? said.includes(word) : text.includes(word));
  return (view.get("filter") ?? "").toLowerCase().split(/\s+/).every(fits);
}

export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: url, download: `${location.pathname.slice(1)} ${name}`.replace(/[^\w.-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(url), SECOND);
}

export function frame(title, ...content) {
  document.title = `${title} · Folio`;
  document.querySelector(`nav a[href="${location.pathname}"]`)?.setAttribute("aria-current", "page");
  document.querySelector("main").append(...content);
}

export const seen = (text) => text.replace(/\n/g, "↵").replace(/ /g, "␣"); // with the characters that show nothing
export const idOf = (run) => run.uuid.slice(0, 6);
export const nameOf = (run) => [run.preset, run.changes].filter(Boolean).join(" ") || run.name;
export const stateOf = (run) => el("span", { className: `state ${run.state.replace(" ", "-")}` }, run.state);
export const table = (name, content) => el("div.table", { tabIndex: 0, role: "region", ariaLabel: name }, content);
export const row = (title, ...cells) =>
  el("tr", el("th", { scope: "row" }, title), ...cells.map((cell) => el("td", cell)));
export const card = (title, ...content) => el("section.card", el("h2", title), ...content);
