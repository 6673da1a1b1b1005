// The same surface as a relief to turn: a canvas, triangles painted from the far to the near, no library.

function reliefStage(surface, height = 420) {
  const canvas = h("canvas", { class: "relief", tabindex: "0", role: "img",
    "aria-label": `${surface.title}, in relief. Arrow keys turn it, Home puts it back.` });
  const stage = h("div", { class: "stage" }, canvas);
  const usual = { turn: 0.74, tilt: 0.5 };
  const view = chosen(`${surface.id}-view`, { ...usual });
  const redraw = () => {
    const width = Math.max(280, Math.round(stage.clientWidth || 560));
    const tall = Math.min(height, Math.max(300, width * 0.85));
    const dense = Math.min(3, devicePixelRatio || 1);
    canvas.width = width * dense;
    canvas.height = tall * dense;
    canvas.style.height = `${tall}px`;
    const pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    drawRelief(pen, surface, view, width, tall, isDark());
  };
  const turned = () => {
    choose(`${surface.id}-view`, view);
    redraw();
  };
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, y: event.clientY, ...view };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    view.turn = grip.turn + (event.clientX - grip.x) * 0.01;
    view.tilt = Math.min(1.5, Math.max(0.05, grip.tilt + (event.clientY - grip.y) * 0.008));
    turned();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { grip = null; });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08] };
    if (event.key === "Home") Object.assign(view, usual);
    else if (!steps[event.key]) return;
    else {
      view.turn += steps[event.key][0];
      view.tilt = Math.min(1.5, Math.max(0.05, view.tilt + steps[event.key][1]));
    }
    event.preventDefault();
    turned();
  });
  new ResizeObserver(redraw).observe(stage);
  const themed = () => {
    if (canvas.isConnected) redraw();
    else removeEventListener("themechange", themed);
  };
  addEventListener("themechange", themed);
  stage.still = () => stillRelief(surface, view);
  return stage;
}

// The relief as it is turned now, large, in the light theme and on white.
function stillRelief(surface, view) {
  const [width, height, scale] = [640, 480, 3];
  const canvas = h("canvas", { width: width * scale, height: height * scale });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  drawRelief(pen, surface, view, width, height, false);
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, width, height);
  return canvas;
}

function drawRelief(pen, surface, view, width, height, dark) {
  const style = getComputedStyle(document.documentElement);
  const [text, soft, line] = ["--ink", "--soft", "--axis"].map((name) => pickColour(style, name, dark));
  const ink = { text, soft, line, halo: dark ? DARK_PAPER : LIGHT_PAPER };
  const points = surface.mesh.points;
  const [xs, ys] = [extent(points.map((point) => point.x)), extent(points.map((point) => point.y))];
  const zs = extent(points.map((point) => point.z));
  const height_ = surface.rise ?? ((z) => (z - zs[0]) / (zs[1] - zs[0] || 1));
  const box = (x, y, z) => [(x - xs[0]) / (xs[1] - xs[0] || 1) - 0.5, (y - ys[0]) / (ys[1] - ys[0] || 1) - 0.5,
    0.9 * (Math.min(1, Math.max(0, height_(z))) - 0.5)];
  const [cosTurn, sinTurn] = [Math.cos(view.turn), Math.sin(view.turn)];
  const [cosTilt, sinTilt] = [Math.cos(view.tilt), Math.sin(view.tilt)];
  const flat = ([x, y, z]) => {
    const [across, away] = [x * cosTurn - y * sinTurn, x * sinTurn + y * cosTurn];
    const depth = away * cosTilt - z * sinTilt;
    const near = 1 / (1 + 0.25 * depth);
    return [across * near, -(z * cosTilt + away * sinTilt) * near, depth];
  };
  const project = fitted(flat, width, height);
  pen.clearRect(0, 0, width, height);
  pen.font = "12.5px system-ui, sans-serif";
  drawFloor(pen, surface, project, { xs, ys, low: zs[0], box, ink, view });
  drawHeights(pen, surface, project, { xs, ys, zs, box, ink });
  drawFacets(pen, surface, project, box);
  drawPins(pen, surface, project, { xs, ys, zs, box, ink });
}

// The projection scaled and moved so that the whole box, with room for its labels, fills the canvas.
function fitted(flat, width, height) {
  const corners = [-0.5, 0.5].flatMap((x) => [-0.5, 0.5].flatMap((y) => [-0.45, 0.45].map((z) => flat([x, y, z]))));
  const [xs, ys] = [extent(corners.map((corner) => corner[0])), extent(corners.map((corner) => corner[1]))];
  const size = Math.min((width - 112) / (xs[1] - xs[0]), (height - 70) / (ys[1] - ys[0]));
  const [left, top] = [width / 2 + 20 - (size * (xs[0] + xs[1])) / 2, height / 2 - 8 - (size * (ys[0] + ys[1])) / 2];
  return (point) => {
    const [x, y, depth] = flat(point);
    return [left + size * x, top + size * y, depth];
  };
}

function pickColour(style, name, inDark) {
  const [light, dark] = style.getPropertyValue(name).replace(/light-dark\(|\)/g, "").split(",");
  return (inDark ? dark ?? light : light).trim();
}

function drawFloor(pen, surface, project, { xs, ys, low, box, ink, view }) {
  const stroke = (from, to, colour) => {
    const [a, b] = [project(box(...from)), project(box(...to))];
    pen.strokeStyle = colour;
    pen.beginPath();
    pen.moveTo(a[0], a[1]);
    pen.lineTo(b[0], b[1]);
    pen.stroke();
  };
  pen.lineWidth = 1;
  const front = Math.cos(view.turn) > 0 ? ys[0] : ys[1];
  const side = Math.sin(view.turn) > 0 ? xs[0] : xs[1];
  pen.fillStyle = ink.soft;
  pen.textAlign = "center";
  const write = (text, x, y, away) => {
    const [px, py] = project(box(x, y, low).map((value, i) => value + away[i]));
    pen.fillText(text, px, py + 4);
  };
  const [out, aside] = [front === ys[0] ? -0.07 : 0.07, side === xs[0] ? -0.09 : 0.09];
  for (const tick of roundTicks(xs, 5)) {
    stroke([tick, ys[0], low], [tick, ys[1], low], ink.line);
    write(plain(tick, 3), tick, front, [0, out, 0]);
  }
  for (const tick of roundTicks(ys, 5)) {
    stroke([xs[0], tick, low], [xs[1], tick, low], ink.line);
    write(plain(tick, 3), side, tick, [aside, 0, 0]);
  }
  pen.fillStyle = ink.text;
  write(surface.xShort ?? surface.xLabel, (xs[0] + xs[1]) / 2, front, [0, 2.4 * out, 0]);
  write(surface.yShort ?? surface.yLabel, side, (ys[0] + ys[1]) / 2, [2.1 * aside, 0, 0]);
}

// The axis of heights stands at the edge furthest left; faint lines on the walls behind carry it around.
function drawHeights(pen, surface, project, { xs, ys, zs, box, ink }) {
  const corners = xs.flatMap((x) => ys.map((y) => ({ x, y, foot: project(box(x, y, zs[0])) })));
  const edge = corners.reduce((best, one) => (one.foot[0] < best.foot[0] ? one : best));
  const right = corners.reduce((best, one) => (one.foot[0] > best.foot[0] ? one : best));
  const back = corners.reduce((best, one) => (one.foot[2] > best.foot[2] ? one : best));
  const line = (places, colour) => {
    pen.strokeStyle = colour;
    pen.beginPath();
    places.forEach(([px, py], i) => pen[i ? "lineTo" : "moveTo"](px, py));
    pen.stroke();
  };
  const at = (corner, z) => project(box(corner.x, corner.y, z));
  pen.lineWidth = 1;
  line([at(edge, zs[0]), at(edge, zs[1])], ink.soft);
  pen.textAlign = "right";
  let previous = Infinity;
  for (const z of heightTicks(surface, zs)) {
    const [px, py] = at(edge, z);
    pen.globalAlpha = 0.45;
    line([[px, py], at(back, z), at(right, z)], ink.line);
    pen.globalAlpha = 1;
    line([[px - 4, py], [px, py]], ink.soft);
    if (previous - py < 14) continue;
    pen.fillStyle = ink.soft;
    pen.fillText(surface.zText(z), px - 7, py + 4);
    previous = py;
  }
  const [px, py] = at(edge, zs[1]);
  pen.fillStyle = ink.text;
  pen.textAlign = "left";
  pen.fillText(surface.zShort, Math.max(4, px - 40), py - 12);
}

function heightTicks(surface, zs) {
  if (!surface.rise) return roundTicks(zs, 5);
  return surface.levels.filter((level) => level >= zs[0] && level <= zs[1]);
}

function drawFacets(pen, surface, project, box) {
  const placed = surface.mesh.points.map((point) => box(point.x, point.y, Number.isFinite(point.z) ? point.z : 0));
  const seen = placed.map(project);
  const facets = surface.mesh.triangles.map((corners) => {
    const [a, b, c] = corners.map((corner) => placed[corner]);
    const z = corners.reduce((sum, corner) => sum + surface.mesh.points[corner].z, 0) / 3;
    const depth = corners.reduce((sum, corner) => sum + seen[corner][2], 0);
    return { corners, z, depth, light: lighting(a, b, c) };
  });
  if (!surface.smooth) facets.push(...dotsOf(surface, seen));
  facets.sort((one, other) => other.depth - one.depth);
  pen.lineJoin = "round";
  for (const facet of facets) {
    if (facet.dot) {
      drawDot(pen, facet.dot);
      continue;
    }
    const colour = surface.colour(facet.z);
    pen.fillStyle = facet.light < 0 ? mix(colour, "#000000", -facet.light) : mix(colour, "#ffffff", facet.light);
    pen.strokeStyle = pen.fillStyle;
    pen.lineWidth = 0.8;
    pen.beginPath();
    facet.corners.forEach((corner, i) => pen[i ? "lineTo" : "moveTo"](seen[corner][0], seen[corner][1]));
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
}

// The measured points, each a little nearer than the facets that meet in it, so that only a hill in front hides it.
function dotsOf(surface, seen) {
  return surface.mesh.points.flatMap((point, i) =>
    (Number.isFinite(point.z) ? [{ dot: seen[i], depth: 3 * seen[i][2] - 0.12 }] : []));
}

function drawDot(pen, [x, y]) {
  pen.fillStyle = "#ffffff";
  pen.strokeStyle = "#333333";
  pen.lineWidth = 0.7;
  pen.beginPath();
  pen.arc(x, y, 2.2, 0, 7);
  pen.fill();
  pen.stroke();
}

// A little brighter where a facet faces the upper left, a little darker where it turns away.
function lighting(a, b, c) {
  const [u, v] = [b.map((value, i) => value - a[i]), c.map((value, i) => value - a[i])];
  const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
  const length = Math.hypot(...normal) || 1;
  const facing = ((normal[2] < 0 ? -1 : 1) * (-0.45 * normal[0] - 0.35 * normal[1] + 0.82 * normal[2])) / length;
  return Math.max(-0.28, Math.min(0.16, (facing - 0.75) * 0.6));
}

// Stems from the floor to the named points, and the pole as a pane of glass.
function drawPins(pen, surface, project, { xs, ys, zs, box, ink }) {
  const [low, high] = zs;
  if (surface.pole !== null && surface.pole >= xs[0] && surface.pole <= xs[1]) {
    const corners = [[ys[0], low], [ys[1], low], [ys[1], high], [ys[0], high]];
    pen.beginPath();
    corners.forEach(([y, z], i) => {
      const at = project(box(surface.pole, y, z));
      pen[i ? "lineTo" : "moveTo"](at[0], at[1]);
    });
    pen.closePath();
    pen.fillStyle = "rgba(130, 140, 160, 0.22)";
    pen.fill();
    pen.strokeStyle = ink.soft;
    pen.stroke();
  }
  const written = [];
  for (const mark of surface.marks) {
    const inside = mark.x >= xs[0] && mark.x <= xs[1] && mark.y >= ys[0] && mark.y <= ys[1];
    if (!inside || !Number.isFinite(mark.z)) continue;
    const [foot, head] = [project(box(mark.x, mark.y, low)), project(box(mark.x, mark.y, mark.z))];
    pen.strokeStyle = ink.text;
    pen.lineWidth = 1;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(foot[0], foot[1]);
    pen.lineTo(head[0], head[1] - 14);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = mark.colour;
    pen.strokeStyle = "#ffffff";
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(head[0], head[1], 5, 0, 7);
    pen.fill();
    pen.stroke();
    pen.fillStyle = ink.text;
    pen.textAlign = "center";
    pen.strokeStyle = ink.halo;
    pen.lineWidth = 3;
    let above = head[1] - 18;
    while (written.some(([x, y]) => Math.abs(x - head[0]) < 52 && Math.abs(y - above) < 14)) above -= 15;
    written.push([head[0], above]);
    pen.strokeText(mark.label, head[0], above);
    pen.fillText(mark.label, head[0], above);
  }
}
