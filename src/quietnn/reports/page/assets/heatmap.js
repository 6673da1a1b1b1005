// A surface seen from above: colours by height, the points tried, the pole, and the regions of compensation named.
//
// A surface is { id, title, xLabel, yLabel, zLabel, zShort, points, mesh, levels, colour, marks, pole, regions, rise,
// smooth, zText, read }, where points are { x, y, z } with z NaN for what is infeasible, and marks are
// { x, y, label, marker, colour }.

function surfaceFrame(surface, width, height) {
  const narrow = width < 520;
  const margin = { top: surface.regions ? 30 : 12, right: narrow ? 62 : 84, bottom: 46, left: 54 };
  const all = [...surface.points, ...surface.marks.filter((mark) => mark.always)];
  const x = linear(widened(extent(all.map((point) => point.x)), 0.06), [margin.left, width - margin.right]);
  const y = linear(widened(extent(all.map((point) => point.y)), 0.06), [height - margin.bottom, margin.top]);
  return { x, y, margin, narrow };
}

function drawSurface(surface, width, height) {
  const { x, y, margin, narrow } = surfaceFrame(surface, width, height);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", "font-size": 12.5 });
  const clip = `clip-${surface.id}-${width}`;
  const [left, right, top, bottom] = [x.range[0], x.range[1], y.range[1], y.range[0]];
  svg.append(s("clipPath", { id: clip }, s("rect", { x: left, y: top, width: right - left, height: bottom - top })));
  svg.append(s("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "var(--well)" }));
  const inside = s("g", { "clip-path": `url(#${clip})` });
  if (surface.mesh.cells && surface.cellular) paintCells(inside, surface, x, y);
  else paintBands(inside, surface, x, y);
  if (surface.pole !== null) drawPole(svg, inside, surface, x, y);
  if (!surface.smooth) drawTrials(inside, surface, x, y);
  svg.append(inside);
  if (surface.regions) drawRegions(svg, surface, x, y);
  drawSurfaceAxes(svg, surface, x, y, height);
  drawMarks(svg, surface, x, y);
  drawScale(svg, surface, width, y, narrow);
  return { svg, x, y };
}

function paintBands(svg, surface, x, y) {
  const { levels } = surface;
  for (const band of bands(surface.mesh, levels, x, y)) {
    if (!band.d) continue;
    const fill = surface.colour((band.low + band.top) / 2);
    svg.append(s("path", { d: band.d, fill, stroke: fill, "stroke-width": 0.7, "stroke-linejoin": "round" }));
  }
  if (surface.mesh.triangles.length) return;
  for (const point of surface.mesh.points.filter((one) => Number.isFinite(one.z))) {
    svg.append(s("circle", { cx: x(point.x), cy: y(point.y), r: 8, fill: surface.colour(point.z) }));
  }
}

function paintCells(svg, surface, x, y) {
  const { xs, ys } = surface.mesh.cells;
  const [across, down] = [borders(xs).map(x), borders(ys).map(y)];
  for (const point of surface.points) {
    if (!Number.isFinite(point.z)) continue;
    const [column, row] = [xs.indexOf(point.x), ys.indexOf(point.y)];
    const fill = surface.colour(point.z);
    svg.append(s("rect", { x: across[column], y: down[row + 1], width: across[column + 1] - across[column],
      height: down[row] - down[row + 1], fill, stroke: fill, "stroke-width": 0.5 }));
  }
}

// Half-way between neighbours, so that each cell holds its point.
function borders(centres) {
  const middle = centres.slice(1).map((value, i) => (value + centres[i]) / 2);
  return [2 * centres[0] - middle[0], ...middle, 2 * centres.at(-1) - middle.at(-1)];
}

function drawTrials(svg, surface, x, y) {
  for (const point of surface.points) {
    const [px, py] = [x(point.x), y(point.y)];
    if (Number.isFinite(point.z)) {
      svg.append(s("circle", { cx: px, cy: py, r: 2.6, fill: "#ffffff", stroke: "#333333", "stroke-width": 0.8 }));
    } else {
      svg.append(s("path", { d: `M${px - 3} ${py - 3}l6 6m0-6l-6 6`, stroke: "var(--soft)", "stroke-width": 1.1 }));
    }
  }
}

function drawPole(svg, inside, surface, x, y) {
  const at = x(surface.pole);
  if (at > x.range[1]) return;
  const pattern = `hatch-${surface.id}`;
  svg.append(s("pattern", { id: pattern, width: 7, height: 7, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" }, s("path", { d: "M0 0V7", stroke: "var(--axis)", "stroke-width": 1 })));
  const from = Math.max(at, x.range[0]);
  inside.append(s("rect", { x: from, y: y.range[1], width: x.range[1] - from, height: y.range[0] - y.range[1],
    fill: `url(#${pattern})`, opacity: 0.55 }));
  if (at >= x.range[0]) {
    const ends = { x1: at, x2: at, y1: y.range[0], y2: y.range[1] };
    inside.append(s("line", { ...ends, stroke: "var(--ink)", "stroke-width": 1.8 }));
  }
}

// Zero, under-, exact and over-compensation, and what lies past the pole.
function drawRegions(svg, surface, x, y) {
  const [left, right] = x.range;
  const top = y.range[1];
  const pole = surface.pole ?? Infinity;
  const names = [["under-compensation", "under", 0, 1], ["over-compensation", "over", 1, pole],
    ["infeasible", "inf.", pole, Infinity]];
  for (const [long, short, from, to] of names) {
    const [start, end] = [Math.max(left, x(from)), Math.min(right, x(to))];
    if (!(end - start > 4)) continue;
    svg.append(s("path", { d: `M${start + 1.5} ${top - 4}v-4H${end - 1.5}v4`, fill: "none", stroke: "var(--axis)" }));
    const text = end - start > 6.6 * long.length ? long : end - start > 7 * short.length ? short : "";
    svg.append(s("text", { x: (start + end) / 2, y: top - 13, "text-anchor": "middle", "font-size": 11.5,
      fill: "var(--soft)" }, text));
  }
  for (const [at, name] of [[0, "zero compensation"], [1, "exact compensation"]]) {
    const place = x(at);
    if (place <= left || place >= right) continue;
    const line = s("line", { x1: place, x2: place, y1: y.range[0], y2: top, stroke: "#ffffff", "stroke-width": 1.1,
      "stroke-dasharray": "2 4", opacity: 0.9 });
    line.append(s("title", {}, name));
    svg.append(line);
  }
}

function drawSurfaceAxes(svg, surface, x, y, height) {
  const axes = s("g", { fill: "var(--soft)" });
  for (const tick of roundTicks(x.domain, (x.range[1] - x.range[0]) / 60)) {
    axes.append(s("line", { x1: x(tick), x2: x(tick), y1: y.range[0], y2: y.range[0] + 5, stroke: "var(--axis)" }));
    axes.append(s("text", { x: x(tick), y: y.range[0] + 19, "text-anchor": "middle" }, plain(tick)));
  }
  for (const tick of roundTicks(y.domain, (y.range[0] - y.range[1]) / 50)) {
    axes.append(s("line", { x1: x.range[0] - 5, x2: x.range[0], y1: y(tick), y2: y(tick), stroke: "var(--axis)" }));
    axes.append(s("text", { x: x.range[0] - 8, y: y(tick) + 4, "text-anchor": "end" }, plain(tick)));
  }
  const [middle, across] = [(y.range[0] + y.range[1]) / 2, (x.range[0] + x.range[1]) / 2];
  axes.append(s("text", { x: across, y: height - 6, "text-anchor": "middle" }, surface.xLabel));
  axes.append(s("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` },
    surface.yLabel));
  svg.append(axes);
}

// The first of four corners of a point where its name meets neither another name nor another point.
function freeCorner(label, px, py, x, y, taken) {
  const wide = 8 * label.length;
  const corners = [[px + 9, py - 17], [px + 9, py + 5], [px - 9 - wide, py - 17], [px - 9 - wide, py + 5]];
  const free = corners.find(([left, top]) => left > x.range[0] && left + wide < x.range[1] && top > y.range[1]
    && taken.every(([l, t, w]) => left + wide < l || l + w < left || top + 14 < t || t + 14 < top)) ?? corners[0];
  taken.push([...free, wide]);
  return free;
}

function drawMarks(svg, surface, x, y) {
  const taken = surface.marks.map((mark) => [x(mark.x) - 6, y(mark.y) - 6, 12]);
  for (const mark of surface.marks) {
    const [px, py] = [x(mark.x), y(mark.y)];
    if (px < x.range[0] || px > x.range[1] || py > y.range[0] || py < y.range[1]) continue;
    const group = s("g", { class: "mark" });
    group.append(s("path", { d: MARKERS[mark.marker] ?? DISC, transform: `translate(${px} ${py}) scale(1.35)`,
      fill: mark.colour, stroke: "#ffffff", "stroke-width": 1 }));
    const [left, top] = freeCorner(mark.label, px, py, x, y, taken);
    group.append(s("text", { x: left, y: top + 11, "font-weight": 600, fill: "#ffffff", ...HALO, stroke: "#1b1f27",
      "stroke-width": 3 }, mark.label));
    svg.append(group);
  }
}

function drawScale(svg, surface, width, y, narrow) {
  const left = width - (narrow ? 54 : 72);
  const { levels } = surface;
  const tall = y.range[0] - y.range[1];
  const place = (i) => y.range[0] - (i / (levels.length - 1)) * tall;
  const step = Math.ceil((levels.length * 22) / tall);
  levels.slice(0, -1).forEach((level, i) => {
    const fill = surface.colour((level + levels[i + 1]) / 2);
    svg.append(s("rect", { x: left, y: place(i + 1), width: 12, height: tall / (levels.length - 1) + 0.5, fill }));
  });
  levels.forEach((level, i) => {
    if (i % step) return;
    const at = { x: left + 16, y: place(i) + 4 };
    svg.append(s("text", { ...at, "font-size": 11, fill: "var(--soft)" }, surface.zText(level)));
  });
  const at = width - 4;
  const middle = (y.range[0] + y.range[1]) / 2;
  if (!narrow) {
    svg.append(s("text", { x: at, y: middle, "font-size": 11.5, "text-anchor": "middle", fill: "var(--soft)",
      transform: `rotate(-90 ${at} ${middle})` }, surface.zLabel));
  }
}

// The picture in the page: pointer and keys read the point nearest to them.
function surfaceStage(surface, height = 420) {
  const stage = h("div", { class: "stage" });
  let drawn = null;
  const redraw = () => {
    const width = Math.max(280, Math.round(stage.clientWidth || 560));
    drawn = drawSurface(surface, width, Math.min(height, Math.max(300, width * 0.85)));
    drawn.svg.setAttribute("role", "img");
    drawn.svg.setAttribute("tabindex", "0");
    drawn.svg.setAttribute("aria-label", `${surface.title}. Arrow keys visit the points.`);
    listenToPoints(drawn, surface);
    stage.replaceChildren(drawn.svg);
  };
  new ResizeObserver(() => {
    if (drawn === null || Math.abs(stage.clientWidth - drawn.svg.viewBox.baseVal.width) > 1) redraw();
  }).observe(stage);
  return stage;
}

function listenToPoints(drawn, surface) {
  const { svg, x, y } = drawn;
  const ring = s("circle", { r: 7, fill: "none", stroke: "#ffffff", "stroke-width": 2, opacity: 0 });
  svg.append(ring);
  const order = [...surface.points].sort((a, b) => a.x - b.x || a.y - b.y);
  let current = -1;
  const show = (point, aloud) => {
    ring.setAttribute("cx", x(point.x));
    ring.setAttribute("cy", y(point.y));
    ring.setAttribute("opacity", 1);
    const box = svg.getBoundingClientRect();
    const shrink = box.width / svg.viewBox.baseVal.width;
    const { title, rows } = surface.read(point);
    showTip({ x: box.left + shrink * x(point.x), y: box.top + shrink * y(point.y) }, title, rows);
    if (aloud) say(title, rows);
  };
  const hide = () => {
    ring.setAttribute("opacity", 0);
    hideTip();
  };
  const moved = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let [best, least] = [-1, 40 ** 2];
    order.forEach((point, i) => {
      const distance = (x(point.x) - px) ** 2 + (y(point.y) - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    if (best < 0) return hide();
    current = best;
    return show(order[best], false);
  };
  svg.addEventListener("pointermove", moved);
  svg.addEventListener("pointerdown", moved);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !order.length) return;
    event.preventDefault();
    current = (current + step + order.length) % order.length;
    show(order[current], true);
  });
}
