// Lines with bands: drawn once as a plain picture, then given a pointer, keys and a legend that hides curves.
//
// A chart is { id, title, xLabel, yLabel, series, xTicks, xDomain, yDomain, asPercent, lines, spans, counted, xName,
// read, overlay, yTicks, yText }, and
// a series { label, colour, dash, marker, hollow, x, y, low, high, count, dots, silent, bars, band, chosen }.

const MARGIN = { top: 24, right: 16, bottom: 46, left: 54 };
const WIDE = 620;

function drawChart(chart, width, height, hidden = new Set()) {
  const shown = chart.series.filter((series) => !hidden.has(series.label));
  const labelled = width >= WIDE && shown.length > 1 && shown.length <= 20;
  const margin = { ...MARGIN, right: labelled ? 12 + labelWidth(shown, width) : MARGIN.right };
  const x = linear(chart.xDomain, [margin.left, width - margin.right]);
  const y = linear(chart.yDomain, [height - margin.bottom, margin.top]);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", "font-size": 12.5 });
  drawSpans(svg, chart, x, y);
  drawAxes(svg, chart, x, y, width, height, margin);
  drawLines(svg, chart, x, y);
  const clip = `clip-${chart.id}-${width}`;
  const [wide, tall] = [x.range[1] - x.range[0] + 16, y.range[0] - margin.top + 16];
  const frame = s("rect", { x: x.range[0] - 8, y: margin.top - 8, width: wide, height: tall });
  svg.append(s("clipPath", { id: clip }, frame));
  const inside = s("g", { "clip-path": `url(#${clip})` });
  const banded = shown.filter((series) => series.band);
  const opacity = banded.length > 8 ? 0.06 : banded.length > 1 ? 0.14 : 0.22;
  for (const series of banded) drawBand(inside, series, x, y, opacity);
  for (const series of shown) drawSeries(inside, series, x, y);
  svg.append(inside);
  if (labelled) drawLabels(svg, shown, x, y, margin);
  if (chart.overlay) chart.overlay(svg, x, y, shown);
  return { svg, x, y, shown };
}

function labelWidth(shown, width) {
  const longest = Math.max(4, ...shown.filter((one) => !one.silent).map((one) => one.label.length));
  return Math.min(0.34 * width, 26 + 7.1 * longest);
}

function drawAxes(svg, chart, x, y, width, height, margin) {
  const room = (x.range[1] - x.range[0]) / 44;
  const wanted = chart.xTicks ? measuredTicks(chart.xTicks, chart.xDomain, room) : roundTicks(chart.xDomain, room);
  const xTicks = apart(wanted, x);
  const yTicks = (chart.yTicks ?? roundTicks)(chart.yDomain, (y.range[0] - y.range[1]) / 60);
  const axes = s("g", { fill: "var(--soft)" });
  for (const tick of yTicks) {
    axes.append(s("line", { x1: x.range[0], x2: x.range[1], y1: y(tick), y2: y(tick), stroke: "var(--grid)" }));
    const text = chart.yText ? chart.yText(tick) : plain(chart.asPercent ? 100 * tick : tick);
    axes.append(s("text", { x: x.range[0] - 8, y: y(tick) + 4, "text-anchor": "end" }, text));
  }
  for (const tick of xTicks) {
    axes.append(s("line", { x1: x(tick), x2: x(tick), y1: y.range[0], y2: y.range[0] + 5, stroke: "var(--axis)" }));
    axes.append(s("text", { x: x(tick), y: y.range[0] + 19, "text-anchor": "middle" }, plain(tick)));
  }
  axes.append(s("line", {
    x1: x.range[0], x2: x.range[1], y1: y.range[0], y2: y.range[0], stroke: "var(--axis)" }));
  axes.append(s("text", { x: (x.range[0] + x.range[1]) / 2, y: height - 6, "text-anchor": "middle" }, chart.xLabel));
  const middle = (y.range[0] + margin.top) / 2;
  axes.append(s("text", {
    x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, chart.yLabel));
  svg.append(axes);
}

function drawSpans(svg, chart, x, y) {
  for (const span of chart.spans ?? []) {
    const [from, to] = [Math.max(x(span.from), x.range[0]), Math.min(x(span.to), x.range[1])];
    if (to <= from) continue;
    svg.append(s("rect", {
      x: from, y: y.range[1], width: to - from, height: y.range[0] - y.range[1], fill: span.colour, opacity: 0.1 }));
    svg.append(s("text", {
      x: (from + to) / 2, y: y.range[1] + 14, "text-anchor": "middle", fill: textColour(span.colour) },
      fitting(span, to - from)));
  }
}

function drawLines(svg, chart, x, y) {
  for (const line of chart.lines ?? []) {
    const upright = line.x !== undefined;
    const at = upright ? x(line.x) : y(line.y);
    const ends = upright ? { x1: at, x2: at, y1: y.range[0], y2: y.range[1] }
      : { x1: x.range[0], x2: x.range[1], y1: at, y2: at };
    svg.append(s("line", { ...ends, stroke: "var(--soft)", "stroke-dasharray": line.dash ?? null, opacity: 0.8 }));
    const place = upright ? { x: at + 6, y: y.range[1] + 34 } : { x: x.range[0] + 6, y: at - 5 };
    const room = svg.viewBox.baseVal.width - place.x;
    svg.append(s("text", { ...place, fill: "var(--soft)", "font-size": 11.5, ...HALO }, fitting(line, room)));
  }
}

// A label, or its short form where there is no room for it.
function fitting({ label, short }, room) {
  return short && 7.6 * label.length > room ? short : label;
}

const HALO = { stroke: "var(--card)", "stroke-width": 4, "paint-order": "stroke", "stroke-linejoin": "round" };

function path(points) {
  let pen = "M";
  let found = "";
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) continue;
    found += `${pen}${x.toFixed(2)} ${y.toFixed(2)}`;
    pen = "L";
  }
  return found;
}

function drawBand(svg, series, x, y, opacity) {
  if (!series.low) return;
  const upper = series.x.map((at, i) => [x(at), y(series.high[i])]);
  const lower = series.x.map((at, i) => [x(at), y(series.low[i])]).reverse();
  const outline = [...upper, ...lower].filter(([, place]) => Number.isFinite(place));
  if (outline.length < 3) return;
  svg.append(s("path", { d: `${path(outline)}Z`, fill: lineColour(series.colour), opacity, class: "band" }));
}

function drawSeries(svg, series, x, y) {
  const group = s("g", { class: "series", "data-label": series.label });
  group.append(s("path", {
    d: path(series.x.map((at, i) => [x(at), y(series.y[i])])),
    fill: "none", stroke: lineColour(series.colour), "stroke-width": series.chosen ? 3.4 : 2.2,
    "stroke-linejoin": "round",
    "stroke-dasharray": series.noLine ? "0 99999" : DASHES[series.dash] ?? null,
  }));
  for (const [at, value] of series.dots ?? []) {
    group.append(s("circle", { cx: x(at), cy: y(value), r: 2, fill: lineColour(series.colour), opacity: 0.45 }));
  }
  series.x.forEach((at, i) => {
    if (!Number.isFinite(series.y[i])) return;
    if (series.bars) {
      const bar = { x1: x(at), x2: x(at), y1: y(series.bars[i][0]), y2: y(series.bars[i][1]) };
      group.append(s("line", { ...bar, stroke: lineColour(series.colour), "stroke-width": 1.4 }));
    }
    if (series.marker) group.append(marker(series, x(at), y(series.y[i]), series.x.length > 40 ? 0.5 : 0.85));
  });
  svg.append(group);
}

// Names at the right end of the lines, the best on top, each tied to its line by a hair.
function drawLabels(svg, shown, x, y, margin) {
  const named_ = shown.filter((series) => !series.silent && series.y.some(Number.isFinite));
  const ends = named_.map((series) => {
    const last = series.y.findLastIndex(Number.isFinite);
    const mean = series.y.filter(Number.isFinite).reduce((sum, value) => sum + value, 0) / series.y.length;
    return { x: x(series.x[last]), y: y(series.y[last]), wish: y(series.y[last]) - 1e-3 * mean };
  });
  const tall = named_.length > 12 ? 13 : 16;
  const places = spread(ends.map((end) => end.wish), tall, margin.top + 4, y.range[0]);
  named_.forEach((series, i) => {
    const left = x.range[1] + 22;
    svg.append(s("path", {
      d: `M${ends[i].x + 6} ${ends[i].y}L${left - 10} ${places[i]}H${left - 4}`,
      fill: "none", stroke: lineColour(series.colour), "stroke-width": 0.9, opacity: 0.6 }));
    svg.append(s("text", { x: left, y: places[i] + 4, fill: textColour(series.colour), "font-weight": 500,
      "font-size": named_.length > 12 ? 11 : null },
      named(series.label, s)));
  });
}

// The interactive figure around the picture.
function chartFigure(chart, { caption, name, numbers, controls, height = 420 }) {
  const hidden = chosen(`${chart.id}-hidden`, new Set());
  const stage = h("div", { class: "stage" });
  const legend = chart.series.length > 1 ? h("div", { class: "legend", role: "group", "aria-label": "Curves" }) : null;
  let drawn = null;
  const redraw = () => {
    const width = Math.max(280, Math.round(stage.clientWidth || 900));
    drawn = drawChart(chart, width, width < WIDE ? Math.min(height, 340) : height, hidden);
    drawn.svg.setAttribute("role", "img");
    drawn.svg.setAttribute("tabindex", "0");
    drawn.svg.setAttribute("aria-label", `${chart.title}. Arrow keys read the values; a table follows.`);
    listen(drawn, chart);
    stage.replaceChildren(drawn.svg);
  };
  const toggle = (label) => {
    if (!hidden.delete(label)) hidden.add(label);
    choose(`${chart.id}-hidden`, hidden);
    redraw();
  };
  legend?.append(...chart.series.filter((one) => !one.silent).map((one) => chip(one, hidden, () => toggle(one.label))));
  new ResizeObserver(() => {
    if (drawn === null || Math.abs(stage.clientWidth - drawn.svg.viewBox.baseVal.width) > 1) redraw();
  }).observe(stage);
  const still = () => drawChart(chart, 820, 460, hidden).svg;
  const figure = h("figure", { id: chart.id, class: "card" }, controls ?? null, legend, stage,
    under(caption, figureButtons(name, still, numbers)));
  figure.redraw = redraw;
  return figure;
}

function chip(series, hidden, toggle) {
  const button = h("button", { type: "button", class: "chip", "aria-pressed": String(!hidden.has(series.label)),
    title: "Show or hide this curve" });
  const sample = s("svg", { viewBox: "0 0 30 12", width: 30, height: 12, "aria-hidden": "true" },
    s("line", { x1: 1, x2: 29, y1: 6, y2: 6, stroke: lineColour(series.colour), "stroke-width": 2,
      "stroke-dasharray": series.noLine ? "0 99" : DASHES[series.dash] ?? null }),
    series.marker ? marker(series, 15, 6, 0.8) : null);
  button.append(sample, h("span", {}, named(series.label)));
  button.addEventListener("click", () => {
    toggle();
    button.setAttribute("aria-pressed", String(!hidden.has(series.label)));
  });
  return button;
}

function listen(drawn, chart) {
  const { svg, x, y, shown } = drawn;
  const places = unique(shown.flatMap((series) => series.x)).sort((a, b) => a - b);
  if (!places.length) return;
  const ends = { y1: y.range[0], y2: y.range[1] };
  const rule = s("line", { ...ends, stroke: "var(--soft)", "stroke-dasharray": "3 3", opacity: 0 });
  svg.append(rule);
  let current = null;
  const show = (at, height, aloud) => {
    current = at;
    rule.setAttribute("x1", x(places[at]));
    rule.setAttribute("x2", x(places[at]));
    rule.setAttribute("opacity", 1);
    const { title, rows } = readings(shown, places[at], chart, height === null ? null : y.back(height));
    const box = svg.getBoundingClientRect();
    const shrink = box.width / svg.viewBox.baseVal.width;
    const vertical = height === null ? (y.range[0] + y.range[1]) / 2 : height;
    showTip({ x: box.left + shrink * x(places[at]), y: box.top + shrink * vertical }, title, rows);
    if (aloud) say(title, rows);
  };
  const hide = () => {
    rule.setAttribute("opacity", 0);
    hideTip();
  };
  const moved = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const at = x.back((event.clientX - box.left) * scale);
    show(nearest(places, at), (event.clientY - box.top) * scale, false);
  };
  svg.addEventListener("pointermove", moved);
  svg.addEventListener("pointerdown", moved);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    const start = step > 0 ? -1 : places.length;
    show(Math.min(places.length - 1, Math.max(0, (current ?? start) + step)), null, true);
  });
}

// What every curve says at one place, highest first; the one nearest to the pointer stands out.
function readings(shown, at, chart, height) {
  const found = [];
  for (const series of shown) {
    const i = series.x.indexOf(at);
    if (i < 0 || !Number.isFinite(series.y[i])) continue;
    found.push({ label: series.label, colour: lineColour(series.colour), y: series.y[i], value: chart.read(series, i),
      count: series.count?.[i] });
  }
  found.sort((a, b) => b.y - a.y);
  if (height !== null && found.length > 1) {
    const near = found.reduce((best, row) => (Math.abs(row.y - height) < Math.abs(best.y - height) ? row : best));
    near.strong = true;
  }
  return { title: chart.xName(at) + shareCounts(found, chart.counted), rows: found };
}

// How many draws or seeds are behind the values: once in the title if it is the same for all, else beside each.
function shareCounts(rows, noun) {
  if (!noun) return "";
  const text = (count) => `${count} ${count === 1 ? noun : `${noun}s`}`;
  if (unique(rows.map((row) => row.count)).length === 1) return `, ${text(rows[0].count)}`;
  for (const row of rows) row.value += ` (${text(row.count)})`;
  return "";
}
