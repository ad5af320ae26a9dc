// The controls (buttons, keys, pointer, URL) and the start.
"use strict";
(async () => {
  const { readout } = particles;
  // The data are compressed: a page would be three times as large.
  const bytes = Uint8Array.from(atob(macaron.data("particles")), (c) => c.charCodeAt(0));
  const data = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  const root = document.getElementById("particles");
  const find = (selector) => root.querySelector(selector);
  const player = particles.player(data, root);
  const { state, go, stop, start, toggle, step, hover, choose, redraw, relayout, tips } = player;
  const SPEEDS = [0.25, 0.5, 1, 2, 4];
  const slider = find("#frame"), live = find("[role=status]"), table = find(".table");

  let touched = false;
  // The URL stores what is shown.
  function remember() {
    if (!touched) return;
    const said = new URLSearchParams({ frame: state.stop, view: state.view, part: state.part });
    try { history.replaceState(null, "", `#${said}`); } catch { /* some browsers forbid it for files */ }
  }
  function recall() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!["frame", "view", "part"].some((key) => asked.has(key))) return false;
    stop();
    const part = asked.get("part"), view = asked.get("view");
    if (part !== state.part && data.models.some((model) => model.parts.some(({ name }) => name === part))) player.setPart(part);
    if (view === "raw" || view === "normalised") player.setView(view);
    go(Number.parseInt(asked.get("frame"), 10) || 0, false);
    return true;
  }

  function fillTable() {
    if (!table.open) return;
    const shown = player.panels.map(({ model, part, frame }) => ({ model: model.name, part, frame, view: state.view }));
    readout.table(find(".table-body"), shown, data.words);
    dispatchEvent(new Event("resize"));  // base.js checks which tables are wider than the page
  }

  function listen() {
    for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touched = true; }, { capture: true, once: true });
    find("#play").addEventListener("click", toggle);
    find("#back").addEventListener("click", () => step(-1));
    find("#forward").addEventListener("click", () => step(1));
    slider.addEventListener("input", () => {
      const wanted = Number(slider.value);
      stop();
      go(wanted);
    });
    find("#speed").addEventListener("change", (event) => player.setSpeed(Number(event.target.value)));
    find("#trails").addEventListener("change", (event) => { state.trails = event.target.value; redraw(); });
    find("#attention").addEventListener("change", (event) => { state.attention = event.target.checked; redraw(); });
    find("#follow").addEventListener("change", (event) => { stop(); state.follow = event.target.checked; relayout(); go(state.stop); });
    root.addEventListener("click", ({ target }) => {
      const { partChoice, viewChoice } = target.dataset;
      if (partChoice && partChoice !== state.part) { stop(); player.setPart(partChoice); go(0, false); }
      if (viewChoice && viewChoice !== state.view) { stop(); player.setView(viewChoice); go(state.stop); }
    });
    table.addEventListener("toggle", fillTable);
    root.addEventListener("settled", () => { fillTable(); remember(); });
    document.addEventListener("keydown", key);
    addEventListener("hashchange", recall);
    for (const panel of player.everyone) listenTo(panel);
    new ResizeObserver(() => {
      relayout();
      if (!state.playing) { for (const { stage, frame } of player.panels) stage.arrive(frame, 1); tips(); }
    }).observe(find(".panels"));
  }
  function listenTo(panel) {
    const { stage, sentence } = panel;
    stage.svg.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") hover(panel, stage.wordAt(event, 26)); });
    stage.svg.addEventListener("pointerleave", () => hover(panel, null));
    stage.svg.addEventListener("click", (event) => choose(panel, stage.wordAt(event, 30)));
    const word = ({ target }) => (target.dataset.word === undefined ? null : Number(target.dataset.word));
    sentence.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") hover(panel, word(event)); });
    sentence.addEventListener("pointerleave", () => hover(panel, null));
    sentence.addEventListener("click", (event) => choose(panel, word(event)));
    // On the surrounding HTML: an SVG group with a focus listener could get the focus itself.
    stage.box.addEventListener("focusin", ({ target }) => {
      for (const particle of stage.particles) particle.setAttribute("tabindex", particle === target ? 0 : -1);
      if (!target.matches(":focus-visible")) return;
      hover(panel, Number(target.dataset.word));
      if (!state.playing) live.textContent = readout.spoken(panel.part, panel.frame, Number(target.dataset.word), data.words);
    });
    stage.box.addEventListener("focusout", () => hover(panel, null));
    stage.box.addEventListener("keydown", (event) => {
      const own = Number(event.target.dataset.word), last = stage.particles.length - 1;
      const next = { ArrowDown: Math.min(own + 1, last), ArrowUp: Math.max(own - 1, 0) }[event.key];
      if (next !== undefined) { event.preventDefault(); stage.particles[next].focus(); }
      if (event.key === "Enter") { event.preventDefault(); choose(panel, own); }
    });
  }

  // Keys control the stage while it is visible; further down the space bar scrolls the page.
  const inSight = () => {
    const { top } = find(".panels").getBoundingClientRect(), { bottom } = find(".readouts").getBoundingClientRect();
    return top < innerHeight / 2 && bottom > innerHeight / 2;
  };
  function key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
    const { target } = event;
    if (target.closest("select, .scroll, .plot") || !(root.contains(target) || inSight())) return;
    const press = target.closest("button, summary, input[type=checkbox], a");
    const faster = SPEEDS[Math.min(SPEEDS.indexOf(state.speed) + 1, SPEEDS.length - 1)];
    const slower = SPEEDS[Math.max(SPEEDS.indexOf(state.speed) - 1, 0)];
    const actions = {
      ArrowRight: () => step(1), ArrowLeft: () => step(-1), "+": () => player.setSpeed(faster), "=": () => player.setSpeed(faster), "-": () => player.setSpeed(slower),
      Home: () => { stop(); go(0, false); }, End: () => { stop(); go(player.last(), false); },
      Escape: () => choose(player.panels[0], null),
      ...(press ? {} : { " ": toggle }),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  player.setPart(state.part);
  player.setView(state.view);
  listen();
  root.classList.add("ready");
  if (recall()) return;
  go(0, false);
  // Play once when the stage becomes visible, unless the reader prefers reduced motion.
  if (player.calm.matches) return;
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    if (state.stop === 0 && !state.playing && document.visibilityState === "visible") start();
  }, { threshold: 0.6 });
  seen.observe(find(".stage"));
})();
