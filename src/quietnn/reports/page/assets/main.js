// Unpack the numbers, put the page together, and in live mode keep it up to date.

const live = document.documentElement.hasAttribute("data-live");

async function unzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function embedded() {
  const text = atob(document.getElementById("data").textContent);
  return unzip(Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
}

// A part of the page: its place in the menu, the data it depends on, and how it is drawn.
function parts(payload) {
  const found = [];
  const alone = payload.tasks.length + payload.training.length + (payload.theory ? 1 : 0) === 1;
  payload.tasks.forEach((task, at) => found.push({ id: `task-${at}`, name: task.title, data: task,
    inside: alone ? taskMenu(task, `task-${at}`) : null, draw: () => taskSection(task, `task-${at}`, alone) }));
  payload.training.forEach((task, at) => found.push({ id: `training-${at}`, name: `Training: ${task.title}`, data: task,
    inside: alone ? taskMenu(task, `training-${at}`) : null,
    draw: () => trainingSection(task, `training-${at}`, alone) }));
  const { theory } = payload;
  if (theory) found.push({ id: "theory", name: "Theory", data: theory, draw: () => theorySection(theory, "theory") });
  found.push({ id: "results", name: "All results", data: payload.results, draw: () => resultsSection(payload) });
  const ran = [payload.runs, payload.command, payload.written];
  if (terms.length) found.push({ id: "words", name: "Words", data: terms, draw: wordsSection });
  found.push({ id: "ran", name: "What ran", data: ran, draw: () => ranSection(payload) });
  return found;
}

// A page about one task has room for its parts in the menu.
function taskMenu(task, id) {
  const { length } = task.curves;
  return [["rounds", "Rounds", task.series?.length], ["accuracy", quantityOf(task).title, length],
    ["gains", "Gains", length], ["surface", "Temperatures", task.surfaces.length],
    ["layers", "Layers", task.layers.length], ["cost", "Cost", 1]]
    .filter(([, , there]) => there).map(([part, name]) => ({ id: `${id}-${part}-title`, name }));
}

function taskSection(task, id, alone) {
  return [
    h("h2", { class: alone ? "unseen" : null }, task.title),
    headCards(task),
    adviceList(task, id),
    said(task.notices),
    task.curves.length ? accuracySection(task, id) : said(["Nothing was measured under noise yet."]),
    surfaceSection(task, id),
    layersSection(task, id),
    h("h3", { id: `${id}-cost-title` }, "What each method costs"),
    plainTable(task.tables.cost, `${id}-cost`, { id: `${id}-cost-table`, stacked: true }),
  ].flat();
}

const shown = new Map();

function render(payload) {
  const focus = document.activeElement?.id;
  document.title = payload.title;
  document.querySelector("h1").textContent = payload.title;
  learn(payload.terms);
  document.getElementById("lead").replaceChildren(...explained(payload.lead));
  document.getElementById("notices").replaceChildren(...[said(payload.notices)].filter(Boolean));
  const wanted = parts(payload);
  const body = document.getElementById("parts");
  for (const [id, { node }] of shown) {
    if (wanted.some((part) => part.id === id)) continue;
    node.remove();
    shown.delete(id);
  }
  wanted.forEach((part, at) => {
    const text = JSON.stringify(part.data);
    const old = shown.get(part.id);
    if (old?.text !== text) {
      old?.node.remove();
      shown.set(part.id, { text, node: h("section", { id: part.id }, part.draw()) });
    }
    const { node } = shown.get(part.id);
    if (body.children[at] !== node) body.insertBefore(node, body.children[at] ?? null);
  });
  document.getElementById("menu").replaceChildren(...wanted.flatMap((part) => part.inside ?? [part])
    .map((part) => h("a", { href: `#${part.id}` }, part.name)));
  if (focus && document.activeElement === document.body) document.getElementById(focus)?.focus({ preventScroll: true });
}

function frame() {
  const page = document.getElementById("page");
  const title = page.querySelector("h1");
  const themes = ["auto", "light", "dark"];
  const theme = h("button", { type: "button", id: "theme", title: "Colours: as the system, light, dark" }, "◐ auto");
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(theme.dataset.theme ?? "auto") + 1) % 3];
    theme.dataset.theme = next;
    theme.textContent = `◐ ${next}`;
    document.documentElement.style.colorScheme = next === "auto" ? "" : next;
    dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  document.body.prepend(h("a", { class: "skip", href: "#results" }, "Skip to all results"),
    h("header", { class: "bar" }, h("nav", { id: "menu", "aria-label": "Sections" }),
      live ? h("span", { id: "mark" }) : null, theme));
  page.replaceChildren(title, h("p", { id: "lead", class: "lead" }), h("div", { id: "live", role: "status" }),
    h("div", { id: "notices" }), h("div", { id: "parts" }));
  document.body.append(tip, gloss, spoken);
  listenForTerms();
  if (live) mark("live");
}

async function start() {
  frame();
  try {
    render(await embedded());
  } catch (error) {
    const sorry = `This page could not be drawn: ${error.message}. The records themselves are unharmed.`;
    document.getElementById("notices").replaceChildren(said([sorry]));
    throw error;
  } finally {
    document.getElementById("page").setAttribute("aria-busy", "false");
  }
  performance.mark("drawn");
  if (live) follow();
}

// Ask how far the runs are, again and again; where the numbers changed, fetch them and redraw what did.
async function follow() {
  const place = document.getElementById("live");
  const ask = async (name) => unzip(await (await fetch(name, { cache: "no-store" })).arrayBuffer());
  let latest = {};
  for (;;) {
    const began = performance.now();
    try {
      const progress = await ask("progress");
      if (progress.version !== latest.version) render(await ask("data"));
      // A reader of screens says what is replaced: only news are.
      if (JSON.stringify(progress) !== JSON.stringify(latest)) showProgress(place, progress);
      latest = progress;
    } catch {
      const lost = "Not connected: the server has stopped. What is shown stays.";
      place.replaceChildren(h("p", { class: "live lost" }, lost));
      mark("lost");
      latest = {};
    }
    await new Promise((wake) => setTimeout(wake, Math.max(1000, 3 * (performance.now() - began))));
  }
}

// The mark that stays in sight: whether this page follows a run, and whether it still does.
function mark(state) {
  const shown = document.getElementById("mark");
  shown.className = `mark-${state}`;
  shown.textContent = { live: "Live", done: "Finished", lost: "Not connected" }[state];
}

function showProgress(place, progress) {
  const { done, total, left, note } = progress;
  const bar = total ? h("progress", { max: total, value: done, "aria-label": "Records" }) : null;
  const count = `${done.toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""} records`;
  const words = [count, left, note].filter(Boolean).join(" · ");
  const finished = total && done >= total;
  mark(finished ? "done" : "live");
  place.replaceChildren(h("p", { class: finished ? "live done" : "live" }, h("b", {}, finished ? "Finished" : "Live"),
    bar, h("span", {}, words)));
}

start();
