// What a curve is a curve of. Curves hold merits, of which more is better: an accuracy, minus a loss, a score with its
// sign. `number` is what a reader knows, `place` where it lies on an axis of its own, `slide` the range of the level.

const perplexityOf = (merit) => Math.exp(-merit);

const QUANTITIES = {
  accuracy: () => ({
    title: "Accuracy", subject: "test accuracy", at: "at an accuracy of", top: 1, number: (merit) => merit,
    text: (merit, places = 0) => percent(merit, places), place: (merit) => 100 * merit,
    value: (merit) => percent(merit, 1), read: meanAndSpread, domain: () => [0, 1.02], axis: { asPercent: true },
    rows: (mean_, std) => [{ label: "accuracy", value: percent(mean_, 2) },
      { label: "standard deviation", value: fixed(100 * std, 2) }],
    slide: () => ({ min: 5, max: 99, step: 1, of: (merit) => Math.round(100 * merit), merit: (value) => value / 100 }),
  }),
  perplexity: () => ({
    title: "Perplexity", subject: "perplexity", at: "at", examples: "tokens", number: perplexityOf,
    value: (merit) => plain(perplexityOf(merit), 3),
    rows: (mean_, std) => [{ label: "perplexity", value: plain(perplexityOf(mean_), 3) },
      { label: "standard deviation of the loss", value: plain(std, 3) }],
    text: (merit) => `perplexity ${plain(perplexityOf(merit), 3)}`, place: (merit) => -merit,
    read: (one, i) => plain(perplexityOf(one.y[i]), 3) + (Number.isFinite(one.std[i])
      ? ` (${plain(perplexityOf(one.high[i]), 3)} to ${plain(perplexityOf(one.low[i]), 3)})` : ""),
    domain: (low, high) => [high, low], spread: " of the loss",
    axis: { yTicks: ([best, worst], most) => logTicks([-best, -worst], most).map((tick) => -tick),
      yText: (tick) => plain(perplexityOf(tick)) },
    panel: { ticks: logTicks, text: (tick) => plain(Math.exp(tick)) },
    slide: (low, high) => ({ min: -high, max: -low, step: 0.01, of: (merit) => -merit, merit: (value) => -value }),
  }),
  score: (sign) => ({
    title: "Score", subject: "score", at: "at", number: (merit) => sign * merit,
    value: (merit) => plain(sign * merit),
    rows: (mean_, std) => [{ label: "score", value: plain(sign * mean_) },
      { label: "standard deviation", value: plain(std, 2) }],
    text: (merit) => `score ${plain(sign * merit)}`, place: (merit) => sign * merit,
    read: (one, i) => plain(sign * one.y[i]) + (Number.isFinite(one.std[i]) ? ` ± ${plain(one.std[i], 2)}` : ""),
    domain: (low, high) => (sign > 0 ? [low, high] : [high, low]),
    axis: { yTicks: (ends, most) => roundTicks([...ends].sort((a, b) => a - b), most),
      yText: (tick) => plain(sign * tick) },
    slide: (low, high) => ({ min: Math.min(sign * low, sign * high), max: Math.max(sign * low, sign * high),
      step: (high - low) / 200 || 1, of: (merit) => sign * merit, merit: (value) => sign * value }),
  }),
};

function quantityOf(task) {
  const { name, axis, better } = task.quantity;
  const row = QUANTITIES[name](better === "above" ? 1 : -1);
  const merits = [task.level, task.clean?.[0], ...task.curves.flatMap((curve) => curve.mean.map((mean, i) =>
    [real(mean) - (real(curve.std[i]) || 0), real(mean) + (real(curve.std[i]) || 0)])).flat()];
  const [low, high] = widened(extent(merits), 0.04);
  return { ...row, name, label: axis, better, worse: better === "above" ? "below" : "above",
    domain: row.domain(low, high), slide: row.slide(low, high) };
}

// The logarithms of 1, 2, 5, 10, ... between two logarithms: all of them, powers of ten, or every other power.
function logTicks([low, high], most) {
  const powers = (step) => {
    const first = Math.floor(low / Math.LN10 / step) * step;
    return Array.from({ length: Math.ceil((high / Math.LN10 - first) / step) + 1 }, (_, i) => first + i * step);
  };
  const inside = (ticks) => ticks.filter((tick) => tick >= low && tick <= high);
  const fine = inside(powers(1).flatMap((power) => [1, 2, 5].map((digit) => Math.log(digit) + power * Math.LN10)));
  const steps = [1, 2, 5, 10].map((step) => inside(powers(step).map((power) => power * Math.LN10)));
  return [fine, ...steps].find((ticks) => ticks.length <= Math.max(3, 1.5 * most)) ?? steps.at(-1);
}
