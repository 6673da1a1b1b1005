// Elements are built from text nodes and never from markup: nothing that a record holds can become a tag.

const SVG = "http://www.w3.org/2000/svg";

function h(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function s(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// What a reader has chosen (a WNR, a hidden curve) outlives the redrawing of a live page.
const choices = new Map();

function chosen(key, usual) {
  return choices.has(key) ? choices.get(key) : usual;
}

function choose(key, value) {
  choices.set(key, value);
}

// A part whose controls redraw it: the choices are remembered and the focus stays where it was.
function adjustable(key, usual, draw) {
  const state = chosen(key, usual);
  const holder = h("div", {});
  const show = () => {
    const focus = document.activeElement?.id;
    choose(key, state);
    holder.replaceChildren(draw(state, show));
    if (focus) document.getElementById(focus)?.focus();
  };
  show();
  return holder;
}

function slug(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "part";
}

// Numbers as a reader writes them: a true minus, no tail of zeros.
function plain(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

function fixed(value, places) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value.toFixed(places).replace("-", "−");
}

function percent(value, places = 1) {
  return `${fixed(100 * value, places)} %`;
}

function signed(value, places = 1) {
  return (value > 0 ? "+" : "") + fixed(value, places);
}

// Numbers arrive as themselves, as null, or as the name of an infinity.
function real(value) {
  if (value === null || value === undefined) return NaN;
  if (value === "inf") return Infinity;
  if (value === "-inf") return -Infinity;
  return value;
}

// "MMSE_pb layerwise" with its subscript, as nodes for a page or for a drawing.
function named(text, make = h) {
  let lowered = false;
  return text.split(/(_pb?\b)/).filter(Boolean).map((part) => {
    const low = /^_pb?$/.test(part);
    if (make === h) return low ? h("sub", {}, part.slice(1)) : document.createTextNode(part);
    const node = s("tspan", low ? { "font-size": "75%", dy: "0.28em" } : { dy: lowered ? "-0.21em" : null });
    node.textContent = low ? part.slice(1) : part;
    lowered = low;
    return node;
  });
}

function select(id, label, options, value, onChange) {
  const control = h("select", { id, onchange: (event) => onChange(options[event.target.selectedIndex].value) });
  for (const option of options) {
    control.append(h("option", { selected: option.value === value }, option.label));
  }
  return h("label", { class: "field", for: id }, h("span", {}, label), control);
}

function checkbox(id, label, checked, onChange) {
  const box = h("input", { id, type: "checkbox", checked, onchange: (event) => onChange(event.target.checked) });
  return h("label", { class: "tick" }, box, label);
}

function under(caption, buttons) {
  return h("div", { class: "under" }, h("figcaption", {}, explained(caption)), buttons);
}

// Where in a list the value nearest to an aim stands.
function nearest(values, aim) {
  return values.reduce((best, value, i) => (Math.abs(value - aim) < Math.abs(values[best] - aim) ? i : best), 0);
}

function unique(values) {
  return [...new Set(values)];
}

// Text from tables and sentences, with the minus that a reader expects.
function typeset(text) {
  return named(text.replace(/(^|[\s(])-(?=[\d.∞])/g, "$1−"));
}

function said(lines, kind = "notice") {
  if (!lines.length) return null;
  return h("ul", { class: kind }, lines.map((line) => h("li", {}, typeset(line))));
}
