// The clock and the state shared by all stages. All models have the same clock, in units of layers.
"use strict";
particles.player = (data, root) => {
  const { readout, Stage } = particles;
  const find = (selector) => root.querySelector(selector);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const touch = matchMedia("(hover: none)");
  const LAYER = 2400, STEP = 380;  // milliseconds

  const state = {
    part: data.models[0].parts[0].name, view: "normalised", trails: "layer", attention: true, follow: false, speed: 1, stop: 0, playing: false,
    chosen: null, hovered: null,  // each {panel, word}
    activeWord: (stage) => wordIn(stage, state.hovered) ?? wordIn(stage, state.chosen),
    window: (stage, frame) => (state.follow ? layerWindow(stage, frame) : stage.part.axes[state.view]),
    isChosen: (stage, word) => wordIn(stage, state.chosen) === word,
  };
  // The same word in another model's stage: by index if both have the same words, else by its text.
  function wordIn(stage, which) {
    if (!which) return null;
    const mine = stage.part.tokens, theirs = which.panel.stage.part.tokens;
    if (which.panel.stage === stage || (mine.length === theirs.length && mine.every((token, i) => token === theirs[i]))) return which.word;
    const index = mine.indexOf(theirs[which.word]);
    return index < 0 ? null : index;
  }

  // The bounds of all models in the layer of a frame.
  const windows = new Map();
  function layerWindow(stage, frame) {
    const layer = Math.max(1, Math.ceil(stage.part.times[frame] - 1e-6)), key = `${state.part} ${state.view} ${layer}`;
    if (!windows.has(key)) {
      const inside = (time) => (layer === 1 || time > layer - 1 - 1e-6) && time < layer + 1e-6;
      const points = panels.flatMap(({ part }) => part.frames.filter((_, k) => inside(part.times[k])).flatMap((each) => each[state.view]));
      const ends = (axis) => [Math.min(...points.map((point) => point[axis])), Math.max(...points.map((point) => point[axis]))];
      windows.set(key, [...ends(0), ...ends(1)]);
    }
    return windows.get(key);
  }

  const everyone = [...root.querySelectorAll(".panel")].map((box, m) => {
    const panel = { box, model: data.models[m], stage: new Stage(box.querySelector(".stage"), state), frame: 0 };
    for (const name of ["now", "sentence", "steps", "tip"]) panel[name] = box.querySelector(`.${name}`);
    panel.readout = root.querySelectorAll(".readout")[m];
    return panel;
  });
  let panels = everyone;  // those that have the current part: an encoder model has no decoder
  const slider = find("#frame"), play = find("#play"), count = find(".count"), live = find("[role=status]");
  let stops = [0];

  const frameAt = (part, time) => Math.max(0, part.times.findLastIndex((each) => each <= time + 1e-6));
  const end = () => stops[stops.length - 1];

  function setPart(name) {
    state.part = name;
    state.chosen = state.hovered = null;
    panels = everyone.filter(({ model }) => model.parts.some((part) => part.name === name));
    for (const panel of everyone) panel.box.hidden = panel.readout.hidden = !panels.includes(panel);
    find(".arena").dataset.models = panels.length;
    for (const panel of panels) {
      panel.part = panel.model.parts.find((part) => part.name === name);
      panel.source = panel.model.source ?? panel.model.parts[0].tokens;
      panel.stage.setPart(panel.part, panel.source);
      panel.sentence.replaceChildren(...panel.part.tokens.map((token, i) =>
        readout.element("button", { type: "button", tabindex: -1, "data-word": i }, token)));
    }
    stops = [...new Set(panels.flatMap(({ part }) => part.times.map((time) => time.toFixed(6))))].map(Number).sort((a, b) => a - b);
    const jump = (part, k) => { stop(); go(stops.findIndex((each) => each >= part.times[k] - 1e-6)); };
    for (const { steps, part } of panels) readout.strip(steps, part, panels.length > 1 ? end() : 0, (k) => jump(part, k));
    slider.max = stops.length - 1;
    for (const box of document.querySelectorAll("[data-part]")) box.hidden = box.dataset.part !== name;
    press("part", name);
  }

  // Update everything that depends on the frame, except the stage. announce: also for screen readers (not while playing).
  function tell(announce) {
    for (const panel of panels) {
      const { part, frame, stage } = panel;
      const { operator, label } = part.frames[frame];
      panel.box.dataset.operator = operator;
      panel.now.textContent = label;
      readout.mark(panel.steps, frame);
      const word = state.activeWord(stage);
      if (word === null) readout.whole(panel.readout, part, frame);
      else readout.word(panel.readout, part, frame, word, state.view, data.words, panel.source);
      for (const button of panel.sentence.children) button.classList.toggle("chosen", Number(button.dataset.word) === word);
    }
    for (const item of root.querySelectorAll(".operators li")) {
      item.classList.toggle("lit", panels.some(({ part, frame }) => part.frames[frame].operator === item.dataset.operator));
    }
    slider.value = state.stop;
    slider.setAttribute("aria-valuetext", panels.map(({ part, frame }) => part.frames[frame].label).join("; "));
    count.textContent = `${state.stop + 1} / ${stops.length}`;
    if (!announce) return;
    live.textContent = panels.map(({ model, part, frame }) => (panels.length > 1 ? `${model.name}: ` : "") + readout.summary(part, frame)).join(" ");
    root.dispatchEvent(new Event("settled"));
  }

  // A stop is a time at which any model ends a sub-step; a model between two of its sub-steps shows the earlier one.
  let moving = 0, time = 0;
  function animate(step) {
    cancelAnimationFrame(moving);
    let before = null;
    const tick = (now) => {
      // A hidden window gets no animation frames: it continues where it was.
      const goOn = step(before === null ? 0 : Math.min(now - before, 100));
      before = now;
      if (goOn) moving = requestAnimationFrame(tick);
    };
    moving = requestAnimationFrame(tick);
  }
  const ease = (share) => (share < 0.5 ? 2 * share * share : 1 - 2 * (1 - share) ** 2);

  function go(target, glide = true) {
    const old = state.stop;
    state.stop = Math.min(Math.max(target, 0), stops.length - 1);
    time = stops[state.stop];
    for (const panel of panels) {
      panel.frame = frameAt(panel.part, time);
      panel.stage.leave();
    }
    mark();
    tell(true);
    const arrive = (share) => { for (const { stage, frame } of panels) stage.arrive(frame, share); tips(); };
    if (!glide || calm.matches || Math.abs(state.stop - old) > 1) { cancelAnimationFrame(moving); arrive(1); return; }
    let spent = 0;
    animate((passed) => {
      spent += passed;
      arrive(ease(Math.min(1, spent / STEP)));
      return spent < STEP;
    });
  }

  function start() {
    if (state.stop === stops.length - 1) go(0, false);
    state.playing = true;
    showPlaying();
    let waited = 0;
    animate((passed) => {
      if (calm.matches) {  // jump from stop to stop
        waited += passed;
        if (waited < LAYER / 3 / state.speed) return true;
        waited = 0;
        advance(stops[Math.min(state.stop + 1, stops.length - 1)]);
      } else advance(Math.min(end(), time + (passed * state.speed) / LAYER));
      for (const { part, stage } of panels) {
        const a = frameAt(part, time), b = Math.min(a + 1, part.frames.length - 1);
        const share = a === b ? 1 : (time - part.times[a]) / (part.times[b] - part.times[a]);
        // A move takes three quarters of its time, then pauses.
        if (calm.matches || share <= 0) stage.arrive(a, 1); else stage.between(a, b, ease(Math.min(1, share / 0.75)));
      }
      tips();
      if (time < end()) return true;
      stop();
      return false;
    });
  }
  function advance(to) {
    time = to;
    const reached = stops.findLastIndex((each) => each <= time + 1e-6);
    // A model that is moving shows the values of the frame it moves to.
    let changed = reached !== state.stop;
    state.stop = reached;
    for (const panel of panels) {
      const a = frameAt(panel.part, time), moved = !calm.matches && time > panel.part.times[a] + 1e-6;
      const frame = Math.min(moved ? a + 1 : a, panel.part.frames.length - 1);
      changed ||= frame !== panel.frame;
      panel.frame = frame;
    }
    mark();
    if (changed) tell(false);
  }
  function stop() {
    if (!state.playing) return;
    state.playing = false;
    showPlaying();
    cancelAnimationFrame(moving);
    // Finish the current move, so that a pause shows an actual state of the network.
    const next = stops.findIndex((each) => each >= time - 1e-6);
    state.stop = next;
    go(next);
  }
  function showPlaying() {
    play.textContent = state.playing ? "Pause" : "Play";
    root.classList.toggle("playing", state.playing);
  }
  const toggle = () => (state.playing ? stop() : start());
  // While playing, a step forward finishes the current move, a step back undoes it.
  function step(by) {
    const midway = state.playing;
    stop();
    if (!midway || by < 0) go(state.stop + by);
  }

  // The current time in the charts below.
  const markers = [...document.querySelectorAll("[data-part] figure.chart[data-read]")].map((figure) => {
    const { x } = JSON.parse(figure.querySelector("script").textContent);
    const line = figure.querySelector(".plot svg").appendChild(macaron.svg("line", { class: "moment", y1: 0, y2: "100%" }));
    return { line, x, shift: Number(figure.closest("[data-shift]").dataset.shift) };
  });
  function mark() {
    for (const { line, x: [low, high], shift } of markers) {
      const share = `${Math.min(100, Math.max(0, (100 * (time + shift - low)) / (high - low)))}%`;
      line.setAttribute("x1", share);
      line.setAttribute("x2", share);
    }
  }

  function press(group, value) {
    for (const button of root.querySelectorAll(`[data-${group}-choice]`)) {
      button.setAttribute("aria-pressed", button.getAttribute(`data-${group}-choice`) === value);
    }
  }
  function setView(view) {
    state.view = view;
    press("view", view);
    relayout();
  }
  const relayout = () => { for (const { stage } of panels) stage.layout(); };
  function setSpeed(speed) {
    state.speed = speed;
    find("#speed").value = String(speed);
  }

  const redraw = () => { for (const { stage } of panels) stage.redraw(); tips(); };
  const tips = () => { for (const { tip, stage, frame } of panels) readout.tip(tip, stage, frame, state.hovered || touch.matches ? state.activeWord(stage) : null, data.words); };
  function hover(panel, word) {
    if (state.hovered?.panel === panel && state.hovered.word === word) return;
    if (!state.hovered && word === null) return;
    state.hovered = word === null ? null : { panel, word };
    redraw();
    tell(false);
  }
  function choose(panel, word) {
    const same = state.chosen && wordIn(panel.stage, state.chosen) === word;
    state.chosen = word === null || same ? null : { panel, word };
    redraw();
    tell(false);
  }

  return {
    state, everyone, calm, setPart, setView, setSpeed, relayout, redraw, tips, go, start, stop, toggle, step, hover, choose,
    get panels() { return panels; },
    last: () => stops.length - 1,
  };
};
