// Tables: small ones as they come, with their files; large ones that sort, filter and turn pages.

// A table of few columns is `stacked` on a phone: a block for each row, its cells named. Its rows may be `words`.
function plainTable(table, name, { id = null, open = true, stacked = false, words = false } = {}) {
  const prose = table.header.map((_, at) => table.rows.some((row) => /[a-z]{4}/i.test(row[at] ?? "")));
  const kind = (at) => (prose[at] ? "prose" : null);
  const empty = (cell) => cell === "" || cell === "–";
  const body = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption },
    h("table", { id, class: stacked ? "stacked" : null, role: "table", "aria-label": table.caption },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, table.header.map((cell, at) =>
        h("th", { scope: "col", role: "columnheader", class: kind(at) }, explained(cell))))),
      h("tbody", { role: "rowgroup" }, table.rows.map((row) => h("tr", { role: "row" }, row.map((cell, at) => (at
        ? h("td", { role: "cell", class: kind(at), "data-name": table.header[at], "data-empty": empty(cell) },
          typeset(cell))
        : h("th", { scope: "row", role: "rowheader" }, words ? explained(cell) : typeset(cell)))))))));
  const caption = h("p", { class: "caption" }, explained(table.caption));
  const buttons = h("div", { class: "saves", role: "group", "aria-label": "Save this table" },
    saveButton("CSV", "Save the table as CSV", () => save(`${name}.csv`, table.csv, "text/csv")),
    saveButton("LaTeX", "Save the table as LaTeX", () => save(`${name}.tex`, table.latex, "application/x-tex")));
  if (open) return h("div", { class: "card" }, caption, body, h("div", { class: "under" }, h("span", {}), buttons));
  return h("details", { class: "numbers" }, h("summary", {}, "The numbers as a table"), caption, body,
    h("div", { class: "under" }, h("span", {}), buttons));
}

// Numbers that have no table of their own in the data.
function numbersTable(caption, name, { header, rows }) {
  const text = rows.map((row) => row.map((cell) => (typeof cell === "number" ? plain(cell, 5) : cell ?? "–")));
  const table = { caption, header, rows: text, csv: csv(header, rows), latex: latex(header, rows) };
  return plainTable(table, name, { open: false });
}

const PAGE = 25;

// A column is { name, get(row), numeric, words, codes }.
function tableColumns(source) {
  return source.columns.map((column) => {
    if (column.numbers) {
      const values = Float64Array.from(column.numbers, real);
      return { name: column.name, numeric: true, values, get: (row) => values[row] };
    }
    return { name: column.name, numeric: false, words: column.words, codes: column.codes,
      get: (row) => column.words[column.codes[row]] };
  });
}

// "method=ml accuracy>0.6 resnet": conditions on columns, and words to be found in any column of words.
function parseQuery(query, columns) {
  const tests = [];
  for (const part of query.trim().split(/\s+/).filter(Boolean)) {
    const found = part.match(/^([\w.]+)(<=|>=|!=|=|<|>)(.+)$/);
    const column = found && columns.find((one) => one.name === found[1]);
    tests.push(column ? condition(column, found[2], found[3]) : anyWord(part, columns));
  }
  return tests;
}

function condition(column, sign, text) {
  if (!column.numeric) {
    const wanted = text.toLowerCase();
    return (row) => (column.get(row).toLowerCase() === wanted) === (sign !== "!=");
  }
  const limit = real(/^-?inf$/.test(text) ? text : Number(text.replace("−", "-")));
  const compare = { "<": (v) => v < limit, ">": (v) => v > limit, "<=": (v) => v <= limit, ">=": (v) => v >= limit,
    "=": (v) => v === limit, "!=": (v) => v !== limit }[sign];
  return (row) => compare(column.get(row));
}

function anyWord(word, columns) {
  const wanted = word.toLowerCase();
  const matches = columns.filter((column) => !column.numeric).map((column) => ({
    codes: column.codes, hits: column.words.map((text) => text.toLowerCase().includes(wanted)) }));
  return (row) => matches.some(({ codes, hits }) => hits[codes[row]]);
}

function filterRows(count, tests) {
  const kept = [];
  for (let row = 0; row < count; row += 1) if (tests.every((test) => test(row))) kept.push(row);
  return kept;
}

function sortRows(rows, column, down) {
  const way = down ? -1 : 1;
  const rank = column.numeric ? null : rankOf(column.words);
  const key = column.numeric ? column.get : (row) => rank[column.codes[row]];
  return rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || one - other;
    return a === b ? one - other : (a < b ? -way : way);
  });
}

function rankOf(words) {
  const order = words.map((word, at) => at).sort((a, b) => words[a].localeCompare(words[b], "en", { numeric: true }));
  const rank = new Array(words.length);
  order.forEach((at, place) => { rank[at] = place; });
  return rank;
}

function cellText(column, row) {
  const value = column.get(row);
  return column.numeric ? plain(value, 6) : value;
}

function dataTable(source, key) {
  const all = tableColumns(source);
  const columns = all.filter((column) => source.numRows < 2 || varies(column, source.numRows));
  const constant = all.filter((column) => !columns.includes(column));
  const same = constant.map((column) => `${column.name} = ${cellText(column, 0)}`);
  const state = chosen(key, { query: "", picks: {}, sort: null, down: false, page: 0 });
  const head = h("tr", {});
  const body = h("tbody", {});
  const count = h("p", { class: "count", role: "status" });
  const turn = h("div", { class: "turn" });
  let rows = [];
  const refresh = () => {
    choose(key, state);
    const tests = parseQuery(state.query, columns);
    for (const [name, value] of Object.entries(state.picks)) {
      const column = columns.find((one) => one.name === name);
      if (column && value !== "") tests.push((row) => cellText(column, row) === value);
    }
    rows = filterRows(source.numRows, tests);
    const by = columns.find((column) => column.name === state.sort);
    if (by) sortRows(rows, by, state.down);
    drawHead();
    drawPage();
  };
  const drawHead = () => head.replaceChildren(...columns.map((column) => {
    const sorted = state.sort === column.name;
    const way = sorted ? (state.down ? "descending" : "ascending") : "none";
    const button = h("button", { type: "button", id: `${key}-by-${slug(column.name)}`, onclick: () => {
      state.down = sorted ? !state.down : false;
      state.sort = column.name;
      state.page = 0;
      refresh();
      document.getElementById(`${key}-by-${slug(column.name)}`)?.focus();
    } }, column.name, h("span", { "aria-hidden": "true" }, sorted ? (state.down ? " ▼" : " ▲") : ""));
    return h("th", { scope: "col", "aria-sort": way, class: column.numeric ? "number" : null }, button);
  }));
  const drawPage = () => {
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const shown = rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
    body.replaceChildren(...shown.map((row) => h("tr", {}, columns.map((column) =>
      h("td", { class: column.numeric ? "number" : null }, cellText(column, row))))));
    count.textContent = rows.length
      ? `${rows.length.toLocaleString("en")} of ${source.numRows.toLocaleString("en")} records`
      : "No record fits; loosen the filter.";
    const go = (label, title, to, possible) => h("button", { type: "button", title, "aria-label": title,
      disabled: !possible, onclick: () => { state.page = to; drawPage(); } }, label);
    turn.replaceChildren(go("‹", "Previous page", state.page - 1, state.page > 0),
      h("span", {}, `page ${state.page + 1} of ${pages}`),
      go("›", "Next page", state.page + 1, state.page + 1 < pages));
  };
  const search = h("input", { id: `${key}-search`, type: "search", value: state.query, spellcheck: "false",
    placeholder: "word, or accuracy>0.6", oninput: (event) => {
      state.query = event.target.value;
      state.page = 0;
      refresh();
    } });
  const table = () => ({ header: all.map((column) => column.name),
    rows: rows.map((row) => all.map((column) => column.get(row))) });
  const saves = h("div", { class: "saves", role: "group", "aria-label": "Save these rows" },
    saveButton("CSV", "Save these rows as CSV, every column", () => {
      const { header, rows: cells } = table();
      save("results.csv", csv(header, cells), "text/csv");
    }),
    saveButton("LaTeX", "Save these rows as LaTeX", () => {
      const { header, rows: cells } = table();
      save("results.tex", latex(header, cells), "application/x-tex");
    }));
  refresh();
  return h("div", { class: "card results", id: key },
    h("div", { class: "fields" },
      h("label", { class: "field wide", for: `${key}-search` }, h("span", {}, "Filter"), search),
      pickers(columns, state, key, refresh)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records" },
      h("table", {}, h("thead", {}, head), body)),
    h("div", { class: "under" }, count, turn, saves),
    same.length ? h("p", { class: "count" }, `The same in every record: ${same.join(", ")}.`) : null);
}

function varies(column, count) {
  if (!column.numeric) return column.words.length > 1;
  for (let row = 1; row < count; row += 1) if (!Object.is(column.values[row], column.values[0])) return true;
  return false;
}

// A choice for each column that has a few values.
function pickers(columns, state, key, refresh) {
  const found = [];
  for (const column of columns) {
    const usual = ["run", "task", "method", "scheme", "wnr_db", "kind", "layer"].includes(column.name);
    if (!usual) continue;
    const values = column.numeric ? unique(column.values).sort((a, b) => a - b).map((v) => plain(v, 6)) : column.words;
    if (values.length < 2 || values.length > 60) continue;
    const options = [{ label: "all", value: "" }, ...values.map((value) => ({ label: value, value }))];
    found.push(select(`${key}-${slug(column.name)}`, column.name, options, state.picks[column.name] ?? "", (value) => {
      state.picks[column.name] = value;
      state.page = 0;
      refresh();
    }));
  }
  return found;
}
