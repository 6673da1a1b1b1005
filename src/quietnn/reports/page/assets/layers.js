// Layer by layer: the WNR that each one sees, the temperatures chosen for it, and the pole that bounds them.

const LAYER_KEYS = [["method", "Method", (one) => one.label], ["run", "Run", (one) => one.run],
  ["kappa", "Tuned on", (one) => `${one.kappa} examples`], ["wnr", "WNR", (one) => `${plain(one.wnr)} dB`]];

function layersSection(task, id) {
  if (!task.layers.length) return [];
  const ml = task.curves.find((curve) => curve.method === "ml");
  const aim = ml?.crossing ?? task.layers[0].wnr;
  const near = task.layers[nearest(task.layers.map((one) => one.wnr), aim)];
  const usual = { method: near.method, run: near.run, kappa: near.kappa, wnr: near.wnr };
  return [h("h3", { id: `${id}-layers-title` }, "Layer by layer"),
    adjustable(`${id}-layers`, usual, (state, show) => layersFigure(task, id, state, show))];
}

function layersFigure(task, id, state, show) {
  const { one, fields } = narrowed(task.layers, LAYER_KEYS, state, `${id}-layers`, show);
  const values = (rows) => rows.map((row) => row.map(real));
  const average = (rows, at) => {
    const known = rows.map((row) => row[at]).filter(Number.isFinite);
    return known.length ? mean(known) : NaN;
  };
  const [wnrs, lambdas, betas] = [values(one.wnrs), values(one.lambdas), values(one.betas)];
  const poles = one.poles.map(real);
  const plot = {
    ...one, title: `${one.label}, ${plain(one.wnr)} dB: WNR and temperatures of each layer`,
    panels: [
      { label: "WNR of the layer (dB)", values: wnrs, line: one.wnr, lineName: "whole model" },
      { label: "λ′", values: lambdas, line: 1, lineName: "ML", limits: poles, stretch: true },
      { label: "β", values: betas, line: 0, lineName: "no bias" },
    ],
    read: (row) => [
      { label: "WNR", value: `${fixed(average(wnrs, row), 2)} dB` },
      { label: "λ′", value: plain(average(lambdas, row), 5) },
      { label: "β", value: plain(average(betas, row), 5) },
      { label: "pole 1 + η", value: plain(poles[row], 5) },
    ],
  };
  const name = `${id}-layers-${plain(one.wnr).replace("−", "minus")}dB`;
  const numbers = () => ({ header: ["layer", "WNR (dB)", "lambda'", "beta", "pole"],
    rows: one.names.map((layer, i) => [layer, average(wnrs, i), average(lambdas, i), average(betas, i), poles[i]]) });
  const draws = one.draws.length === 1 ? "one draw" : `${one.draws.length} draws`;
  const silent = wnrs.flat().filter((value) => !Number.isFinite(value)).length;
  const caption = `${one.label} at ${plain(one.wnr)} dB, ${draws}: small dots are draws, large ones means. `
    + "Upright bars in the middle mark each layer's pole 1 + η; an arrowhead says that it lies further right."
    + (silent ? " A layer whose estimated weight variance is zero has no finite WNR and no dot there." : "");
  return h("figure", { id: `${id}-layers`, class: "card" }, h("div", { class: "fields" }, fields), dotsStage(plot),
    under(caption, figureButtons(name, () => drawDots(plot, 900), numbers)),
    numbersTable("Means over draws for each layer", name, numbers()));
}
