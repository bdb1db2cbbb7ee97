"use strict";
// Keeps an open page up to date: asks every second whether something has changed, and presses labml's refresh button if so.
// Also draws the panel with the knobs of a run, and the link to the comparison. A hidden tab asks nothing.
(() => {
  const MILLISECONDS = 1000;
  let place = null; // the page that `seen` belongs to
  let seen = null; // its last revision

  const runOfPage = () => (/^\/run\/([0-9a-f]+)(\/metrics)?$/.exec(location.pathname) || [])[1];

  async function answerOf(path, options) {
    const response = await fetch(`/api/folio/${path}`, options);
    return { isOk: response.ok, body: await response.json() };
  }

  async function refreshIfChanged() {
    const run = runOfPage();
    if (!run && !/^\/runs(\/|$)/.test(location.pathname)) return;
    const now = (await answerOf(`revisions/${run || "list"}`)).body.revision;
    const button = document.querySelector(".btn-refresh");
    // The page was loaded before this question, so it is refreshed once.
    if (place !== location.pathname) [place, seen] = [location.pathname, null];
    if (now !== seen && button && !button.classList.contains("disabled")) {
      seen = now;
      button.click();
    }
  }

  function linkToComparison() {
    const title = location.pathname === "/runs" && document.querySelector(".title > h5");
    if (title && !document.getElementById("folio-compare")) {
      title.after(element("a", { id: "folio-compare", href: "/compare" }, "Compare"));
    }
  }

  // The knobs

  function element(tag, attributes, ...children) {
    const created = document.createElement(tag);
    Object.assign(created, attributes);
    created.append(...children);
    return created;
  }

  const shown = (value) => (value === null ? "as scheduled" : String(value));

  async function drawKnobs() {
    const run = runOfPage();
    const row = document.querySelector(".run.page .process-row");
    if (!run || !row) return;
    const { isOk, body } = await answerOf(`runs/${run}/knobs`);
    let panel = document.getElementById("folio-knobs");
    if (panel && panel.dataset.run !== run) panel = panel.remove();
    if (!isOk || body.state !== "in progress") return void (panel && panel.remove());
    if (!panel) {
      const factor = element("input", { name: "learning_rate_factor", type: "number", step: "any", min: 0.01, max: 10 });
      const rates = [null, ...body.rates].map((rate) => element("option", { value: rate ?? "none" }, shown(rate)));
      const rate = element("select", { name: "masking_prob" }, ...rates);
      factor.value = body.requested.learning_rate_factor;
      rate.value = body.requested.masking_prob ?? "none";
      const submit = element("button", { type: "submit" }, "Set");
      const form = element("form", {}, element("label", {}, "learning rate × ", factor), element("label", {}, "masking rate ", rate), submit);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        setKnobs(run, { learning_rate_factor: factor.value, masking_prob: rate.value });
      });
      panel = element("div", { id: "folio-knobs" }, form, element("p", { className: "state" }), element("p", { className: "error" }));
      panel.dataset.run = run;
      row.after(panel);
    }
    const lines = Object.keys(body.current).map((knob) => {
      const [current, requested] = [shown(body.current[knob]), shown(body.requested[knob])];
      return `${knob} ${current}` + (current === requested ? "" : ` (requested: ${requested})`);
    });
    panel.querySelector(".state").textContent = `current: ${lines.join(", ")}`;
  }

  async function setKnobs(run, values) {
    const { isOk, body } = await answerOf(`runs/${run}/knobs`, { method: "PUT", body: JSON.stringify(values) });
    document.querySelector("#folio-knobs .error").textContent = isOk ? "" : body.error;
    if (isOk) await drawKnobs();
  }

  async function tick() {
    if (!document.hidden) {
      linkToComparison();
      try {
        await refreshIfChanged();
        await drawKnobs();
      } catch (error) {
        // The server is away; labml's page shows that itself.
      }
    }
    setTimeout(tick, MILLISECONDS);
  }
  tick();
})();
