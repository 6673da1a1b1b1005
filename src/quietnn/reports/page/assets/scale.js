// From numbers to places on a drawing, and the round numbers to write beside it.

function linear([low, high], [start, end]) {
  const span = high - low || 1;
  const scale = (value) => start + ((value - low) / span) * (end - start);
  scale.back = (place) => low + ((place - start) / (end - start)) * span;
  scale.domain = [low, high];
  scale.range = [start, end];
  return scale;
}

function roundTicks([low, high], count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) ticks.push(at * step);
  return ticks.map((tick) => Number(tick.toPrecision(12)));
}

// Close to linear near zero, close to logarithmic far out: for values of which a few are much larger than the rest.
function stretched([low, high], range) {
  const scale = linear([Math.asinh(low), Math.asinh(high)], range);
  const curved = (value) => scale(Math.asinh(value));
  curved.domain = [low, high];
  curved.range = range;
  return curved;
}

// Round numbers on a stretched scale, none nearer than `gap` to the one before.
function stretchedTicks(scale, gap) {
  const sizes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000];
  const found = [];
  for (const tick of [...sizes.map((size) => -size).reverse(), 0, ...sizes]) {
    if (tick < scale.domain[0] || tick > scale.domain[1]) continue;
    if (!found.length || scale(tick) - scale(found.at(-1)) >= gap) found.push(tick);
  }
  return found;
}

// The measured places, or every second or third of them; round numbers if they are many.
function measuredTicks(values, domain, most) {
  const found = unique(values).sort((a, b) => a - b);
  if (found.length <= most) return found;
  const every = Math.ceil(found.length / Math.max(1, most));
  return found.length <= 4 * most ? found.filter((_, i) => i % every === 0) : roundTicks(domain, most);
}

// The ticks whose numbers do not touch the one before.
function apart(ticks, scale) {
  const kept = [];
  let end = -Infinity;
  for (const tick of ticks) {
    const half = 3.7 * plain(tick).length + 3;
    if (scale(tick) - half < end) continue;
    kept.push(tick);
    end = scale(tick) + half;
  }
  return kept;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

function widened([low, high], share) {
  const margin = (high - low) * share || Math.abs(low) * share || 0.5;
  return [low - margin, high + margin];
}

// Places for labels that each want to stand at `wish`, pushed apart until none touch, inside [top, bottom].
function spread(wishes, gap, top, bottom) {
  const order = wishes.map((wish, at) => ({ wish, at })).sort((a, b) => a.wish - b.wish || a.at - b.at);
  const step = Math.min(gap, (bottom - top) / Math.max(1, order.length - 1));
  let previous = -Infinity;
  for (const item of order) {
    item.place = Math.max(item.wish, previous + step, top);
    previous = item.place;
  }
  let next = Infinity;
  for (const item of order.reverse()) {
    item.place = Math.min(item.place, next - step, bottom);
    next = item.place;
  }
  const places = new Array(wishes.length);
  for (const item of order) places[item.at] = item.place;
  return places;
}
