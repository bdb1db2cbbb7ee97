"use strict";
// Keeps an open page up to date: asks every second whether something has changed, and then presses labml's refresh
// button.
// Also draws the panel with the knobs of a run, and the link to the comparison. A hidden tab asks nothing.
(() => {
  const MILLISECONDS = 1000;
  let page = null; // the path that `revision` belongs to
  let revision = null; // of the page, when it was refreshed last

  const runOfPage = () => (/^\/run\/([0-9a-f]+)(\/|$)/.exec(location.pathname) || [])[1];

  async function answerOf(path, options) {
    const response = await fetch(`/api/folio/${path}`, options);
    return { isOk: response.ok, body: await response.json() };
  }

  async function refreshIfChanged() {
    const run = runOfPage();
    if (!run && !/^\/runs(\/|$)/.test(location.pathname)) return;
    const now = (await answerOf(`revisions/${run || "list"}`)).body.revision;
    const button = document.querySelector(".btn-refresh");
    // The page was loaded before this question, so it is refreshed once. A refresh would disturb labml's first loading.
    const isLoading = document.querySelector(".data-loader .loader");
    if (page !== location.pathname) [page, revision] = [location.pathname, null];
    if (now !== revision && !isLoading && button && !button.classList.contains("disabled")) {
      revision = now;
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

  function newPanel(run, rates) {
    const factor = element("input", { name: "learning_rate_factor", type: "number", step: "any", min: 0.01, max: 10 });
    const options = [null, ...rates].map((rate) => element("option", { value: rate ?? "none" }, shown(rate)));
    const rate = element("select", { name: "masking_prob" }, ...options);
    const submit = element("button", { type: "submit" }, "Set");
    const labels = [factor, rate].map((field) => element("label", {}, `${field.name} `, field));
    const form = element("form", {}, ...labels, submit);
    form.addEventListener("input", (event) => (event.target.dataset.changed = "yes"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      setKnobs(run, form).catch(reportAbsence);
    });
    const lines = [element("p", { className: "state" }), element("p", { className: "error" })];
    const panel = element("div", { id: "folio-knobs" }, element("h3", {}, "Knobs"), form, ...lines);
    panel.dataset.run = run;
    return panel;
  }

  async function drawKnobs() {
    const run = runOfPage();
    const row = document.querySelector(".run.page .process-row");
    if (!run || !row) return;
    const { isOk, body } = await answerOf(`runs/${run}/knobs`);
    let panel = document.getElementById("folio-knobs");
    if (panel && panel.dataset.run !== run) {
      panel.remove();
      panel = null;
    }
    const isTraining = isOk && body.state === "in progress";
    if (!panel && !isTraining) return;
    if (!panel) {
      panel = newPanel(run, body.rates);
      row.after(panel);
    }
    const hasError = panel.querySelector(".error").textContent !== "";
    for (const field of panel.querySelectorAll("input, select, button")) field.disabled = !isTraining;
    if (!isTraining && !hasError) panel.remove();
    if (!isTraining) return;
    for (const field of panel.querySelectorAll("input, select")) {
      if (!field.dataset.changed) field.value = body.requested[field.name] ?? "none";
    }
    const lines = Object.keys(body.current).map((knob) => {
      const [current, requested] = [shown(body.current[knob]), shown(body.requested[knob])];
      return `${knob} ${current}` + (current === requested ? "" : ` (requested: ${requested})`);
    });
    panel.querySelector(".state").textContent = `current: ${lines.join(", ")}`;
  }

  // Sends only what was changed here: other values may have been set elsewhere since.
  async function setKnobs(run, form) {
    const changed = [...form.querySelectorAll("[data-changed]")];
    const values = Object.fromEntries(changed.map((field) => [field.name, field.value]));
    const { isOk, body } = await answerOf(`runs/${run}/knobs`, { method: "PUT", body: JSON.stringify(values) });
    form.parentElement.querySelector(".error").textContent = isOk ? "" : body.error;
    if (!isOk) return;
    for (const field of changed) delete field.dataset.changed;
    await drawKnobs();
  }

  function reportAbsence(error) {
    console.error(error);
    if (document.getElementById("folio-absent")) return;
    const text = "The dashboard does not answer: this page may be old.";
    document.body.append(element("p", { id: "folio-absent" }, text));
  }

  async function tick() {
    if (!document.hidden) {
      linkToComparison();
      try {
        await refreshIfChanged();
        await drawKnobs();
        document.getElementById("folio-absent")?.remove();
      } catch (error) {
        reportAbsence(error);
      }
    }
    setTimeout(tick, MILLISECONDS);
  }
  tick();
})();
