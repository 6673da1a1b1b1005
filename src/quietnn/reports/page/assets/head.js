// What to take home: the numbers on top, and the best method for what a reader has.

function headCards(task) {
  const cards = [];
  if (task.headline) cards.push([task.headline.value, task.headline.text]);
  if (task.clean) {
    const [merit, examples] = task.clean;
    const of = quantityOf(task);
    const on = examples ? ` on ${examples.toLocaleString("en")} test ${of.examples ?? "examples"}` : "";
    cards.push([of.value(merit), `${of.title.toLowerCase()} without noise${on}`]);
  }
  if (!cards.length) return null;
  const kind = (at) => (task.headline && at === 0 ? "figure-card main" : "figure-card");
  return h("div", { class: "cards" }, cards.map(([value, text], at) =>
    h("p", { class: kind(at) }, h("strong", {}, typeset(value)), " ", h("span", {}, explained(text)))));
}

function adviceList(task, id) {
  if (!task.advice.length) return null;
  const line = ({ have, use, text }) => [h("dt", {}, have),
    h("dd", {}, h("strong", {}, explained(use)), ": ", explained(text))];
  const title = h("h3", { class: "first" }, "What to use");
  return h("div", { class: "card advice", id: `${id}-advice` }, title, h("dl", {}, task.advice.flatMap(line)));
}
