// Every record, and what made them.

function resultsSection(payload) {
  const parts = [h("h2", {}, "All results")];
  payload.results.forEach((source, at) => {
    const name = source.experiment.replaceAll("_", " ");
    if (payload.results.length > 1) parts.push(h("h3", {}, name));
    if (source.notice) parts.push(said([source.notice]));
    parts.push(dataTable(source, `results-${at}`));
  });
  if (!payload.results.length) parts.push(said(["There are no records yet."]));
  return parts;
}

function ranSection(payload) {
  const parts = [h("h2", {}, "What ran")];
  for (const run of payload.runs) {
    parts.push(h("div", { class: "card" }, h("h3", { class: "first" }, run.name),
      facts(run.facts),
      run.config.length ? h("details", {}, h("summary", {}, "Configuration"),
        h("pre", { tabindex: "0" }, run.config.map(([key, value]) => `${key} = ${value}`).join("\n"))) : null));
  }
  const page = [["command", payload.command], ["written", payload.written]].filter(([, value]) => value);
  if (page.length) parts.push(facts(page, "page"));
  return parts;
}

function facts(pairs, kind = null) {
  return h("dl", { class: kind }, pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
