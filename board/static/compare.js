"use strict";
// A sortable table of all runs, and one chart of the validation loss of those that are chosen.
(() => {
  const MILLISECONDS = 1000;
  const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"]; // Okabe and Ito
  const TITLES = { seconds: "seconds of training", chars: "characters", step: "steps" };
  const DASHES = ["", "6 3", "2 3"]; // of the first seven groups, the next seven, and so on
  const NEARLY = 0.02; // of the range
  const FIRST = 12; // runs that are chosen at first
  const NOTHING = "Nothing to draw: choose runs that have been evaluated.";
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
  let known = null; // the uuids of all runs when the table was drawn last
  let order = { column: "began", isDescending: true };
  let revision = null; // of the table, when it was drawn last

  const get = async (path) => (await fetch(`/api/folio/${path}`)).json();

  function drawTable() {
    const direction = order.isDescending ? d3.descending : d3.ascending;
    const hasNone = (run) => run[order.column] == null; // last in both directions
    const sorted = d3.sort(runs, (a, b) => hasNone(a) - hasNone(b) || direction(a[order.column], b[order.column]));
    const header = d3.select("#columns").selectAll("th").data([null, ...COLUMNS]).join("th");
    header.selectAll("button").data((column) => (column ? [column[0]] : [])).join("button").text((name) => name)
      .on("click", (event, name) => {
        order = { column: name, isDescending: order.column === name && !order.isDescending };
        drawTable();
      });
    const sortedAs = order.isDescending ? "descending" : "ascending";
    header.attr("aria-sort", (column) => (column && column[0] === order.column ? sortedAs : null));
    const rows = d3.select("#runs").selectAll("tr").data(sorted, (run) => run.uuid).join("tr").order();
    rows.attr("data-run", (run) => run.uuid);
    const choices = rows.selectAll("td.choice").data((run) => [run]).join("td").attr("class", "choice");
    choices.selectAll("input").data((run) => [run]).join("input")
      .attr("type", "checkbox").attr("aria-label", (run) => `show ${run.uuid}`)
      .property("checked", (run) => chosen.has(run.uuid))
      .on("change", (event, run) => {
        event.target.checked ? chosen.add(run.uuid) : chosen.delete(run.uuid);
        drawChart();
      });
    const cellsOf = (run) => COLUMNS.map(([name, format]) => ({ run, name, value: run[name], format }));
    const classOf = ({ name, value }) => (typeof value === "number" ? "number" : name === "state" ? value : "");
    const cells = rows.selectAll("td.value").data(cellsOf).join("td").attr("class", (cell) => `value ${classOf(cell)}`);
    cells.filter((cell) => cell.name !== "name").text((cell) => (cell.value == null ? "" : cell.format(cell.value)));
    cells.filter((cell) => cell.name === "name").selectAll("a").data((cell) => [cell]).join("a")
      .attr("href", (cell) => `/run/${cell.run.uuid}`).text((cell) => `${cell.value} ${cell.run.uuid.slice(0, 8)}`);
  }

  // The value of a curve, a list of [x, y], at x; between two points on the straight line.
  function at(curve, x) {
    if (curve.length === 1) return curve[0][1];
    const i = Math.min(Math.max(d3.bisector((point) => point[0]).left(curve, x), 1), curve.length - 1);
    const [[x0, y0], [x1, y1]] = [curve[i - 1], curve[i]];
    return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
  }

  // Points {x, mean, low, high} of runs that differ in their seed, over those that reach x.
  function band(curves) {
    const used = curves.filter((curve) => curve.length);
    if (!used.length) return [];
    // Seeds are evaluated at slightly different times: the band begins and ends where nearly all of them do.
    const [starts, ends] = [used.map((curve) => curve[0][0]), used.map((curve) => curve[curve.length - 1][0])];
    const slack = NEARLY * (d3.max(ends) - d3.min(starts));
    const low = d3.max(starts.filter((x) => x <= d3.min(starts) + slack));
    const high = d3.min(ends.filter((x) => x >= d3.max(ends) - slack));
    const xs = d3.sort(new Set([low, high, ...used.flat().map(([x]) => x)])).filter((x) => low <= x && x <= high);
    return xs.map((x) => {
      const reaching = used.filter((curve) => curve[0][0] <= x && x <= curve[curve.length - 1][0]);
      const values = reaching.map((curve) => at(curve, x));
      return { x, mean: d3.mean(values), low: d3.min(values), high: d3.max(values) };
    });
  }

  // The chosen runs by what distinguishes them from others. A group keeps its color whichever others are chosen.
  function chosenGroups(axis) {
    const all = d3.groups(d3.sort(runs, (run) => run.began), (run) => run.group);
    return all.flatMap(([, runsOfGroup], i) => {
      const members = runsOfGroup.filter((run) => chosen.has(run.uuid));
      const curves = members.map((run) =>
        d3.zip(run.curve[axis], run.curve["loss.valid"]).filter((point) => point.every(Number.isFinite)),
      );
      const points = band(curves);
      if (!points.length) return [];
      const words = [members[0].preset, members[0].changes].filter(Boolean);
      const label = `${words.join(" ")}, ${members.length} seed${members.length > 1 ? "s" : ""}`;
      const dash = DASHES[Math.floor(i / COLORS.length) % DASHES.length];
      return [{ label, points, color: COLORS[i % COLORS.length], dash, counting: members[0].references.counting }];
    });
  }

  function drawChart() {
    const axis = document.getElementById("axis").value;
    const lines = chosenGroups(axis);
    const svg = d3.select("#curves");
    svg.selectAll("*").remove();
    document.getElementById("message").textContent = lines.length ? "" : runs.length ? NOTHING : "No runs yet.";
    if (!lines.length) return;
    const { width, height } = svg.node().getBoundingClientRect();
    const [left, right, top, bottom] = [56, width - 16, 16, height - 40];
    const points = lines.flatMap((line) => line.points);
    const counting = [...new Set(lines.map((line) => line.counting))].filter(Boolean);
    const lowest = d3.min([...points.map((p) => p.low), ...counting]);
    const x = d3.scaleLinear(d3.extent(points, (p) => p.x), [left, right]);
    const highest = d3.max([...points.map((p) => p.high), ...counting]);
    const pad = highest > lowest ? 0 : 0.1 * highest;
    const y = d3.scaleLinear([lowest - pad, highest + pad], [bottom, top]).nice();
    svg.append("g").attr("transform", `translate(0,${bottom})`).call(d3.axisBottom(x).ticks(8, "~s"));
    svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y));
    const title = (text) => svg.append("text").attr("text-anchor", "middle").text(text);
    title(TITLES[axis]).attr("x", width / 2).attr("y", height - 4);
    title("loss.valid (nats per masked character)").attr("transform", `translate(14,${height / 2}) rotate(-90)`);
    for (const loss of counting) {
      const line = svg.append("line").attr("class", "reference").attr("x1", left).attr("x2", right);
      line.attr("y1", y(loss)).attr("y2", y(loss));
      svg.append("text").attr("x", left + 4).attr("y", y(loss) - 4).text(`counting ${loss.toFixed(3)}`);
    }
    const area = d3.area((p) => x(p.x), (p) => y(p.low), (p) => y(p.high));
    const mean = d3.line((p) => x(p.x), (p) => y(p.mean));
    lines.forEach((line, i) => {
      const path = (kind) => svg.append("path").attr("class", kind);
      path("band").attr("fill", line.color).attr("d", area(line.points));
      const stroke = (kind) => path(kind).attr("stroke", line.color).attr("stroke-dasharray", line.dash);
      stroke("line").attr("d", mean(line.points));
      if (line.points.length === 1) {
        const dot = svg.append("circle").attr("class", "dot").attr("r", 4).attr("fill", line.color);
        dot.attr("cx", x(line.points[0].x)).attr("cy", y(line.points[0].mean));
      }
      const label = svg.append("text").attr("class", "label").attr("x", right).attr("y", top + 16 * (i + 1));
      label.attr("text-anchor", "end").style("fill", line.color).text(line.label);
      const [end, middle] = [right - label.node().getComputedTextLength() - 6, top + 16 * i + 12];
      stroke("sample").attr("d", d3.line()([[end - 24, middle], [end, middle]]));
    });
  }

  async function load() {
    runs = (await get("runs")).runs;
    const wanted = new URLSearchParams(location.search).getAll("run");
    const latest = d3.sort(runs, (run) => -run.began).slice(0, FIRST);
    chosen ??= new Set(wanted.length ? wanted : latest.map((run) => run.uuid));
    for (const run of runs) if (known && !known.has(run.uuid)) chosen.add(run.uuid); // it has just begun
    known = new Set(runs.map((run) => run.uuid));
    drawTable();
    drawChart();
  }

  async function tick() {
    if (!document.hidden) {
      try {
        const now = (await get("revisions/compare")).revision;
        if (now !== revision) await load();
        revision = now;
      } catch (error) {
        console.error(error);
        document.getElementById("message").textContent = "The dashboard does not answer.";
        revision = null;
      }
    }
    setTimeout(tick, MILLISECONDS);
  }

  document.getElementById("axis").addEventListener("change", drawChart);
  window.addEventListener("resize", drawChart);
  tick();
})();
