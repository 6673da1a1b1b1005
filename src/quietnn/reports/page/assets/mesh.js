// Surfaces from points: triangles over scattered ones (Bowyer and Watson's way), rows of cells over a full grid.

function grid(points) {
  const xs = unique(points.map((point) => point.x)).sort((a, b) => a - b);
  const ys = unique(points.map((point) => point.y)).sort((a, b) => a - b);
  if (xs.length < 2 || ys.length < 2 || xs.length * ys.length !== points.length) return null;
  const [column, row] = [new Map(xs.map((x, i) => [x, i])), new Map(ys.map((y, i) => [y, i]))];
  const at = new Array(points.length);
  points.forEach((point, i) => { at[row.get(point.y) * xs.length + column.get(point.x)] = i; });
  return { xs, ys, at };
}

function gridTriangles(points, { xs, ys, at }) {
  const triangles = [];
  for (let row = 0; row + 1 < ys.length; row += 1) {
    for (let column = 0; column + 1 < xs.length; column += 1) {
      const first = row * xs.length + column;
      const corners = [at[first], at[first + 1], at[first + xs.length + 1], at[first + xs.length]];
      if (corners.every((corner) => Number.isFinite(points[corner].z))) {
        triangles.push([corners[0], corners[1], corners[2]], [corners[0], corners[2], corners[3]]);
      }
    }
  }
  return triangles;
}

function delaunay(points) {
  const [x0, x1] = extent(points.map((point) => point.x));
  const [y0, y1] = extent(points.map((point) => point.y));
  // A shift far below a pixel keeps four points of a square from lying on one circle.
  const all = points.map((point, i) => [(point.x - x0) / (x1 - x0 || 1) + 1e-7 * ((i * 37) % 11),
    (point.y - y0) / (y1 - y0 || 1) + 1e-7 * ((i * 53) % 13)]);
  const count = all.length;
  all.push([-50, -50], [51, -50], [0.5, 80]);
  let triangles = [circled([count, count + 1, count + 2], all)];
  for (let i = 0; i < count; i += 1) {
    const [px, py] = all[i];
    const edges = new Map();
    triangles = triangles.filter((triangle) => {
      if ((px - triangle.x) ** 2 + (py - triangle.y) ** 2 > triangle.r2) return true;
      const [a, b, c] = triangle.corners;
      for (const [from, to] of [[a, b], [b, c], [c, a]]) {
        const key = from < to ? `${from},${to}` : `${to},${from}`;
        if (!edges.delete(key)) edges.set(key, [from, to]);
      }
      return false;
    });
    for (const [from, to] of edges.values()) triangles.push(circled([from, to, i], all));
  }
  return triangles.map((triangle) => triangle.corners).filter((corners) => Math.max(...corners) < count);
}

function circled(corners, all) {
  const [[ax, ay], [bx, by], [cx, cy]] = corners.map((corner) => all[corner]);
  const d = 2 * (ax * (by - cy) + bx * (cy - ay) + cx * (ay - by)) || 1e-30;
  const [a2, b2, c2] = [ax * ax + ay * ay, bx * bx + by * by, cx * cx + cy * cy];
  const x = (a2 * (by - cy) + b2 * (cy - ay) + c2 * (ay - by)) / d;
  const y = (a2 * (cx - bx) + b2 * (ax - cx) + c2 * (bx - ax)) / d;
  return { corners, x, y, r2: (ax - x) ** 2 + (ay - y) ** 2 };
}

// The feasible points, each place once (the last visit counts), and the triangles between them.
function surfaceMesh(points) {
  const cells = grid(points);
  if (cells) return { points, cells, triangles: gridTriangles(points, cells) };
  const last = new Map();
  for (const point of points) if (Number.isFinite(point.z)) last.set(`${point.x},${point.y}`, point);
  const kept = [...last.values()];
  const flat = unique(kept.map((p) => p.x)).length < 2 || unique(kept.map((p) => p.y)).length < 2;
  return { points: kept, cells: null, triangles: kept.length < 3 || flat ? [] : delaunay(kept) };
}

// The part of a polygon of [x, y, z] on one side of a height.
function cut(polygon, height, above) {
  const kept = [];
  polygon.forEach((point, i) => {
    const next = polygon[(i + 1) % polygon.length];
    const [inside, nextInside] = [point[2] >= height === above, next[2] >= height === above];
    if (inside) kept.push(point);
    if (inside !== nextInside) {
      const share = (height - point[2]) / (next[2] - point[2]);
      kept.push(point.map((value, axis) => value + share * (next[axis] - value)));
    }
  });
  return kept;
}

// One path for each band of heights, in the units of x and y.
function bands(mesh, levels, x, y) {
  const found = levels.slice(1).map((top, i) => ({ low: levels[i], top, d: [] }));
  for (const corners of mesh.triangles) {
    const triangle = corners.map((corner) => {
      const point = mesh.points[corner];
      return [x(point.x), y(point.y), point.z];
    });
    const [low, high] = extent(triangle.map((point) => point[2]));
    found.forEach((band, i) => {
      const [first, last] = [i === 0, i === found.length - 1];
      if ((high < band.low && !first) || (low > band.top && !last)) return;
      let part = triangle;
      if (!first) part = cut(part, band.low, true);
      if (!last && part.length) part = cut(part, band.top, false);
      if (part.length > 2) band.d.push(`M${part.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L")}Z`);
    });
  }
  return found.map((band) => ({ ...band, d: band.d.join("") }));
}
