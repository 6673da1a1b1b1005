// The paper's theory figures from the records of `quietnn theory`.

const THEORY_BLUE = "#2166ac";
const THEORY_ORANGE = "#e08214";

function theorySection(theory, id) {
  const parts = [h("h2", {}, "Theory")];
  if (theory.relation) parts.push(h("h3", {}, "The family of estimators (figure 2)"), relationFigure(theory, id));
  if (theory.surfaces.length) parts.push(h("h3", {}, "Error surfaces (figures 3 and 5)"), errorSurfaces(theory, id));
  if (theory.againstC) parts.push(h("h3", {}, "Error against the input's range c (figure 6)"), againstFigure(theory.againstC, id));
  if (theory.checks.rows.length) parts.push(h("h3", {}, "Closed forms against simulation"), plainTable(theory.checks, "theory-checks", { id: `${id}-checks` }));
  return parts;
}

function relationFigure(theory, id) {
  const curve = theory.relation;
  const colours = ["#0072B2", "#009E73", "#000000", "#D55E00"];
  const series = [{ label: "θ(λ′)", colour: "#555555", dash: "-", silent: true, x: curve.lambda_prime, y: curve.theta },
    ...theory.estimators.map((one, i) => ({ label: `${one.name}, ${one.region}`, colour: colours[i % 4], marker: "o", noLine: true,
      x: [one.lambda_prime], y: [one.theta] }))];
  const chart = { id: `${id}-relation`, title: "The multiplier theta along lambda prime", xLabel: "λ′", yLabel: "multiplier θ", series,
    xDomain: [-0.08, curve.pole + 0.3], yDomain: [0, 5], lines: [{ x: curve.pole, label: `pole, λ′ = 1 + η = ${plain(curve.pole)}` }],
    spans: [{ from: 0, to: 1, label: "under-compensation", colour: "#009E73" }, { from: 1, to: curve.pole, label: "over-compensation", colour: "#D55E00" }],
    xName: (at) => `λ′ ${plain(at, 4)}`, read: (one, i) => `θ = ${plain(one.y[i], 5)}` };
  const numbers = () => ({ header: ["lambda_prime", "theta"], rows: curve.lambda_prime.map((at, i) => [at, curve.theta[i]]) });
  return chartFigure(chart, { caption: `σ_w² = ${plain(curve.weight_variance)}, σ_z² = ${plain(curve.noise_variance)}: `
    + "zero compensation is MMSE (λ′ = 0), exact compensation is ML (λ′ = 1).", name: `${id}-relation`, numbers, height: 360 });
}

function errorSurfaces(theory, id) {
  const key = `${id}-errors`;
  const state = chosen(key, { at: 0 });
  const holder = h("div", {});
  const show = () => {
    choose(key, state);
    holder.replaceChildren(errorFigure(theory, id, state, show));
  };
  show();
  return holder;
}

function errorFigure(theory, id, state, show) {
  const one = theory.surfaces[state.at];
  const points = one.theta.flatMap((x, i) => one.rho.map((y, j) => ({ x, y, z: one.error[i][j] })));
  const lowest = extent(points.map((point) => point.z))[0];
  const levels = preferred(lowest, lowest * 12);
  const top = levels.at(-1);
  const share = (z) => Math.log(Math.max(z, lowest) / lowest) / Math.log(top / lowest);
  const surface = {
    id: `${id}-error-map`, points, mesh: surfaceMesh(points), levels, pole: null, regions: false, smooth: true, rise: share,
    title: one.label, xLabel: "multiplier θ", yLabel: "offset ρ", xShort: "θ", yShort: "ρ", zLabel: "expected squared error",
    zText: (z) => plain(z, 3), colour: (z) => shade(VIRIDIS, share(z)),
    marks: one.points.map((point) => ({ x: point.theta, y: point.rho, z: point.error, label: point.name,
      marker: point.point_kind === "saddle" ? "X" : point.name === "ML" ? "s" : "o", colour: point.name === "ML" ? "#000000" : "#D55E00" })),
    read: (point) => ({ title: `θ ${plain(point.x)}, ρ ${plain(point.y)}`, rows: [{ label: "error", value: plain(point.z, 5) }] }),
  };
  const relief = reliefStage(surface);
  const name = `${id}-${slug(one.label)}`;
  const numbers = () => ({ header: ["theta", "rho", "error"], rows: points.map((point) => [point.x, point.y, point.z]) });
  const buttons = figureButtons(name, () => drawSurface(surface, 640, 470).svg, numbers);
  buttons.append(saveButton("PNG of the relief", "Save the relief as PNG", () => saveCanvas(`${name}-relief.png`, relief.canvas)));
  const control = select(`${id}-form`, "Surface", theory.surfaces.map((item, at) => ({ label: item.label, value: at })), state.at, (value) => {
    state.at = value;
    show();
    document.getElementById(`${id}-form`)?.focus();
  });
  const numbered = numbersTable("Named points", `${id}-points`, { header: ["point", "kind", "theta", "rho", "error"],
    rows: one.points.map((point) => [point.name, point.point_kind, point.theta, point.rho, point.error]) });
  return h("figure", { id: `${id}-errors`, class: "card" }, h("div", { class: "fields" }, control),
    h("div", { class: "pair" }, surfaceStage(surface), relief),
    h("div", { class: "under" }, h("figcaption", {}, `Lowest ${plain(lowest)}; colours are logarithmic up to ${plain(top, 3)}.`), buttons), numbered);
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

function againstFigure(record, id) {
  const key = `${id}-against`;
  const state = chosen(key, { relative: false });
  const holder = h("div", {});
  const show = () => {
    choose(key, state);
    holder.replaceChildren(againstChart(record, id, state, show));
  };
  show();
  return holder;
}

function againstChart(record, id, state, show) {
  const names = [["ml", "ML", THEORY_BLUE], ["pb", "MMSE_pb", THEORY_ORANGE]];
  const series = names.flatMap(([code, name, colour]) => {
    const exact = record[`${code}_exact`];
    const near = (c) => exact[record.input_limit.reduce((best, at, i) => (Math.abs(at - c) < Math.abs(record.input_limit[best] - c) ? i : best), 0)];
    const scaled = (value, c) => (state.relative ? (c === 0 ? NaN : value / near(c)) : value);
    const lines = C_FORMS.map(([form, dash, meaning]) => ({ label: `${name}: ${meaning}`, colour, dash, x: record.input_limit,
      y: record[`${code}_${form}`].map((value, i) => scaled(value, record.input_limit[i])) }));
    const [at, middle, error] = [record.simulated_input_limit, record[`${code}_simulated`], record[`${code}_standard_error`]];
    return [...lines, { label: `${name}: simulated`, colour, noLine: true, marker: "o", x: at, y: middle.map((v, i) => scaled(v, at[i])),
      bars: middle.map((v, i) => [scaled(v - 2 * error[i], at[i]), scaled(v + 2 * error[i], at[i])]) }];
  });
  const control = h("div", { class: "fields" }, h("label", { class: "tick" }, h("input", { id: `${id}-relative`, type: "checkbox", checked: state.relative,
    onchange: (event) => {
      state.relative = event.target.checked;
      show();
      document.getElementById(`${id}-relative`)?.focus();
    } }), "divide by the exact error"));
  const chart = { id: `${id}-against-c`, title: "Error of the tanh network against c", xLabel: "c", yLabel: state.relative ? "error / exact error" : "error",
    series, xDomain: [0, 0.51], yDomain: widened(extent(series.flatMap((one) => one.y)), 0.03), xName: (c) => `c = ${plain(c)}`, read: (one, i) => plain(one.y[i], 4) };
  const numbers = () => ({ header: ["curve", "c", state.relative ? "ratio" : "error"], rows: series.flatMap((one) => one.x.map((x, i) => [one.label, x, one.y[i]])) });
  return chartFigure(chart, { caption: "Bars are two standard errors of the simulation.", name: `${id}-against-c`, numbers, controls: control, height: 400 });
}
