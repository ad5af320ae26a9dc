// The slider and the choices of the page of trajectories: paths of another number of steps, other sub-flows.
"use strict";
(() => {
  const { steps, start, groups } = macaron.data("trajectories");
  const at = (id) => document.getElementById(id);
  const stage = document.querySelector(".trajectories");
  const walks = [...stage.querySelectorAll(".walk")];
  const rows = [...stage.querySelectorAll("tbody tr")];
  const names = rows.map((row) => row.querySelector("th").textContent);

  const pairs = (way) => Array.from({ length: way.length / 2 }, (_, i) => `${way[2 * i]} ${way[2 * i + 1]}`);
  const line = (way) => `M${pairs(way).join("L")}`;
  const dots = (way) => pairs(way).map((place) => `M${place}h0`).join("");

  function show() {
    const place = Number(at("steps").value), count = steps[place];
    const shown = groups[Number(at("group").value)].schemes.map((scheme) => scheme.walks[place]);
    shown.forEach((walk, i) => {
      walks[i].querySelector(".way").setAttribute("d", walk.nodes.map(line).join(""));
      walks[i].querySelector(".nodes").setAttribute("d", walk.nodes.map(dots).join(""));
      rows[i].querySelector(".error").textContent = walk.error;
      rows[i].querySelector(".ratio").textContent = walk.ratio;
    });
    // Sub-steps of one scheme: its own straight ways would only cover them.
    const chosen = at("moves").value;
    walks.forEach((walk, i) => { walk.querySelector(".way").style.display = chosen === String(i) ? "none" : ""; });
    stage.querySelector(".moves").replaceChildren(...(chosen === "" ? [] : shown[Number(chosen)].moves).map(
      ([operator, ways]) => macaron.svg("path", { class: operator, d: ways.map(line).join("") })));
    stage.querySelector(".operators").hidden = chosen === "";
    at("count").textContent = count;
    at("steps").setAttribute("aria-valuetext", count === 1 ? "1 step" : `${count} steps`);
    stage.querySelector("caption span").textContent = count === 1 ? "In one step" : `In ${count} steps`;
    return shown.map((walk, i) => `${names[i]}: error ${walk.error}`).join(", ");
  }
  for (const id of ["steps", "group", "moves"]) at(id).addEventListener("input", () => { at("said").textContent = show(); });
  at("steps").value = steps.indexOf(start);
  stage.querySelector(".controls").hidden = false;
  show();
})();
