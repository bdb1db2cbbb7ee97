"use strict";
// A sortable table of all runs, and one chart of the validation loss of those that are chosen.
(() => {
  const MILLISECONDS = 1000;
  const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"]; // Okabe and Ito
  const TITLES = { seconds: "seconds of training", chars: "characters", step: "steps" };
  const FIRST = 12; // runs that are chosen at first
  const grouped = (value) => value.toLocaleString("en");
  const COLUMNS = [
    ["name", (value) => value],
    ["preset", (value) => value],
    ["changes", (value) => value],
    ["loss.valid", (value) => value.toFixed(4)],
    ["best", (value) => value.toFixed(4)],
    ["seconds", (value) => value.toFixed(0)],
    ["characters", grouped],
    ["seed", (value) => value],
    ["state", (value) => value],
  ];
  let runs = [];
  let chosen = null; // the uuids of the runs in the chart
  let order = { column: "began", isDescending: true };
  let seen = null;

  const get = async (path) => (await fetch(`/api/folio/${path}`)).json();

  function drawTable() {
    const value = (run) => run[order.column] ?? (typeof runs[0][order.column] === "string" ? "" : Infinity);
    const sorted = d3.sort(runs, (a, b) => (order.isDescending ? d3.descending : d3.ascending)(value(a), value(b)));
    const header = d3.select("#columns").selectAll("th").data([null, ...COLUMNS]).join("th");
    header.selectAll("button").data((column) => (column ? [column[0]] : [])).join("button").text((name) => name)
      .on("click", (event, name) => {
        order = { column: name, isDescending: order.column === name && !order.isDescending };
        drawTable();
      });
    header.attr("aria-sort", (column) => (column && column[0] === order.column ? (order.isDescending ? "descending" : "ascending") : null));
    const rows = d3.select("#runs").selectAll("tr").data(sorted, (run) => run.uuid).join("tr").order();
    rows.attr("data-run", (run) => run.uuid);
    rows.selectAll("td.choice").data((run) => [run]).join("td").attr("class", "choice").selectAll("input").data((run) => [run]).join("input")
      .attr("type", "checkbox").attr("aria-label", (run) => `show ${run.uuid}`)
      .property("checked", (run) => chosen.has(run.uuid))
      .on("change", (event, run) => {
        event.target.checked ? chosen.add(run.uuid) : chosen.delete(run.uuid);
        drawChart();
      });
    const cells = rows.selectAll("td.value").data((run) => COLUMNS.map(([name, format]) => ({ run, name, value: run[name], format }))).join("td");
    cells.attr("class", (cell) => ["value", typeof cell.value === "number" ? "number" : "", cell.name === "state" ? cell.value : ""].join(" "));
    cells.filter((cell) => cell.name !== "name").text((cell) => (cell.value == null ? "" : cell.format(cell.value)));
    cells.filter((cell) => cell.name === "name").selectAll("a").data((cell) => [cell]).join("a")
      .attr("href", (cell) => `/run/${cell.run.uuid}`).text((cell) => `${cell.value} ${cell.run.uuid.slice(0, 8)}`);
  }

  // The value of a curve, a list of [x, y], at x; between two points on the straight line.
  function at(curve, x) {
    const i = Math.min(Math.max(d3.bisector((point) => point[0]).left(curve, x), 1), curve.length - 1);
    const [[x0, y0], [x1, y1]] = [curve[i - 1], curve[i]];
    return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
  }

  // Points {x, mean, low, high} of runs that differ in their seed, where all of them have values.
  function band(curves) {
    const usable = curves.filter((curve) => curve.length > 1);
    if (!usable.length) return curves.flat().map(([x, y]) => ({ x, mean: y, low: y, high: y }));
    const [low, high] = [d3.max(usable, (curve) => curve[0][0]), d3.min(usable, (curve) => curve[curve.length - 1][0])];
    const xs = d3.sort(new Set([low, high, ...usable.flat().map(([x]) => x)])).filter((x) => x >= low && x <= high);
    return xs.map((x) => {
      const values = usable.map((curve) => at(curve, x));
      return { x, mean: d3.mean(values), low: d3.min(values), high: d3.max(values) };
    });
  }

  function drawChart() {
    const axis = document.getElementById("axis").value;
    const groups = d3.groups(runs.filter((run) => chosen.has(run.uuid) && run.curve.step.length), (run) => run.group);
    const lines = groups.map(([, members]) => ({
      label: `${[members[0].preset, members[0].changes].filter(Boolean).join(" ")}, ${members.length} seed${members.length > 1 ? "s" : ""}`,
      points: band(members.map((run) => d3.zip(run.curve[axis], run.curve["loss.valid"]).filter((point) => point.every(Number.isFinite)))),
    })).filter((line) => line.points.length);
    const svg = d3.select("#curves");
    svg.selectAll("*").remove();
    if (!lines.length) return;
    const { width, height } = svg.node().getBoundingClientRect();
    const margin = { left: 56, right: 16, top: 16, bottom: 40 };
    const points = lines.flatMap((line) => line.points);
    const x = d3.scaleLinear([d3.min(points, (p) => p.x), d3.max(points, (p) => p.x)], [margin.left, width - margin.right]);
    const counting = [...new Set(groups.flatMap(([, members]) => members.map((run) => run.references.counting)))].filter(Boolean);
    const y = d3.scaleLinear([d3.min([...points.map((p) => p.low), ...counting]), d3.max(points, (p) => p.high)], [height - margin.bottom, margin.top]).nice();
    svg.append("g").attr("transform", `translate(0,${height - margin.bottom})`).call(d3.axisBottom(x).ticks(8, "~s"));
    svg.append("g").attr("transform", `translate(${margin.left},0)`).call(d3.axisLeft(y));
    svg.append("text").attr("x", width / 2).attr("y", height - 4).attr("text-anchor", "middle").text(TITLES[axis]);
    svg.append("text").attr("transform", `translate(14,${height / 2}) rotate(-90)`).attr("text-anchor", "middle").text("loss.valid (nats per masked character)");
    for (const loss of counting) {
      svg.append("line").attr("class", "reference").attr("x1", margin.left).attr("x2", width - margin.right).attr("y1", y(loss)).attr("y2", y(loss));
      svg.append("text").attr("x", margin.left + 4).attr("y", y(loss) - 4).text(`counting ${loss.toFixed(3)}`);
    }
    lines.forEach((line, i) => {
      const color = COLORS[i % COLORS.length];
      svg.append("path").attr("class", "band").attr("fill", color).attr("d", d3.area((p) => x(p.x), (p) => y(p.low), (p) => y(p.high))(line.points));
      svg.append("path").attr("class", "line").attr("stroke", color).attr("d", d3.line((p) => x(p.x), (p) => y(p.mean))(line.points));
      svg.append("text").attr("class", "label").attr("x", width - margin.right).attr("y", margin.top + 16 * (i + 1)).attr("text-anchor", "end").style("fill", color).text(line.label);
    });
  }

  async function load() {
    runs = (await get("runs")).runs;
    const wanted = new URLSearchParams(location.search).getAll("run");
    chosen ??= new Set(wanted.length ? wanted : d3.sort(runs, (run) => -run.began).slice(0, FIRST).map((run) => run.uuid));
    document.getElementById("message").textContent = runs.length ? "" : "No runs yet.";
    if (runs.length) drawTable();
    drawChart();
  }

  async function tick() {
    if (!document.hidden) {
      try {
        const now = (await get("revisions/compare")).revision;
        if (now !== seen) await load();
        seen = now;
      } catch (error) {
        document.getElementById("message").textContent = "The dashboard does not answer.";
        seen = null;
      }
    }
    setTimeout(tick, MILLISECONDS);
  }

  document.getElementById("axis").addEventListener("change", drawChart);
  window.addEventListener("resize", drawChart);
  tick();
})();
