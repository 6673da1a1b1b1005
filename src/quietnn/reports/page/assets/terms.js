// Words that the page explains where they stand: by pointer, by key and by touch; all of them again at the end.

let terms = [];
let spelled = null;
const gloss = h("div", { class: "gloss", role: "tooltip", hidden: true });
let opened = null;

function learn(found) {
  terms = found.map((term) => ({ ...term, id: `word-${slug(term.word)}` }));
  const spellings = terms.flatMap((term) => term.spellings).sort((a, b) => b.length - a.length);
  const escaped = spellings.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  spelled = escaped.length ? new RegExp(`(?<![\\w-])(${escaped.join("|")})(?!\\w)`) : null;
}

// Text with the first mention of each word as a button that opens its explanation; not a button element, which would
// not break into lines as text does.
function explained(text) {
  if (!spelled) return typeset(text);
  const seen = new Set();
  return text.split(spelled).flatMap((part, at) => {
    const term = at % 2 ? terms.find((one) => one.spellings.includes(part)) : null;
    if (!term || seen.has(term)) return typeset(part);
    seen.add(term);
    return h("span", { role: "button", tabindex: "0", class: "term", "data-word": term.word,
      "aria-describedby": term.id }, typeset(part));
  });
}

function openTerm(button, pinned) {
  const term = terms.find((one) => one.word === button.dataset.word);
  if (!term) return;
  opened = { button, pinned };
  gloss.replaceChildren(h("strong", {}, named(term.word)), ": ", ...typeset(term.text));
  gloss.hidden = false;
  placeGloss();
}

function placeGloss() {
  const word = opened.button.getBoundingClientRect();
  if (!opened.button.isConnected || word.bottom < 0 || word.top > innerHeight) return closeTerm();
  const { width, height } = gloss.getBoundingClientRect();
  const left = Math.min(Math.max(8, word.left), innerWidth - width - 8);
  const top = word.bottom + height + 8 < innerHeight ? word.bottom : Math.max(8, word.top - height);
  gloss.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  return null;
}

function closeTerm() {
  opened = null;
  gloss.hidden = true;
}

function listenForTerms() {
  const term = (event) => (event.target instanceof Element ? event.target.closest(".term") : null);
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && term(event) && !opened?.pinned) openTerm(term(event), false);
  });
  document.addEventListener("pointerout", (event) => {
    const to = event.relatedTarget;
    const stays = to instanceof Element && (to.closest(".gloss") || to.closest(".term") === opened?.button);
    if (event.pointerType === "mouse" && opened && !opened.pinned && !stays) closeTerm();
  });
  document.addEventListener("focusin", (event) => {
    if (term(event)) openTerm(term(event), false);
    else if (opened) closeTerm();
  });
  document.addEventListener("click", (event) => {
    const button = term(event);
    if (button && !(opened?.button === button && opened.pinned)) openTerm(button, true);
    else if (opened && !(event.target instanceof Element && event.target.closest(".gloss"))) closeTerm();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && opened) closeTerm();
    if (!term(event) || !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    term(event).click();
  });
  addEventListener("scroll", () => { if (opened) placeGloss(); }, { passive: true });
}

function wordsSection() {
  return [h("h2", {}, "Words used here"), h("dl", { class: "words" }, terms.flatMap((term) =>
    [h("dt", {}, named(term.word)), h("dd", { id: term.id }, typeset(term.text))]))];
}
