// The slider and the selects of the trajectories page.
"use strict";
(() => {
  const { steps, start, groups } = macaron.data("trajectories");
  const at = (id) => document.getElementById(id);
  const stage = document.querySelector(".trajectories");
  const drawn = [...stage.querySelectorAll(".trajectory")];
  const rows = [...stage.querySelectorAll("tbody tr")];
  const names = rows.map((row) => row.querySelector("th").textContent);

  const pairs = (path) => Array.from({ length: path.length / 2 }, (_, i) => `${path[2 * i]} ${path[2 * i + 1]}`);
  const line = (path) => `M${pairs(path).join("L")}`;
  const dots = (path) => pairs(path).map((point) => `M${point}h0`).join("");

  function show() {
    const index = Number(at("steps").value);
    const count = steps[index] === 1 ? "1 step" : `${steps[index]} steps`;
    const shown = groups[Number(at("group").value)].schemes.map((trajectories) => trajectories[index]);
    shown.forEach(({ nodes, error, ratio }, i) => {
      drawn[i].querySelector(".line").setAttribute("d", nodes.map(line).join(""));
      drawn[i].querySelector(".nodes").setAttribute("d", nodes.map(dots).join(""));
      rows[i].querySelector(".error").textContent = error;
      rows[i].querySelector(".ratio").textContent = ratio;
    });
    // The sub-steps of one scheme replace its straight lines, which would cover them.
    const chosen = at("moves").value;
    drawn.forEach((each, i) => { each.querySelector(".line").style.display = chosen === String(i) ? "none" : ""; });
    stage.querySelector(".moves").replaceChildren(...(chosen === "" ? [] : shown[Number(chosen)].moves).map(
      ([operator, paths]) => macaron.svg("path", { class: operator, d: paths.map(line).join("") })));
    stage.querySelector(".operators").hidden = chosen === "";
    at("count").textContent = steps[index];
    at("steps").setAttribute("aria-valuetext", count);
    stage.querySelector("caption span").textContent = `Error with ${count}`;
    return shown.map(({ error }, i) => `${names[i]}: error ${error}`).join(", ");
  }
  for (const id of ["steps", "group", "moves"]) at(id).addEventListener("input", () => { at("said").textContent = show(); });
  at("steps").value = steps.indexOf(start);
  stage.querySelector(".controls").hidden = false;
  show();
})();
