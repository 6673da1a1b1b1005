// Accuracy or its like against WNR, and what each method gains in decibels at a level that the reader may move.

// Down from the highest WNR, the first fall below the level, on a straight line between neighbours.
function crossingOf(curve, level) {
  const known = curve.x.map((x, i) => [x, curve.y[i]]).filter(([, y]) => Number.isFinite(y));
  if (!known.length || known.at(-1)[1] < level) return null;
  for (let i = known.length - 2; i >= 0; i -= 1) {
    const [[x0, y0], [x1, y1]] = [known[i], known[i + 1]];
    if (y0 < level) return x0 + ((level - y0) / (y1 > y0 ? y1 - y0 : 1)) * (x1 - x0);
  }
  return null;
}

function whyNot(curve, level, of) {
  const measured = curve.x.filter((_, i) => Number.isFinite(curve.y[i]));
  const known = curve.y.filter(Number.isFinite);
  if (!known.length) return "has no results";
  const [low, high, holds] = [plain(measured[0]), plain(measured.at(-1)), known.at(-1) >= level];
  if (known.length === 1) return `is ${holds ? of.better : of.worse} ${of.text(level)} at ${low} dB, the only WNR measured`;
  if (holds) return `stays ${of.better} ${of.text(level)} down to ${low} dB`;
  return Math.max(...known) < level ? `stays ${of.worse} ${of.text(level)} up to ${high} dB`
    : `is ${of.worse} ${of.text(level)} at the highest WNR measured`;
}

function meanAndSpread(one, i) {
  const spread = Number.isFinite(one.std[i]) ? ` ± ${fixed(100 * one.std[i], 2)}` : "";
  return `${fixed(100 * one.y[i], 2)}${spread} %`;
}

function accuracySeries(curve, withDraws) {
  const [y, std] = [curve.mean.map(real), curve.std.map(real)];
  const single = withDraws && curve.draws ? curve.draws : [];
  const dots = single.flatMap((row) => row.map((value, i) => [curve.x[i], real(value)]))
    .filter(([, value]) => Number.isFinite(value));
  return { ...curve, y, low: y.map((v, i) => v - (std[i] || 0)), high: y.map((v, i) => v + (std[i] || 0)), std, dots };
}

function accuracySection(task, id, title = `${quantityOf(task).title} against noise`) {
  const quantity = quantityOf(task);
  const single = unique(task.curves.flatMap((curve) => curve.x)).length === 1;
  return [
    h("h3", { id: `${id}-accuracy-title` }, title),
    adjustable(`${id}-accuracy`, { level: task.level, of: null, draws: false, bands: false }, (state, show) =>
      (single ? singleFigure(task, id, quantity) : accuracyFigure(task, id, state, show, quantity))),
    plainTable(task.tables[quantity.name], `${id}-${quantity.name}`, { id: `${id}-accuracy-table`, open: false }),
    h("h3", { id: `${id}-gains-title` }, explained(`Gain over ML at ${quantity.text(task.level)}`)),
    gainFigure(task, id),
    plainTable(task.tables.gains, `${id}-gains`, { id: `${id}-gains-table`, stacked: true, words: true }),
    h("details", { class: "numbers" }, h("summary", {}, "The findings in words"), said(task.sentences, "words")),
  ];
}

function accuracyFigure(task, id, state, show, quantity) {
  const gaining = task.curves.map((curve, i) => i).filter((i) => task.curves[i].reference !== null
    && task.curves[i].reference !== i);
  const picked = gaining.includes(state.of) ? state.of : task.best ?? gaining.at(-1) ?? 0;
  const of = gaining.includes(picked) ? picked : null;
  const series = task.curves.map((curve, i) => ({ ...accuracySeries(curve, state.draws), chosen: i === picked,
    band: state.bands || i === picked }));
  const xs = series.flatMap((one) => one.x);
  const clean = task.clean ? [{ y: task.clean[0], label: `no noise: ${quantity.text(task.clean[0], 1)}` }] : [];
  const chart = {
    id: `${id}-accuracy`, title: `${task.title}: ${quantity.subject} against WNR`,
    xLabel: `weight-to-noise ratio, ${task.axis}`, yLabel: quantity.label, series,
    xTicks: xs, xDomain: widened(extent(xs), 0.02), yDomain: quantity.domain, ...quantity.axis, lines: clean,
    overlay: (svg, x, y, shown) =>
      drawGain(svg, x, y, shown, gainNow(series, of, state.level), state.level, quantity),
    xName: (wnr) => `WNR ${plain(wnr)} dB`,
    counted: "draw",
    read: quantity.read,
  };
  const { slide } = quantity;
  const level = h("input", { id: `${id}-level`, type: "range", min: slide.min, max: slide.max,
    step: slide.step, value: slide.of(state.level), onchange: (event) => {
      state.level = slide.merit(Number(event.target.value));
      show();
    }, oninput: (event) => {
      event.target.nextSibling.textContent = quantity.text(slide.merit(Number(event.target.value)));
    } });
  const controls = h("div", { class: "fields" },
    gaining.length ? select(`${id}-of`, "Gain and band of", gaining.map((i) =>
      ({ label: task.curves[i].label, value: i })), of, (value) => { state.of = value; show(); }) : null,
    h("label", { class: "field", for: `${id}-level` }, h("span", {}, quantity.at),
      h("span", { class: "slide" }, level, h("output", {}, quantity.text(state.level)))),
    task.curves.some((curve) => curve.numDraws > 1)
      ? checkbox(`${id}-bands`, "all bands", state.bands, (checked) => { state.bands = checked; show(); }) : null,
    task.curves.some((curve) => curve.draws && curve.numDraws > 1)
      ? checkbox(`${id}-draws`, "single draws", state.draws, (checked) => { state.draws = checked; show(); }) : null);
  const numbers = () => ({
    header: ["method", "wnr_db", "mean", "std", "draws"],
    rows: task.curves.flatMap((curve) => curve.x.map((x, i) =>
      [curve.label, x, quantity.number(real(curve.mean[i])), real(curve.std[i]), curve.count[i]])),
  });
  const caption = `${bandSentence(task.curves, picked, state.bands, quantity)} `
    + gainSentence(task, series, of, state.level, quantity);
  return chartFigure(chart, { caption, name: `${id}-accuracy`, numbers, controls });
}

function bandSentence(curves, picked, all, quantity) {
  const deviation = `± one standard deviation${quantity.spread ?? ""}`;
  if (curves.every((curve) => curve.numDraws < 2)) return "One noise draw, so there are no bands.";
  if (all) return `Mean over noise draws; bands are ${deviation}.`;
  const { label, numDraws } = curves[picked];
  return numDraws < 2 ? `Mean over noise draws; ${label} has one and no band.`
    : `Mean over noise draws; the band of ${label} is ${deviation}.`;
}

// At one WNR there are no curves: a row for each method says more.
function singleFigure(task, id, quantity) {
  const draws = Math.max(...task.curves.map((curve) => curve.numDraws));
  const value = (curve, draw) =>
    quantity.place(real(curve.draws ? curve.draws[draw]?.[0] : draw ? null : curve.mean[0]));
  const wnr = plain(task.curves[0].x[0]);
  const plot = {
    names: task.curves.map((curve) => curve.label), styles: task.curves,
    title: `${task.title}: ${quantity.subject} at ${wnr} dB`,
    panels: [{ label: quantity.label, line: quantity.place(task.clean?.[0] ?? quantity.top ?? task.level),
      lineName: task.clean ? "no noise" : "", ...quantity.panel,
      values: Array.from({ length: draws }, (_, draw) => task.curves.map((curve) => value(curve, draw))) }],
    read: (row) => [...quantity.rows(real(task.curves[row].mean[0]), real(task.curves[row].std[0])),
      { label: "draws", value: String(task.curves[row].count[0]) }],
  };
  const numbers = () => ({ header: ["method", "wnr_db", "mean", "std", "draws"], rows: task.curves.map((curve) =>
    [curve.label, curve.x[0], quantity.number(real(curve.mean[0])), real(curve.std[0]), curve.count[0]]) });
  const caption = `Measured at ${wnr} dB alone, so there are rows and no curves. `
    + "Small dots are draws, large ones means.";
  return h("figure", { id: `${id}-accuracy`, class: "card" }, dotsStage(plot),
    under(caption, figureButtons(`${id}-accuracy`, () => drawDots(plot, 760), numbers)));
}

function gainNow(series, of, level) {
  if (of === null) return null;
  const [ours, theirs] = [series[of], series[series[of].reference]];
  const [at, from] = [crossingOf(ours, level), crossingOf(theirs, level)];
  return { ours, theirs, at, from, ...boundNow(ours, theirs, at, from, level) };
}

// The ends that are known of a gain: where a curve does not cross, the end of what was measured, if the gain is larger.
function boundNow(ours, theirs, at, from, level) {
  const known = (curve) => curve.x.filter((_, i) => Number.isFinite(curve.y[i]));
  const last = (curve) => curve.y.findLast(Number.isFinite);
  const low = at ?? (last(ours) >= level ? known(ours)[0] : null);
  const high = from ?? (last(theirs) < level ? known(theirs).at(-1) : null);
  return low !== null && high !== null && high > low ? { low, high } : { low: at, high: from };
}

function gainSentence(task, series, of, level, quantity) {
  if (of === null) return "No ML curve was measured, so there is nothing to measure gains against.";
  const { ours, theirs, at, from, low, high } = gainNow(series, of, level);
  if (low !== null && high !== null && (at === null || from === null)) {
    const why = at === null ? `${ours.label} ${whyNot(ours, level, quantity)}`
      : `${theirs.label} ${whyNot(theirs, level, quantity)}`;
    return `${why}, so the gain over ${theirs.label} is more than ${fixed(high - low, 2)} dB.`;
  }
  for (const [curve, place] of [[ours, at], [theirs, from]]) {
    if (place === null) return `${curve.label} ${whyNot(curve, level, quantity)}, so there is no gain to mark.`;
  }
  const same = Math.abs(level - task.level) < 1e-9 && task.curves[of].gain;
  const interval = same && same.low !== null ? `, ${same.intervalName} ${same.interval}` : "";
  const amount = `${fixed(Math.abs(from - at), 2)} dB ${from >= at ? "less" : "more"} WNR`;
  return `At ${quantity.text(level)}, ${ours.label} needs ${amount} than ${theirs.label}${interval}.`;
}

function drawGain(svg, x, y, shown, gain, level, of) {
  const at = y(level);
  const ends = { x1: x.range[0], x2: x.range[1], y1: at, y2: at };
  svg.append(s("line", { ...ends, stroke: "var(--soft)", "stroke-dasharray": "1 4" }));
  if (!gain || gain.low === null || gain.high === null) {
    const place = { x: x.range[0] + 6, y: at - 6 };
    svg.append(s("text", { ...place, fill: "var(--soft)", "font-size": 11.5, ...HALO }, of.text(level)));
    return;
  }
  const [left, right] = [x(gain.low), x(gain.high)];
  const bound = gain.at === null || gain.from === null;
  const way = Math.sign(right - left) || 1;
  const arrow = s("g", { class: "gain", fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 });
  arrow.append(s("path", { d: `M${left} ${at}H${right}` }));
  if (Math.abs(right - left) > 10) {
    arrow.append(s("path", { d: `M${left + 6 * way} ${at - 4}L${left} ${at}L${left + 6 * way} ${at + 4}` }));
    arrow.append(s("path", { d: `M${right - 6 * way} ${at - 4}L${right} ${at}L${right - 6 * way} ${at + 4}` }));
  }
  svg.append(arrow);
  const text = `${bound ? "> " : ""}${signed(gain.high - gain.low, 1)} dB at ${of.text(level)}`;
  const place = quietPlace(shown, x, y, 7.6 * text.length, at, Math.min(left, right), Math.max(left, right));
  svg.append(s("text", { class: "gain-text", ...place, "text-anchor": "middle", fill: "var(--ink)", "font-weight": 650,
    ...HALO }, text));
}

// Where a text of this width stands on the fewest curves: beside the arrow, or above or below it.
function quietPlace(shown, x, y, wide, at, left, right) {
  const middle = (left + right) / 2;
  const beside = [left - 12 - wide / 2, right + 12 + wide / 2].flatMap((px) =>
    [[px, at + 4], [px, at - 9], [px, at + 18]]);
  const over = [middle, x.range[0] + wide / 2, x.range[1] - wide / 2].flatMap((px) => [[px, at - 9], [px, at + 18]]);
  const places = [...beside, ...over];
  const cost = ([px, py]) => {
    if (px - wide / 2 < x.range[0] || px + wide / 2 > x.range[1]) return Infinity;
    let hits = 0;
    for (const series of shown) {
      for (let step = 0; step <= 12; step += 1) {
        const place = between(series, x.back(px - wide / 2 + (wide * step) / 12));
        if (place !== null && Math.abs(y(place) - (py - 4)) < 12) hits += 1;
      }
    }
    return hits;
  };
  const costs = places.map(cost);
  const [px, py] = places[costs.indexOf(Math.min(...costs))];
  return { x: Math.min(Math.max(px, x.range[0] + wide / 2), x.range[1] - wide / 2), y: py };
}

function between(series, at) {
  for (let i = 0; i + 1 < series.x.length; i += 1) {
    if (series.x[i] <= at && at <= series.x[i + 1]) {
      const share = (at - series.x[i]) / (series.x[i + 1] - series.x[i]);
      return series.y[i] + share * (series.y[i + 1] - series.y[i]);
    }
  }
  return null;
}

// Gains as dots with their intervals, so that "which is better, and is it sure" takes one look.
function gainFigure(task, id) {
  const size = ({ gain }) => gain && (gain.db ?? (gain.above > 0 ? gain.above : null));
  const found = task.curves.filter((curve) => curve.gain && size(curve) !== null);
  const never = task.curves.filter((curve) => curve.gain && size(curve) === null);
  const names = never.map((curve) => curve.label).join(", ");
  const lines = never.length ? [`No gain to mark for ${names}: the table says why.`] : [];
  if (!found.length) return said(["No method has a gain to mark here: the table says why."]);
  const draw = (width) => {
    const narrow = width < 520;
    const left = narrow ? 10 : 20 + 7.2 * Math.max(...found.map((curve) => curve.label.length));
    const row = narrow ? 40 : 26;
    const tall = row * found.length;
    const ends = found.flatMap((c) => [size(c), real(c.gain.low), real(c.gain.high), 0]).filter(Number.isFinite);
    const x = linear(widened(extent(ends), 0.08), [left, width - 68]);
    const svg = s("svg", { viewBox: `0 0 ${width} ${tall + 50}`, class: "chart", "font-size": 12.5 });
    for (const tick of roundTicks(x.domain, Math.max(3, (x.range[1] - left) / 60))) {
      const ends_ = { x1: x(tick), x2: x(tick), y1: 4, y2: tall + 8 };
      svg.append(s("line", { ...ends_, stroke: tick ? "var(--grid)" : "var(--axis)" }));
      svg.append(s("text", { x: x(tick), y: tall + 24, "text-anchor": "middle", fill: "var(--soft)" }, plain(tick)));
    }
    const below = { x: (left + width - 68) / 2, y: tall + 44 };
    svg.append(s("text", { ...below, "text-anchor": "middle", fill: "var(--soft)" }, "gain over ML (dB)"));
    found.forEach((curve, at) => drawGainRow(svg, curve, x, row - 8 + row * at, width, narrow));
    return svg;
  };
  const larger = found.some((curve) => curve.gain.db === null) ? " An arrow: the gain is larger than its dot." : "";
  const caption = `Dots are gains of the mean curves; bars are paired bootstrap intervals over noise draws.${larger}`;
  const stage = h("div", { class: "stage" });
  new ResizeObserver(() => {
    const svg = draw(Math.max(280, Math.round(stage.clientWidth || 900)));
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Gains over ML with intervals; the table below holds the numbers.");
    stage.replaceChildren(svg);
  }).observe(stage);
  return h("figure", { id: `${id}-gains`, class: "card" }, stage, said(lines),
    under(caption, figureButtons(`${id}-gains`, () => draw(760), null)));
}

// The name stands before its row, or above it where the row is narrow.
function drawGainRow(svg, curve, x, y, width, narrow) {
  const [low, high] = [real(curve.gain.low), real(curve.gain.high)];
  const place = narrow ? { x: 5, y: y - 12 } : { x: x.range[0] - 12, y: y + 4, "text-anchor": "end" };
  const look = { "font-weight": 500, fill: textColour(curve.colour), ...(narrow ? HALO : {}) };
  svg.append(s("text", { ...place, ...look }, named(curve.label, s)));
  if (!Number.isNaN(low)) {
    const [from, to] = [Math.max(x(low), x.range[0]), Math.min(x(high), x.range[1] - 8)];
    svg.append(s("line", { x1: from, x2: to, y1: y, y2: y, stroke: lineColour(curve.colour), "stroke-width": 4,
      "stroke-linecap": "round", opacity: 0.35 }));
    const open = high === Infinity ? [to, 1] : low === -Infinity ? [from, -1] : null;
    if (open) {
      const head = `M${open[0] + open[1]} ${y - 5}l${6 * open[1]} 5l${-6 * open[1]} 5`;
      svg.append(s("path", { d: head, fill: "none", stroke: lineColour(curve.colour), "stroke-width": 1.6 }));
    }
  }
  const { db, above } = curve.gain;
  if (db === null) {
    const arrow = `M${x(above)} ${y}H${x.range[1] - 2}m-5-4l5 4-5 4`;
    svg.append(s("path", { d: arrow, fill: "none", stroke: lineColour(curve.colour), "stroke-width": 1.6 }));
  }
  svg.append(marker(curve, x(db ?? above), y, 1.1));
  const text = db === null ? `> ${signed(above, 2)}` : signed(db, 2);
  svg.append(s("text", { x: width - 4, y: y + 4, "text-anchor": "end", fill: "var(--ink)" }, text));
}
