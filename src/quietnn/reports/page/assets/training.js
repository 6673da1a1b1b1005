// Noisy training: accuracy against the round; how it ends against the WNR is drawn as for noisy inference.

function trainingSection(task, id, alone) {
  const key = `${id}-training`;
  const wnrs = unique(task.series.map((one) => real(one.wnr))).filter(Number.isFinite).sort((a, b) => a - b);
  const state = chosen(key, { wnr: wnrs[Math.floor(wnrs.length / 2)] ?? Infinity });
  const holder = h("div", {});
  const show = () => {
    choose(key, state);
    holder.replaceChildren(roundsFigure(task, id, wnrs, state, show));
  };
  show();
  return [h("h2", { class: alone ? "unseen" : null }, `${task.title}, trained over the air`),
    alone ? null : h("p", { class: "lead" }, task.lead), headCards(task), said(task.notices),
    h("h3", { id: `${id}-rounds-title` }, "Accuracy against the round"), holder,
    task.curves.length ? accuracySection(task, id, "Accuracy of the trained network against noise in training") : null,
    h("h3", { id: `${id}-cost-title` }, "What each scheme costs"), plainTable(task.tables.cost, `${id}-cost`, { id: `${id}-cost-table` })].flat();
}

function trained(one) {
  const [y, std] = [one.mean.map(real), one.std.map(real)];
  return { ...one, y, std, low: y.map((v, i) => v - (std[i] || 0)), high: y.map((v, i) => v + (std[i] || 0)) };
}

function readTraining(one, i) {
  const spread = Number.isFinite(one.std[i]) ? ` ± ${fixed(100 * one.std[i], 2)}` : "";
  return `${fixed(100 * one.y[i], 2)}${spread} %`;
}

function roundsFigure(task, id, wnrs, state, show) {
  const shown = task.series.filter((one) => real(one.wnr) === state.wnr || !Number.isFinite(real(one.wnr))).map((one) => ({
    ...trained(one), marker: one.x.length > 40 ? null : one.marker }));
  const xs = shown.flatMap((one) => one.x);
  const chart = { id: `${id}-rounds`, title: `${task.title}: test accuracy against the round`, xLabel: "round",
    yLabel: "test accuracy (%)", series: shown, xDomain: widened(extent(xs), 0.01), yDomain: [0, 1.02], asPercent: true,
    xName: (round) => `round ${round}`, counted: "seed", read: readTraining };
  const numbers = () => ({ header: ["scheme", "wnr_db", "round", "mean", "std", "seeds"], rows: task.series.flatMap((one) =>
    one.x.map((x, i) => [one.label, real(one.wnr), x, real(one.mean[i]), real(one.std[i]), one.count[i]])) });
  const options = wnrs.map((wnr) => ({ value: wnr, label: `${plain(wnr)} dB` }));
  const controls = wnrs.length > 1 ? h("div", { class: "fields" }, select(`${id}-wnr`, "WNR", options, state.wnr, (value) => {
    state.wnr = value;
    show();
    document.getElementById(`${id}-wnr`)?.focus();
  })) : null;
  const at = Number.isFinite(state.wnr) ? `At ${plain(state.wnr)} dB of WNR. ` : "";
  const here = { header: ["round", ...shown.map((one) => one.label)], rows: unique(xs).sort((a, b) => a - b).map((round) =>
    [String(round), ...shown.map((one) => one.y[one.x.indexOf(round)] ?? NaN)]) };
  return h("div", {}, chartFigure(chart, { caption: `${at}Mean over seeds; bands are ± one standard deviation.`, name: `${id}-rounds`, numbers, controls }),
    numbersTable("Mean accuracy by round", `${id}-rounds-here`, here));
}
