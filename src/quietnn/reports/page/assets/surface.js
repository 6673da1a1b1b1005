// The accuracy over (lambda', beta) as a search saw it: from above and in relief.

const NAMED = { ML: "#000000", MMSE: "#E69F00", chosen: "#D55E00" };

function surfaceSection(task, id) {
  if (!task.surfaces.length) return [];
  return [h("h3", { id: `${id}-surface-title` }, explained("Accuracy over the temperatures λ′ and β")),
    adjustable(`${id}-surface`, usualSurface(task), (state, show) => surfaceFigure(task, id, state, show))];
}

// The widest honest search, near the WNR where ML fails: there the temperatures matter most.
function usualSurface(task) {
  const width = (one) => unique(one.trials[1]).length;
  const ml = task.curves.find((curve) => curve.method === "ml");
  const aim = ml?.crossing ?? mean(task.surfaces.map((one) => one.wnr));
  const best = [...task.surfaces].sort((a, b) => a.oracle - b.oracle || (width(b) > 1) - (width(a) > 1)
    || Math.abs(a.wnr - aim) - Math.abs(b.wnr - aim) || b.kappa - a.kappa || a.draw - b.draw)[0];
  return { method: best.method, run: best.run, kappa: best.kappa, wnr: best.wnr, draw: best.draw };
}

const SURFACE_KEYS = [["method", "Search", (one) => one.label], ["run", "Run", (one) => one.run],
  ["kappa", "Tuned on", (one) => (one.oracle ? "test data (oracle)" : `${one.kappa} examples`)],
  ["wnr", "WNR", (one) => `${plain(one.wnr)} dB`], ["draw", "Noise draw", (one) => String(one.draw)]];

// One choice after another; each offers what the choices before it leave, and the nearest if its own is gone.
function narrowed(items, keys, state, id, show) {
  let left = items;
  const fields = [];
  for (const [key, label, name] of keys) {
    const options = unique(left.map((one) => one[key])).sort((a, b) => (typeof a === "number" ? a - b : 0));
    if (!options.includes(state[key])) {
      state[key] = options[typeof options[0] === "number" ? nearest(options, state[key]) : 0];
    }
    const named_ = options.map((value) => ({ value, label: name(left.find((one) => one[key] === value)) }));
    if (options.length > 1) {
      fields.push(select(`${id}-${key}`, label, named_, state[key], (value) => {
        state[key] = value;
        show();
      }));
    }
    left = left.filter((one) => one[key] === state[key]);
  }
  return { one: left[0], fields };
}

function surfaceFigure(task, id, state, show) {
  const { one, fields } = narrowed(task.surfaces, SURFACE_KEYS, state, `${id}-surface`, show);
  const surface = temperatureSurface(task, one, id);
  const relief = surface.mesh.triangles.length ? reliefStage(surface) : null;
  const name = `${id}-surface-${slug(one.method)}-${plain(one.wnr).replace("−", "minus")}dB-draw${one.draw}`;
  const numbers = () => ({ header: ["lambda_prime", "beta", "accuracy", "loss"],
    rows: surface.points.map((point) => [point.x, point.y, point.z, point.loss]) });
  const buttons = figureButtons(name, () => drawSurface(surface, 640, 470).svg, numbers);
  if (relief) buttons.append(reliefButton(name, relief));
  return h("figure", { id: `${id}-surface`, class: "card" }, h("div", { class: "fields" }, fields),
    h("div", { class: relief ? "pair" : null }, surfaceStage(surface), relief),
    under(surfaceCaption(one, surface), buttons),
    numbersTable("Every point tried", name, numbers()));
}

function temperatureSurface(task, one, id) {
  const [lambdas, betas, accuracies, losses] = one.trials;
  const points = lambdas.map((x, i) => ({ x, y: betas[i], z: real(accuracies[i]), loss: real(losses[i]) }));
  const near = (one, other) => Math.abs(one - other) < 1e-6;
  const at = (x, y) => points.findLast((point) => near(point.x, x) && near(point.y, y))?.z ?? NaN;
  const marks = [{ x: 1, y: 0, label: "ML", marker: "s" }, { x: 0, y: 0, label: "MMSE", marker: "v" }];
  if (one.chosen) marks.push({ x: one.chosen[0], y: one.chosen[1], label: "chosen", marker: "*" });
  for (const mark of marks) Object.assign(mark, { colour: NAMED[mark.label], z: at(mark.x, mark.y) });
  const rivals = task.surfaces.filter((other) => other.wnr === one.wnr && other.draw === one.draw);
  const levels = bandLevels(extent(rivals.flatMap((other) => other.trials[2].map(real))), 16);
  const [low, high] = [levels[0], levels.at(-1)];
  return {
    id: `${id}-map`, points, mesh: surfaceMesh(points), levels, marks, cellular: true, regions: true, pole: one.pole,
    title: `${one.label}, ${plain(one.wnr)} dB: accuracy on the examples tuned on over lambda prime and beta`,
    xLabel: "population temperature λ′", yLabel: "bias temperature β", xShort: "λ′", yShort: "β",
    zLabel: "accuracy on the examples tuned on (%)", zShort: "accuracy (%)", zText: (z) => plain(100 * z, 3),
    colour: (z) => shade(CIVIDIS, (z - low) / (high - low)),
    read: (point) => ({
      title: `λ′ ${plain(point.x, 5)}, β ${plain(point.y, 5)}`,
      rows: Number.isFinite(point.z)
        ? [{ label: "accuracy", value: percent(point.z, 2) }, { label: "loss", value: plain(point.loss, 5) },
          { label: "region", value: regionOf(point.x, one.pole) }]
        : [{ label: "infeasible", value: "at or past the pole" }],
    }),
  };
}

function regionOf(lambda, pole) {
  if (lambda >= pole || lambda < 0) return "infeasible";
  if (lambda === 0) return "zero compensation";
  if (lambda === 1) return "exact compensation";
  return lambda < 1 ? "under-compensation" : "over-compensation";
}

function bandLevels([low, high], count) {
  if (!(high > low)) return [low - 0.01, low + 0.01];
  const ticks = roundTicks([low, high], count);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : high - low;
  if (ticks[0] > low + 1e-12) ticks.unshift(ticks[0] - step);
  if (ticks.at(-1) < high - 1e-12) ticks.push(ticks.at(-1) + step);
  return ticks;
}

function surfaceCaption(one, surface) {
  const feasible = surface.points.filter((point) => Number.isFinite(point.z)).length;
  const past = surface.points.length - feasible;
  const parts = [`Dots are the ${feasible} points tried${past ? `, crosses ${past} infeasible ones` : ""}; `
    + "colours between them are filled in."];
  if (one.chosen) {
    const [lambda, beta] = one.chosen;
    const tuned = Number.isFinite(one.tuning) ? `, ${percent(one.tuning, 1)} on the examples tuned on` : "";
    parts.push(`Chosen: λ′ = ${plain(lambda)}, β = ${plain(beta)} (${regionOf(lambda, one.pole)})${tuned}, `
      + `${percent(one.accuracy, 1)} in the test.`);
  }
  const [left, right] = widened(extent(surface.points.map((point) => point.x)), 0.06);
  const believed = one.misjudged ? " at the WNR that the receiver believed in" : "";
  const where = one.pole > right ? "lies right of the range searched" : "bounds the feasible region";
  parts.push(`The pole, λ′ = 1 + η = ${plain(one.pole)}${believed}, ${where}.`);
  for (const { x, label } of surface.marks) {
    if (x < left || x > right) parts.push(`${label} (λ′ = ${x}) lies outside the range searched.`);
  }
  return parts.join(" ");
}
