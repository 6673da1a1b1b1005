// Rows of dots, a row for each layer: small ones are draws, the large one their mean.
//
// A panel is { label, values (draws by rows), line, lineName, limits (a bar for each row, e.g. its pole), stretch,
// ticks, text }.

const ROW = 20;

function drawDots(plot, width) {
  const stacked = width < 680;
  const names = plot.names.map((name) => (name.length > 30 ? `…${name.slice(-29)}` : name));
  const left = Math.min(stacked ? 150 : 220, 16 + 6.6 * Math.max(...names.map((name) => name.length)));
  const tall = plot.names.length * ROW;
  const block = tall + 66;
  const gap = 26;
  const count = stacked ? 1 : plot.panels.length;
  const panelWidth = (width - left - 14 - gap * (count - 1)) / count;
  const height = stacked ? block * plot.panels.length : block;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", "font-size": 12 });
  plot.panels.forEach((panel, i) => {
    const start = stacked ? left : left + i * (panelWidth + gap);
    const top = (stacked ? i * block : 0) + 22;
    if (stacked || i === 0) writeRows(svg, names, left, top);
    drawPanel(svg, plot, panel, { start, end: start + panelWidth, top, tall });
  });
  return svg;
}

function writeRows(svg, names, left, top) {
  names.forEach((name, row) => {
    const place = { x: left - 10, y: top + (row + 0.5) * ROW + 4 };
    svg.append(s("text", { ...place, "text-anchor": "end", fill: "var(--ink)" }, named(name, s)));
  });
}

function drawPanel(svg, plot, panel, { start, end, top, tall }) {
  const all = [...panel.values.flat(), panel.line].filter(Number.isFinite);
  const long = panel.stretch && Math.max(...all) > 12;
  const [low, high] = extent(all);
  const x = long ? stretched([low - 0.3, 1.15 * high], [start, end]) : linear(widened([low, high], 0.06), [start, end]);
  const bottom = top + tall;
  for (let row = 0; row < plot.names.length; row += 1) {
    const y = top + (row + 0.5) * ROW;
    svg.append(s("line", { x1: start, x2: end, y1: y, y2: y, stroke: "var(--grid)" }));
  }
  const { ticks = roundTicks, text = plain } = panel;
  for (const tick of long ? stretchedTicks(x, 26) : ticks(x.domain, (end - start) / 52)) {
    const place = { x: x(tick), y: bottom + 17, "text-anchor": "middle", fill: "var(--soft)" };
    svg.append(s("text", place, text(tick)));
    svg.append(s("line", { x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4, stroke: "var(--axis)" }));
  }
  svg.append(s("line", { x1: start, x2: end, y1: bottom, y2: bottom, stroke: "var(--axis)" }));
  svg.append(s("line", { x1: x(panel.line), x2: x(panel.line), y1: top - 4, y2: bottom, stroke: "var(--soft)",
    "stroke-dasharray": "4 3" }));
  const over = Math.min(Math.max(x(panel.line), start + 34), end - 34);
  const words = { "text-anchor": "middle", fill: "var(--soft)" };
  svg.append(s("text", { x: over, y: top - 9, "font-size": 11, ...words }, panel.lineName));
  svg.append(s("text", { x: (start + end) / 2, y: bottom + 36, ...words }, panel.label));
  plot.names.forEach((_, row) => drawRow(svg, plot, panel, x, row, top + (row + 0.5) * ROW));
}

function drawRow(svg, plot, panel, x, row, y) {
  const values = panel.values.map((draw) => draw[row]).filter(Number.isFinite);
  const limit = panel.limits?.[row];
  if (Number.isFinite(limit) && limit <= x.domain[1]) {
    const bar = { x1: x(limit), x2: x(limit), y1: y - 7, y2: y + 7 };
    svg.append(s("line", { ...bar, stroke: "var(--ink)", "stroke-width": 2 }));
  } else if (Number.isFinite(limit)) {
    const head = `M${x.range[1] - 5} ${y - 4}l5 4-5 4`;
    svg.append(s("path", { d: head, fill: "none", stroke: "var(--soft)", "stroke-width": 1.4 }));
  }
  const style = plot.styles?.[row] ?? plot;
  for (const value of values.length > 1 ? values : []) {
    svg.append(s("circle", { cx: x(value), cy: y, r: 2.4, fill: lineColour(style.colour), opacity: 0.4 }));
  }
  if (values.length) svg.append(marker(style, x(mean(values)), y, 0.95));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function dotsStage(plot) {
  const stage = h("div", { class: "stage" });
  let shown = null;
  const redraw = () => {
    const width = Math.max(280, Math.round(stage.clientWidth || 900));
    shown = drawDots(plot, width);
    shown.setAttribute("role", "img");
    shown.setAttribute("tabindex", "0");
    shown.setAttribute("aria-label", `${plot.title}. Arrow keys visit the layers; a table follows.`);
    listenToRows(shown, plot, width < 680);
    stage.replaceChildren(shown);
  };
  new ResizeObserver(() => {
    if (shown === null || Math.abs(stage.clientWidth - shown.viewBox.baseVal.width) > 1) redraw();
  }).observe(stage);
  return stage;
}

function listenToRows(svg, plot, stacked) {
  const block = plot.names.length * ROW + 66;
  const strip = s("rect", { x: 0, width: svg.viewBox.baseVal.width, height: ROW, fill: "var(--accent)", opacity: 0 });
  svg.append(strip);
  let current = -1;
  const show = (row, aloud, place) => {
    const top = 22 + row * ROW + (stacked ? place.block * block : 0);
    strip.setAttribute("y", top);
    strip.setAttribute("opacity", 0.1);
    const rows = plot.read(row);
    const box = svg.getBoundingClientRect();
    const shrink = box.width / svg.viewBox.baseVal.width;
    const at = { x: place.x ?? box.left + box.width / 2, y: box.top + shrink * (top + ROW / 2) };
    showTip(at, plot.names[row], rows);
    if (aloud) say(plot.names[row], rows);
  };
  const hide = () => {
    strip.setAttribute("opacity", 0);
    hideTip();
  };
  const moved = (event) => {
    const box = svg.getBoundingClientRect();
    const y = (event.clientY - box.top) * (svg.viewBox.baseVal.width / box.width);
    const at = stacked ? Math.floor(y / block) : 0;
    const row = Math.floor((y - 22 - at * block) / ROW);
    if (row < 0 || row >= plot.names.length) return hide();
    current = row;
    return show(row, false, { x: event.clientX, block: at });
  };
  svg.addEventListener("pointermove", moved);
  svg.addEventListener("pointerdown", moved);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    current = Math.min(plot.names.length - 1, Math.max(0, current + step));
    show(current, true, { block: 0 });
  });
}
