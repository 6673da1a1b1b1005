// One small card for all figures, moved by the pointer or by arrow keys, and read out to those who cannot see it.

const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
const spoken = h("div", { class: "unseen", "aria-live": "polite" });

// `place` is the point in the window that the card stands beside.
function showTip(place, title, rows) {
  tip.replaceChildren(
    h("strong", {}, title),
    h("table", {}, rows.map((row) =>
      h("tr", { class: row.strong ? "strong" : null },
        h("td", {}, row.colour ? h("i", { class: "swatch" }) : null, named(row.label)),
        h("td", {}, row.value)))),
  );
  tip.querySelectorAll(".swatch").forEach((swatch, at) => {
    swatch.style.background = rows.filter((row) => row.colour)[at].colour;
  });
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = place.x + 16 + width < innerWidth - 8;
  const left = right ? place.x + 16 : Math.max(8, place.x - 16 - width);
  const top = Math.min(Math.max(8, place.y - height / 2), innerHeight - height - 8);
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function hideTip() {
  tip.hidden = true;
}

function say(title, rows) {
  spoken.textContent = `${title}: ${rows.map((row) => `${row.label} ${row.value}`).join("; ")}`;
}

addEventListener("scroll", hideTip, { passive: true });
