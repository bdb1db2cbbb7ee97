// A chart: lines through their points, dashed references, stages, and the values at the pointer or the arrow keys.
import { button, el, save, show } from "./page.js";

const LINE = 14; // pixels between labels
const STRIP = 18; // above the lines, for the names of stages
const MOST_DOTS = 60; // of a line that shows its points
const MOST_VALUES = 16; // at the pointer
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "opacity", "font"]; // in SVGs

// The top of the y axis: above the usual lines and the lowest point of each other, unless it has diverged, so that a
// diverged line does not flatten the others.
function robustTop(series, low) {
  if (series.every(({ points }) => points.length === 1)) return Infinity; // no line has a height to compare with
  const highest = d3.sort(series.map(({ points }) => d3.max(points, ([, y]) => y)));
  const usual = highest[(highest.length - 1) >> 1]; // the lower median
  const lowest = series.map(({ points }) => d3.min(points, ([, y]) => y));
  return d3.max([2 * usual - low, ...lowest.filter((y) => y <= low + 10 * (usual - low))]);
}

// Moves labels {y} apart, in place, so that none covers another.
function spread(labels, bottom) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, i) => (label.y = i ? Math.max(label.y, labels[i - 1].y + LINE) : label.y));
  labels.forEach((label, i) => (label.y = Math.min(label.y, bottom - LINE * (labels.length - 1 - i))));
}

function shape(parent, tag, attributes) {
  const added = parent.append(tag);
  for (const [name, value] of Object.entries(attributes)) added.attr(name, value);
  return added;
}

/* A figure with `draw(content)`. The content: x and y, each {title, format, isLog}, and y.top;
   series [{name, color, dash, points}], where a point is [x, y] or, with a band, [x, y, low, high];
   references [{name, y}]; stages [{x, texts}], each shown with its first text that fits;
   hasLabels, whether names stand at the ends of lines. */
export function chart(title, height = 200) {
  const svg = d3.create("svg").attr("role", "img").attr("tabindex", 0).attr("height", height);
  const tip = el("div.tip", { hidden: true });
  const caption = el("span");
  const saveAs = (kind, onclick) => button(kind, onclick, { ariaLabel: `Save ${title} as ${kind}` });
  const exports = [saveAs("SVG", () => saveSvg(caption.textContent, svg, content)),
    saveAs("CSV", () => saveCsv(caption.textContent, content))];
  const figure = el("figure", el("figcaption", caption, el("span.exports", ...exports)), svg.node(), tip);
  let [content, width] = [null, 0];
  new ResizeObserver(() => figure.clientWidth !== width && draw(content)).observe(figure);

  function draw(next) {
    content = next;
    width = figure.clientWidth;
    if (!content || !width) return;
    const { x, y, hasLabels = false, references = [], stages = [] } = content;
    caption.textContent = `${title}${y.title ? `, ${y.title}` : ""}`;
    svg.attr("width", width).attr("aria-label", `${caption.textContent} against ${x.title}`).selectAll("*").remove();
    tip.hidden = true;
    const isShown = ([a, b]) => Number.isFinite(a) && Number.isFinite(b) && (!x.isLog || a > 0) && (!y.isLog || b > 0);
    const series = content.series.map((each) => ({ ...each, points: each.points.filter(isShown) }))
      .filter((each) => each.points.length);
    const points = series.flatMap((each) => each.points);
    if (!points.length) return void shape(svg, "text", { x: 8, y: 24 }).text("No values yet");
    const [lowest, highest] = d3.extent(points, (p) => p[1]);
    const top = Math.min(highest, y.top ?? robustTop(series, lowest));
    const lines = references.filter((line) => line.y <= top * 1.25 && line.y >= lowest - (top - lowest));
    const ys = [lowest, top, ...lines.map((line) => line.y)];
    const pad = d3.max(ys) > d3.min(ys) ? 0 : Math.abs(lowest) * 0.1 || 1;
    const ends = series.map(({ name, color, points: drawn }) => ({ name, color, y: drawn[drawn.length - 1][1] }));
    const labels = [...lines, ...(hasLabels ? ends : [])]
      .map((each) => ({ ...each, said: `${each.name} ${y.format(each.y)}` }));
    const [left, right] = [48, width - 12 - 7 * (d3.max(labels, ({ said }) => said.length) ?? 0)];
    const [above, bottom] = [stages.length ? STRIP + 6 : 8, height - 38];
    const [first, last] = d3.extent(points, (p) => p[0]);
    const scale = (axis, low, high, from, to) => (axis.isLog ? d3.scaleLog : d3.scaleLinear)([low, high], [from, to]);
    const across = scale(x, x.isLog ? first : Math.min(0, first), last > first ? last : first + 1, left, right);
    const up = scale(y, d3.min(ys) - pad, d3.max(ys) + pad, bottom, above);
    if (!y.isLog) up.nice(); // a logarithmic range would grow to powers of ten
    const text = (left, top, said, anchor = "start") =>
      shape(svg, "text", { x: left, y: top, "text-anchor": anchor }).text(said);
    const rule = (kind, x1, x2, y1, y2) => shape(svg, "line", { class: kind, x1, x2, y1, y2 });
    const axis = (make, of, { isLog }, format, n) =>
      svg.append("g").call(make(of).ticks(n).tickFormat(isLog ? of.tickFormat(n, format) : format).tickSizeOuter(0));
    const yFormat = y.format === show.loss ? show.number : (value) => y.format(value).replace(".0%", "%");
    axis(d3.axisLeft, up, y, yFormat, (bottom - above) / 40).attr("transform", `translate(${left},0)`)
      .selectAll(".tick line").attr("x2", right - left);
    axis(d3.axisBottom, across, x, x.format, (right - left) / 80).attr("transform", `translate(0,${bottom})`);
    text(right, bottom + 32, x.title, "end");
    stages.forEach((stage, i) => { // 0 has no place on a logarithmic axis
      const [from, to] = [stage, stages[i + 1]].map((each) => (each ? Math.max(left, across(each.x) || left) : right));
      if (from > left) rule("stage", from, from, above - STRIP, bottom);
      const label = text(from + 4, above - 6, "");
      const fits = (said) => label.text(said).node().getComputedTextLength() <= to - from - 6;
      stage.texts.find(fits);
    });
    for (const line of lines) rule("reference", left, right, up(line.y), up(line.y));
    const [w, h] = [right - left + 4, bottom - above + 8]; // an svg within an svg clips
    const inside = shape(svg, "svg", { x: left, y: above - 4, width: w, height: h, viewBox: [left, above - 4, w, h] });
    for (const { color, dash, points: drawn } of series) {
      const [atX, atY] = [(p) => across(p[0]), (p) => up(p[1])];
      const band = d3.area(atX, (p) => up(p[2]), (p) => up(p[3])).defined((p) => Number.isFinite(p[2]));
      shape(inside, "path", { class: "band", fill: color, d: band(drawn) });
      const line = { stroke: color, "stroke-dasharray": dash ?? "none", d: d3.line(atX, atY)(drawn) };
      shape(inside, "path", { class: "line", ...line });
      const dots = drawn.length <= MOST_DOTS ? drawn : [];
      for (const p of dots) shape(inside, "circle", { r: 3, fill: color, cx: atX(p), cy: atY(p) });
    }
    for (const label of labels) label.y = Math.max(above, up(label.y));
    spread(labels, bottom);
    for (const { y: atY, said, color } of labels)
      text(right + 8, atY + 4, said).attr("class", color && "end").style("fill", color);
    const hidden = points.filter((p) => p[1] > up.domain()[1]).length;
    if (hidden) text(left + 8, above + 10, `${hidden} point${hidden > 1 ? "s" : ""} above`).attr("class", "halo");
    showValues(series, { x, y, across, cursor: rule("cursor", 0, 0, above, bottom).attr("visibility", "hidden") });
  }

  // The values at the pointer, or at the point to which the arrow keys have moved.
  function showValues(series, { x, y, across, cursor }) {
    const at = d3.sort(new Set(series.flatMap(({ points }) => points.map((p) => p[0]))));
    let current = at.length;
    const moveTo = (i) => {
      current = Math.max(0, Math.min(i, at.length - 1));
      const [value, left] = [at[current], across(at[current])];
      cursor.attr("x1", left).attr("x2", left).attr("visibility", null);
      const rows = series.map((each) => ({ ...each, found: d3.least(each.points, (p) => Math.abs(p[0] - value)) }));
      const isNear = ([other]) => Math.abs(across(other) - left) < 8;
      const isInside = (points) => points[0][0] <= value && value <= points[points.length - 1][0];
      const near = rows.filter(({ found, points }) => isNear(found) || isInside(points));
      const listed = d3.sort(near, ({ found }) => -found[1]).slice(0, MOST_VALUES);
      const where = (found) => (isNear(found) ? "" : ` at ${x.format(found[0])}`);
      tip.replaceChildren(el("b", `${x.title} ${x.format(value)}`), ...listed.map(({ name, color, found }) =>
        el("div", el("i", { style: `background:${color}` }), `${name} ${y.format(found[1])}${where(found)}`)));
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(left + 12, width - tip.offsetWidth))}px`;
    };
    svg.on("pointermove", (event) => moveTo(d3.bisectCenter(at, across.invert(d3.pointer(event)[0]))));
    svg.on("pointerleave blur", () => ((tip.hidden = true), cursor.attr("visibility", "hidden")));
    svg.on("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) moveTo(current + step);
    });
  }

  return Object.assign(figure, { draw });
}

// Saves a chart below its title. If no names stand in the chart, those of its lines follow the title.
function saveSvg(caption, svg, { series, hasLabels }) {
  const names = hasLabels || series.length < 2 ? [] : series;
  const heads = [{ name: caption }, ...names].map(({ name, color }, i, { length }) =>
    shape(svg, "text", { x: 8, y: LINE * (i - length) + 11 }).style("fill", color).text(name));
  const [drawn, copy] = [svg.node(), svg.node().cloneNode(true)];
  const [from, to] = [drawn, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of STYLES) to[i].style[name] = style[name];
  });
  heads.forEach((head) => head.remove());
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  const [width, height, above] = [svg.attr("width"), svg.attr("height"), LINE * heads.length + 6].map(Number);
  d3.select(copy).attr("height", height + above).attr("viewBox", [0, -above, width, height + above]);
  save(`${caption}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
}

function saveCsv(caption, { x, series }) {
  const rows = series.flatMap(({ name, points }) => points.map(([a, b, low, high]) => [name, a, b, low, high]));
  save(`${caption}.csv`, "text/csv", d3.csvFormatRows([["series", x.title, caption, "low", "high"], ...rows]));
}
