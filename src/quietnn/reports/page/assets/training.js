// Noisy training: accuracy against the round, and where it ends against the WNR.

function trainingSection(task, id) {
  const key = `${id}-training`;
  const wnrs = unique(task.series.map((one) => real(one.wnr))).filter(Number.isFinite).sort((a, b) => a - b);
  const state = chosen(key, { wnr: wnrs[Math.floor(wnrs.length / 2)] ?? Infinity });
  const holder = h("div", {});
  const show = () => {
    choose(key, state);
    holder.replaceChildren(roundsFigure(task, id, wnrs, state, show));
  };
  show();
  return [h("h2", {}, task.title), h("p", { class: "lead" }, task.lead), said(task.notices),
    h("h3", {}, "Accuracy against the round"), holder,
    wnrs.length > 1 ? h("h3", {}, "Accuracy after the last round against the WNR") : null,
    wnrs.length > 1 ? endsFigure(task, id, wnrs) : null];
}

function trained(one) {
  const [y, std] = [one.mean.map(real), one.std.map(real)];
  return { ...one, y, std, low: y.map((v, i) => v - (std[i] || 0)), high: y.map((v, i) => v + (std[i] || 0)) };
}

function readTraining(one, i) {
  const spread = Number.isFinite(one.std[i]) ? ` ± ${fixed(100 * one.std[i], 2)}` : "";
  return `${fixed(100 * one.y[i], 2)}${spread} % (${one.count[i]} ${one.count[i] === 1 ? "seed" : "seeds"})`;
}

function roundsFigure(task, id, wnrs, state, show) {
  const shown = task.series.filter((one) => real(one.wnr) === state.wnr || !Number.isFinite(real(one.wnr))).map((one) => ({
    ...trained(one), marker: one.x.length > 40 ? null : one.marker,
    label: one.label + (!Number.isFinite(real(one.wnr)) && wnrs.length ? ", no noise" : "") }));
  const xs = shown.flatMap((one) => one.x);
  const chart = { id: `${id}-rounds`, title: `${task.title}: test accuracy against the round`, xLabel: "round",
    yLabel: "test accuracy (%)", series: shown, xDomain: widened(extent(xs), 0.01), yDomain: [0, 1.02], asPercent: true,
    xName: (round) => `round ${round}`, read: readTraining };
  const numbers = () => ({ header: ["scheme", "wnr_db", "round", "mean", "std", "seeds"], rows: task.series.flatMap((one) =>
    one.x.map((x, i) => [one.label, real(one.wnr), x, real(one.mean[i]), real(one.std[i]), one.count[i]])) });
  const options = wnrs.map((wnr) => ({ value: wnr, label: `${plain(wnr)} dB` }));
  const controls = wnrs.length > 1 ? h("div", { class: "fields" }, select(`${id}-wnr`, "WNR", options, state.wnr, (value) => {
    state.wnr = value;
    show();
    document.getElementById(`${id}-wnr`)?.focus();
  })) : null;
  const at = Number.isFinite(state.wnr) ? `At ${plain(state.wnr)} dB of WNR. ` : "";
  return chartFigure(chart, { caption: `${at}Mean over seeds; bands are ± one standard deviation.`, name: `${id}-rounds`, numbers, controls });
}

function endsFigure(task, id, wnrs) {
  const schemes = unique(task.series.map((one) => one.scheme));
  const ends = schemes.map((scheme) => {
    const all = task.series.filter((one) => one.scheme === scheme && Number.isFinite(real(one.wnr)))
      .sort((a, b) => a.wnr - b.wnr);
    if (!all.length) return null;
    const last = (field) => all.map((one) => one[field].at(-1));
    return trained({ ...all[0], x: all.map((one) => one.wnr), mean: last("mean"), std: last("std"), count: last("count") });
  }).filter(Boolean);
  const quiet = task.series.find((one) => !Number.isFinite(real(one.wnr)));
  const lines = quiet ? [{ y: quiet.mean.at(-1), label: `no noise: ${percent(quiet.mean.at(-1), 1)}` }] : [];
  const chart = { id: `${id}-ends`, title: `${task.title}: accuracy after the last round against the WNR`,
    xLabel: "weight-to-noise ratio, WNR (dB)", yLabel: "test accuracy (%)", series: ends, xTicks: wnrs, lines,
    xDomain: widened(extent(wnrs), 0.03), yDomain: [0, 1.02], asPercent: true, xName: (wnr) => `WNR ${plain(wnr)} dB`, read: readTraining };
  const numbers = () => ({ header: ["scheme", "wnr_db", "mean", "std", "seeds"],
    rows: ends.flatMap((one) => one.x.map((x, i) => [one.label, x, one.y[i], one.std[i], one.count[i]])) });
  return h("div", {}, chartFigure(chart, { caption: "Accuracy of the last round, not the best round. Bands are ± one standard deviation over seeds.",
    name: `${id}-ends`, numbers }), numbersTable("Accuracy after the last round", `${id}-ends`, numbers()));
}
