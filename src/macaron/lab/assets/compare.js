// The sentences of a comparison: which to show, in what order. Without this script all of them are shown.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".examples")) {
    const list = box.querySelector(".sentences"), cards = [...list.children];
    const buttons = [...box.querySelectorAll("button")], order = box.querySelector("select");
    const said = box.querySelector("output");
    const upwards = { line: true, length: true, difference: false };
    function show() {
      const sort = buttons.find((button) => button.getAttribute("aria-pressed") === "true").dataset.sort;
      const key = order.value;
      cards.sort((a, b) => (a.dataset[key] - b.dataset[key]) * (upwards[key] ? 1 : -1));
      list.append(...cards);
      for (const card of cards) card.hidden = card.dataset.sort !== sort;
      const count = cards.filter((card) => !card.hidden).length;
      said.textContent = `${count} sentence${count === 1 ? "" : "s"}`;
    }
    for (const button of buttons) {
      button.addEventListener("click", () => {
        for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
        show();
      });
    }
    order.addEventListener("change", show);
    box.querySelector(".choose").hidden = false;
    show();
  }
});
