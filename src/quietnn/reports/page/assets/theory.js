// The paper's theory figures from the records of `quietnn theory`.

const THEORY_BLUE = "#2166ac";
const THEORY_ORANGE = "#e08214";

function theorySection(theory, id) {
  const parts = [h("h2", {}, "Theory")];
  const add = (title, part) => parts.push(h("h3", {}, title), part);
  if (theory.relation) add("The family of estimators (figure 2)", relationFigure(theory, id));
  if (theory.surfaces.length) {
    add("Error surfaces (figures 3 and 5)",
      adjustable(`${id}-errors`, { at: 0 }, (state, show) => errorFigure(theory, id, state, show)));
  }
  if (theory.againstC) {
    add("Error against the input's range c (figure 6)", adjustable(`${id}-against`, { relative: false },
      (state, show) => againstFigure(theory.againstC, id, state, show)));
  }
  if (theory.checks.rows.length) {
    add("Closed forms against simulation", plainTable(theory.checks, "theory-checks", { id: `${id}-checks`, stacked: true }));
  }
  return parts;
}

function relationFigure(theory, id) {
  const { lambda_prime: lambdas, theta, pole, weight_variance: weights, noise_variance: noise } = theory.relation;
  const colours = ["#0072B2", "#009E73", "#000000", "#D55E00"];
  const points = theory.estimators.map((one, i) => ({ label: `${one.name}, ${one.region}`, colour: colours[i % 4],
    marker: "o", noLine: true, x: [one.lambda_prime], y: [one.theta] }));
  const chart = {
    id: `${id}-relation`, title: "The multiplier theta along lambda prime", xLabel: "λ′", yLabel: "multiplier θ",
    series: [{ label: "θ(λ′)", colour: "#555555", dash: "-", silent: true, x: lambdas,
      y: theta.map((one) => (one <= 5 ? one : NaN)) }, ...points],
    xDomain: [-0.08, pole + 0.3], yDomain: [0, 5],
    lines: [{ x: pole, label: `pole, λ′ = 1 + η = ${plain(pole)}`, short: "pole" }],
    spans: [{ from: 0, to: 1, label: "under-compensation", short: "under", colour: "#009E73" },
      { from: 1, to: pole, label: "over-compensation", short: "over", colour: "#D55E00" }],
    xName: (at) => `λ′ ${plain(at, 4)}`, read: (one, i) => `θ = ${plain(one.y[i], 5)}`,
  };
  const numbers = () => ({ header: ["lambda_prime", "theta"], rows: lambdas.map((at, i) => [at, theta[i]]) });
  const caption = `σ_w² = ${plain(weights)}, σ_z² = ${plain(noise)}: `
    + "zero compensation is MMSE (λ′ = 0), exact compensation is ML (λ′ = 1).";
  return h("div", {}, chartFigure(chart, { caption, name: `${id}-relation`, numbers, height: 360 }),
    numbersTable("The multiplier along λ′", `${id}-relation`, numbers()));
}

function errorFigure(theory, id, state, show) {
  const one = theory.surfaces[state.at];
  const surface = errorSurface(one, id);
  const relief = reliefStage(surface);
  const name = `${id}-${slug(one.label)}`;
  const numbers = () => ({ header: ["theta", "rho", "error"], rows: surface.points.map(({ x, y, z }) => [x, y, z]) });
  const buttons = figureButtons(name, () => drawSurface(surface, 640, 470).svg, numbers);
  buttons.append(reliefButton(name, relief));
  const options = theory.surfaces.map((item, at) => ({ label: item.label, value: at }));
  const choice = select(`${id}-form`, "Surface", options, state.at, (value) => {
    state.at = value;
    show();
  });
  const [lowest, top] = [extent(surface.points.map((point) => point.z))[0], surface.levels.at(-1)];
  const named_ = { header: ["point", "kind", "theta", "rho", "error"],
    rows: one.points.map((point) => [point.name, point.point_kind, point.theta, point.rho, point.error]) };
  return h("figure", { id: `${id}-errors`, class: "card" }, h("div", { class: "fields" }, choice),
    h("div", { class: "pair" }, surfaceStage(surface), relief),
    under(`Lowest ${plain(lowest)}; colours are logarithmic up to ${plain(top, 3)}.`, buttons),
    numbersTable("Named points", `${id}-points`, named_));
}

function errorSurface(one, id) {
  const points = one.theta.flatMap((x, i) => one.rho.map((y, j) => ({ x, y, z: one.error[i][j] })));
  const lowest = extent(points.map((point) => point.z))[0];
  const levels = preferred(lowest, lowest * 12);
  const share = (z) => Math.log(Math.max(z, lowest) / lowest) / Math.log(levels.at(-1) / lowest);
  const shape = (point) => (point.point_kind === "saddle" ? "X" : point.name === "ML" ? "s" : "o");
  return {
    id: `${id}-error-map`, points, mesh: surfaceMesh(points), levels, pole: null, regions: false, smooth: true,
    rise: share, title: one.label, xLabel: "multiplier θ", yLabel: "offset ρ", xShort: "θ", yShort: "ρ",
    zLabel: "expected squared error", zShort: "error", zText: (z) => plain(z, 3),
    colour: (z) => shade(VIRIDIS, share(z)),
    marks: one.points.map((point) => ({ x: point.theta, y: point.rho, z: point.error, label: point.name,
      marker: shape(point), colour: point.name === "ML" ? "#000000" : "#D55E00" })),
    read: ({ x, y, z }) => ({ title: `θ ${plain(x)}, ρ ${plain(y)}`, rows: [{ label: "error", value: plain(z, 5) }] }),
  };
}

// Round numbers in even ratios, from the last one below `low` to the first one above `high`.
function preferred(low, high) {
  const steps = [1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of steps) found.push(Number((step * 10 ** power).toPrecision(3)));
  }
  const first = found.findLastIndex((value) => value <= low);
  const last = found.findIndex((value) => value >= high);
  return found.slice(Math.max(0, first), last + 1);
}

const C_FORMS = [["exact", "-", "exact"], ["printed", "--", "paper (eq. 31)"], ["leading", ":", "corrected order c²"]];

function againstFigure(record, id, state, show) {
  const series = [["ml", "ML", THEORY_BLUE], ["pb", "MMSE_pb", THEORY_ORANGE]]
    .flatMap(([code, name, colour]) => againstSeries(record, code, name, colour, state.relative));
  const choice = checkbox(`${id}-relative`, "divide by the exact error", state.relative, (checked) => {
    state.relative = checked;
    show();
  });
  const chart = {
    id: `${id}-against-c`, title: "Error of the tanh network against c", xLabel: "c",
    yLabel: state.relative ? "error / exact error" : "error", series, xDomain: [0, 0.51],
    yDomain: widened(extent(series.flatMap((one) => one.y)), 0.03),
    xName: (c) => `c = ${plain(c)}`, read: (one, i) => plain(one.y[i], 4),
  };
  const numbers = () => ({ header: ["curve", "c", state.relative ? "ratio" : "error"],
    rows: series.flatMap((one) => one.x.map((x, i) => [one.label, x, one.y[i]])) });
  const caption = "Bars are two standard errors of the simulation.";
  const controls = h("div", { class: "fields" }, choice);
  return h("div", {}, chartFigure(chart, { caption, name: `${id}-against-c`, numbers, controls, height: 400 }),
    numbersTable("Error against c", `${id}-against-c`, numbers()));
}

// The three forms as lines and the simulation as dots, plain or over the exact error at the same c.
function againstSeries(record, code, name, colour, relative) {
  const [axis, exact] = [record.input_limit, record[`${code}_exact`]];
  const [at, middle] = [record.simulated_input_limit, record[`${code}_simulated`]];
  const scaled = (value, c) => {
    if (!relative) return value;
    return c === 0 ? NaN : value / exact[nearest(axis, c)];
  };
  const lines = C_FORMS.map(([form, dash, meaning]) => ({ label: `${name}: ${meaning}`, colour, dash, x: axis,
    y: record[`${code}_${form}`].map((value, i) => scaled(value, axis[i])) }));
  const errors = record[`${code}_standard_error`];
  const bars = middle.map((value, i) => [-2, 2].map((sign) => scaled(value + sign * errors[i], at[i])));
  const dots = { label: `${name}: simulated`, colour, noLine: true, marker: "o", x: at, bars,
    y: middle.map((value, i) => scaled(value, at[i])) };
  return [...lines, dots];
}
