// Files a reader takes away: figures as SVG and PNG in the light theme, numbers as CSV and LaTeX.

function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function saveButton(label, title, action) {
  return h("button", { type: "button", class: "save", title, "aria-label": title, onclick: action }, label);
}

// The colours of the light theme, read from the style sheet so that they are written down once.
function lightTheme() {
  const found = {};
  for (const [, name, colour] of document.querySelector("style").textContent.matchAll(
    /(--[\w-]+):\s*light-dark\(([^,]+),/g,
  )) {
    found[name] = colour.trim();
  }
  return found;
}

function standalone(svg) {
  const copy = svg.cloneNode(true);
  const theme = lightTheme();
  for (const node of [copy, ...copy.querySelectorAll("*")]) {
    for (const name of ["fill", "stroke", "stop-color"]) {
      const value = node.getAttribute(name);
      if (!value) continue;
      const themed = value.replace(/var\((--[\w-]+)\)/g, (_, variable) => theme[variable] ?? "#000000");
      node.setAttribute(name, themed.replace(/light-dark\(([^,]+),[^)]*\)/g, "$1"));
    }
    for (const name of ["tabindex", "role", "aria-label", "aria-describedby", "class"]) node.removeAttribute(name);
  }
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("font-family", "Helvetica, Arial, sans-serif");
  copy.prepend(s("rect", { width, height, fill: "#ffffff" }));
  return copy;
}

function svgText(svg) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(standalone(svg))}\n`;
}

async function savePng(name, svg, scale = 3) {
  const { width, height } = svg.viewBox.baseVal;
  const address = URL.createObjectURL(new Blob([svgText(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h("canvas", { width: width * scale, height: height * scale });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    await saveCanvas(name, canvas);
  } finally {
    URL.revokeObjectURL(address);
  }
}

async function saveCanvas(name, canvas) {
  save(name, await new Promise((resolve) => canvas.toBlob(resolve, "image/png")));
}

// Text that a spreadsheet would run as a formula is kept text.
function csvCell(value) {
  const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv(header, rows) {
  return [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "∞": "$\\infty$" };

function latexCell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "--" : plain(value, 6).replace("−", "$-$");
  return String(value ?? "").replace(/[\\&%$#_{}~^∞]/g, (sign) => LATEX[sign] ?? `\\${sign}`);
}

function latex(header, rows) {
  const line = (cells) => `${cells.map(latexCell).join(" & ")} \\\\`;
  const columns = rows.length ? rows[0].map((cell) => (typeof cell === "number" ? "r" : "l")).join("") : "l";
  const body = rows.map(line).join("\n");
  return `\\begin{tabular}{${columns}}\n\\toprule\n${line(header)}\n\\midrule\n${body}\n\\bottomrule\n\\end{tabular}\n`;
}

function reliefButton(name, relief) {
  const action = () => saveCanvas(`${name}-relief.png`, relief.still());
  return saveButton("PNG of the relief", "Save the relief as PNG", action);
}

// The row of buttons under a figure. `draw` makes the figure anew at a size fit for print.
function figureButtons(name, draw, numbers) {
  const row = h("div", { class: "saves", role: "group", "aria-label": "Save this figure" });
  row.append(
    saveButton("SVG", "Save the figure as SVG", () => save(`${name}.svg`, svgText(draw()), "image/svg+xml")),
    saveButton("PNG", "Save the figure as PNG", () => savePng(`${name}.png`, draw())),
  );
  if (numbers) {
    row.append(
      saveButton("CSV", "Save the numbers behind the figure as CSV", () => {
        const { header, rows } = numbers();
        save(`${name}.csv`, csv(header, rows), "text/csv");
      }),
    );
  }
  return row;
}
