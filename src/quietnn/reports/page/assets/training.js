// Noisy training: accuracy against the round; how it ends against the WNR is drawn as for noisy inference.

function trainingSection(task, id, alone) {
  const wnrs = unique(task.series.map((one) => real(one.wnr))).filter(Number.isFinite).sort((a, b) => a - b);
  const usual = { wnr: wnrs[Math.floor(wnrs.length / 2)] ?? Infinity, of: null };
  return [
    h("h2", { class: alone ? "unseen" : null }, `${task.title}, trained over the air`),
    alone ? null : h("p", { class: "lead" }, task.lead),
    headCards(task),
    adviceList(task, id),
    said(task.notices),
    h("h3", { id: `${id}-rounds-title` }, "Accuracy against the round"),
    adjustable(`${id}-training`, usual, (state, show) => roundsFigure(task, id, wnrs, state, show)),
    task.curves.length ? accuracySection(task, id, "Accuracy of the trained network against noise in training") : null,
    h("h3", { id: `${id}-cost-title` }, "What each scheme costs"),
    plainTable(task.tables.cost, `${id}-cost`, { id: `${id}-cost-table`, stacked: true }),
  ].flat();
}

function trainedSeries(one) {
  const [y, std] = [one.mean.map(real), one.std.map(real)];
  const [low, high] = [y.map((v, i) => v - (std[i] || 0)), y.map((v, i) => v + (std[i] || 0))];
  return { ...one, y, std, low, high, marker: one.x.length > 40 ? null : one.marker };
}

const ALL = "all curves";

// The scheme that ends highest, oracles and training without noise aside.
function bestScheme(series) {
  const end = (one) => one.y.findLast(Number.isFinite) ?? -Infinity;
  const rivals = series.filter((one) => !one.oracle && Number.isFinite(real(one.wnr)));
  return [...(rivals.length ? rivals : series)].sort((a, b) => end(b) - end(a))[0]?.label ?? ALL;
}

// The schemes at the chosen WNR, and training without noise for comparison.
function roundsFigure(task, id, wnrs, state, show) {
  const here = (one) => real(one.wnr) === state.wnr || !Number.isFinite(real(one.wnr));
  const found = task.series.filter(here).map(trainedSeries);
  const labels = found.map((one) => one.label);
  const picked = [...labels, ALL].includes(state.of) ? state.of : bestScheme(found);
  const series = found.map((one) =>
    ({ ...one, chosen: one.label === picked, band: [ALL, one.label].includes(picked) }));
  const xs = unique(series.flatMap((one) => one.x)).sort((a, b) => a - b);
  const chart = {
    id: `${id}-rounds`, title: `${task.title}: test accuracy against the round`, xLabel: "round",
    yLabel: "test accuracy (%)", series, xTicks: xs, xDomain: widened(extent(xs), 0.01), yDomain: [0, 1.02],
    asPercent: true, xName: (round) => `round ${round}`, counted: "seed", read: meanAndSpread,
  };
  const numbers = () => ({
    header: ["scheme", "wnr_db", "round", "mean", "std", "seeds"],
    rows: task.series.flatMap((one) => one.x.map((x, i) =>
      [one.label, real(one.wnr), x, real(one.mean[i]), real(one.std[i]), one.count[i]])),
  });
  const options = wnrs.map((wnr) => ({ value: wnr, label: `${plain(wnr)} dB` }));
  const choice = select(`${id}-wnr`, "WNR", options, state.wnr, (value) => {
    state.wnr = value;
    show();
  });
  const bands = [...labels, ALL].map((label) => ({ value: label, label }));
  const band = select(`${id}-band`, "Band of", bands, picked, (value) => {
    state.of = value;
    show();
  });
  const at = Number.isFinite(state.wnr) ? `At ${plain(state.wnr)} dB of WNR. ` : "";
  const caption = `${at}Mean over seeds; a band is ± one standard deviation.`;
  const controls = h("div", { class: "fields" }, wnrs.length > 1 ? choice : null, labels.length > 1 ? band : null);
  const table = {
    header: ["round", ...series.map((one) => one.label)],
    rows: xs.map((round) => [String(round), ...series.map((one) => one.y[one.x.indexOf(round)] ?? NaN)]),
  };
  return h("div", {}, chartFigure(chart, { caption, name: `${id}-rounds`, numbers, controls }),
    numbersTable("Mean accuracy by round", `${id}-rounds-here`, table));
}
