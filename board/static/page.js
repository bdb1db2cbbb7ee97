// Helpers of all pages. Data reaches the document as text only, never as HTML.
const SECOND = 1000;
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

export const show = {
  loss: (value) => (value == null ? "" : value.toFixed(3)),
  share: (value) => (value == null ? "" : `${(100 * value).toFixed(1)}%`),
  count: (value) => (value == null ? "" : d3.format(Math.abs(value) >= 1e6 ? ".3~s" : ",.0f")(value)),
  seconds: (value) => (value == null ? "" : value < 600 ? `${Math.round(value)} s` : value < 7200
    ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`),
  number: (value) => (Math.abs(value) >= 1e4 ? show.count(value) : String(+value.toPrecision(4))),
  any: (value) => (typeof value === "string" ? value : JSON.stringify(value)),
};
export const AXES = { // of time: the column, and its format
  seconds: { title: "seconds of training", format: show.number },
  step: { title: "steps", format: show.count },
  chars: { title: "characters", format: show.count },
};

export async function ask(path, method = "GET", message = undefined) {
  const response = await fetch(`/api/folio/${path}`, { method, body: message && JSON.stringify(message) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

// Calls `draw` with what `path()` has, now and whenever it changes. A hidden tab asks nothing.
export async function live(path, draw) {
  const absent = el("p", { id: "absent", role: "status" }, "The dashboard does not answer: this page may be old.");
  let last = null;
  for (;;) {
    try {
      if (!document.hidden) {
        const response = await fetch(`/api/folio/${path()}`);
        const text = await response.text();
        if (text !== last) draw(JSON.parse(text));
        last = text;
        absent.remove();
      }
    } catch (error) {
      console.error(error);
      document.body.append(absent);
    }
    await new Promise((resolve) => setTimeout(resolve, SECOND));
  }
}

export function liveRuns(draw) {
  let known = "";
  return live(() => `runs?known=${known}`, ({ revision, runs }) => {
    known = revision;
    if (runs) draw(d3.sort(runs, (run) => -run.began));
  });
}

// Controls whose values are part of the address

export function keep(name, value) {
  value ? view.set(name, value) : view.delete(name);
  history.replaceState(null, "", `${location.pathname}?${view}`);
}

export function choice(label, name, options, redraw) {
  const select = el("select", { id: name, onchange: () => (keep(name, select.value), redraw()) });
  for (const [value, { title }] of Object.entries(options)) select.append(el("option", { value }, title ?? value));
  if (view.get(name) in options) select.value = view.get(name);
  return Object.assign(el("label", `${label} `, select), { chosen: () => select.value });
}

export function toggle(label, name, redraw) {
  const box = el("input", { type: "checkbox", id: name, checked: view.has(name) });
  box.onchange = () => (keep(name, box.checked && "1"), redraw());
  return el("label", box, ` ${label}`);
}

export const button = (text, onclick, properties) => el("button", { type: "button", onclick, ...properties }, text);

export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: url, download: name.replace(/[^\w.-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(url), SECOND);
}

// The frame of a page

export function frame(title, labml, ...content) {
  document.title = `${title} · Folio`;
  const pages = { Runs: "/runs", Compare: "/compare", Try: "/try", "labml's page": `${labml}?labml` };
  const current = (href) => (location.pathname.startsWith(href) ? "page" : null);
  const links = Object.entries(pages).map(([text, href]) => el("a", { href, ariaCurrent: current(href) }, text));
  const header = el("header", el("a.brand", { href: "/runs" }, "Folio"), el("nav", { ariaLabel: "Pages" }, ...links));
  document.body.append(header, el("main", ...content));
}

// A filter of runs whose words are part of the address; `accepts(run)` says whether all of them are found.
export function runFilter(redraw) {
  const input = el("input", { type: "search", id: "filter", placeholder: "words", value: view.get("filter") ?? "" });
  input.oninput = () => (keep("filter", input.value), redraw());
  return Object.assign(input, {
    accepts: (run) => {
      const text = [nameOf(run), run.name, run.text, run.tokens, run.uuid, run.state].join(" ").toLowerCase();
      return input.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
    },
  });
}

export const idOf = (run) => run.uuid.slice(0, 6);
export const nameOf = (run) => [run.preset, run.changes].filter(Boolean).join(" ") || run.name;
export const stateOf = (run) => el("span", { className: `state ${run.state.replace(" ", "-")}` }, run.state);
export const table = (name, content) => el("div.table", { tabIndex: 0, role: "region", ariaLabel: name }, content);
export const card = (title, ...content) => el("section.card", el("h2", title), ...content);
