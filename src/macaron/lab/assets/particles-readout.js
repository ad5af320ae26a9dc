// The values of the stage as text: of a frame, of a word, the strip of sub-steps, the table.
"use strict";
particles.names = { F: "diffusion", G: "convection", H: "cross-attention" };

particles.readout = (() => {
  const number = (value) => macaron.readable(Number(value));
  const known = (value) => (value === null ? "–" : number(value));
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / Math.max(1, list.length);

  const { shown } = particles;
  const nearest = (part, k, i) => part.frames[k].nearest[i].map((j) => shown(part.tokens[j])).join(", ") || "none";
  const predicted = (part, k, i, words) => part.frames[k].lens?.[i].map(([id, percent]) => `${shown(words[id])} ${percent} %`).join(", ") || "–";

  // A frame in one sentence, for screen readers.
  function summary(part, k) {
    const { move, label } = part.frames[k];
    const words = `${label}.`;
    if (!k) return `${words} ${part.tokens.length} words, not moved yet.`;
    const longest = move.indexOf(Math.max(...move));
    return `${words} Mean move ${number(mean(move))}, longest “${part.tokens[longest]}” (${number(move[longest])}).`;
  }

  const fact = (name, ...value) => [element("dt", {}, name), element("dd", {}, ...value)];

  // A bar chart of [name, value]: percentages, or values with the one of a full bar.
  function bars(heading, pairs, operator, full = null) {
    const list = element("ul", { class: `bars${operator ? ` op-${operator}` : ""}` });
    for (const [name, value] of pairs) {
      const said = full === null ? `${value} %` : number(value);
      const row = element("li", {}, element("span", { class: "name" }, name), element("span", { class: "share" }, said));
      row.style.setProperty("--share", `${Math.min(100, (100 * value) / (full ?? 100))}%`);
      list.append(row);
    }
    return element("div", {}, element("p", { class: "head" }, heading), list);
  }

  function word(box, part, k, i, view, words, source) {
    const frame = part.frames[k];
    const [x, y] = frame[view][i];
    // Relative to the norm before the move, as in the charts.
    const relative = k ? ` (${Math.round((100 * frame.move[i]) / (part.frames[k - 1].norm[i] || 1))} % of norm)` : "";
    const facts = element("dl", {},
      ...fact("Norm", element("b", { class: "norm" }, number(frame.norm[i]))),
      ...fact("This move", element("b", { class: "move" }, k ? number(frame.move[i]) : "none"), element("small", {}, relative)),
      ...fact("Position", `${number(x)}, ${number(y)}`),
      ...fact("Nearest", nearest(part, k, i)));
    const head = element("div", {}, element("p", { class: "token" }, element("b", {}, part.tokens[i]), ` word ${i + 1} of ${part.tokens.length}`), facts);
    const lists = [
      ...(frame.lens ? [bars("Predicts", frame.lens[i].map(([id, percent]) => [shown(words[id]), percent]))] : []),
    ];
    if (frame.attention) {
      const names = frame.operator === "H" ? source : part.tokens;
      const looked = frame.attention.weights[i].map((percent, j) => [j === i && frame.operator === "F" ? `${shown(names[j])} (itself)` : shown(names[j]), percent]);
      looked.sort((a, b) => b[1] - a[1]);
      lists.push(bars("Attends to", looked.filter(([, percent]) => percent > 0).slice(0, 4), frame.operator));
    }
    box.replaceChildren(head, element("div", {}, ...lists));
  }

  // A word in one sentence, for screen readers.
  const spoken = (part, k, i, words) => `${part.tokens[i]}: norm ${number(part.frames[k].norm[i])}, ` +
    `${k ? `moved by ${number(part.frames[k].move[i])}` : "not moved yet"}. Nearest: ${nearest(part, k, i)}. Predicts ${predicted(part, k, i, words)}.`;

  // A word in short, beside its point.
  function tip(box, stage, k, i, words) {
    box.hidden = i === null;
    if (i === null) return;
    const { norm, move, lens } = stage.part.frames[k];
    const [x, y] = stage.pixels[i], low = y > stage.height / 2;
    const best = lens?.[i][0];
    box.replaceChildren(element("b", {}, stage.part.tokens[i]), element("br"), `norm ${number(norm[i])}${k ? `, move ${number(move[i])}` : ""}`,
      ...(best ? [element("br"), `predicts ${shown(words[best[0]])} ${best[1]} %`] : []));
    box.style.left = `${Math.min(Math.max(x, 80), stage.width - 80)}px`;
    box.style.top = low ? "" : `${y + 16}px`;
    box.style.bottom = low ? `${stage.height - y + 16}px` : "";
  }

  // The values of a frame, if no word is selected.
  function whole(box, part, k) {
    const { move, norm, operator, attention } = part.frames[k];
    const strong = attention?.weights.some((row, i) => row.some((weight, j) => weight >= particles.Stage.ALL && (operator === "H" || i !== j)));
    const arcs = strong ? `The arcs are attention of at least ${particles.Stage.ALL} %.` : `No attention reaches ${particles.Stage.ALL} %: no arcs.`;
    const says = {
      F: `Each word moves towards the words it attends to. ${arcs}`,
      G: "Each word moves by itself, independently of the others.",
      H: `Each word moves towards words of the source, on the right. ${arcs}`,
      start: "Embedding and position only: no interaction yet.",
      signal: "Vectors of the positions and of the step are added: no interaction.",
      end: "The output of the stack: every state after the final norm.",
    }[operator] ?? "";
    const facts = element("dl", {},
      ...fact("Mean norm", number(mean(norm))),
      ...(k ? fact("Mean move", number(mean(move))) : []),
      ...fact("Similarity", known(part.depth.similarity[k])),
      ...fact("Dimensions", `${known(part.depth.spread[k])} of ${part.dimension}`));
    const order = move.map((length, i) => [shown(part.tokens[i]), length]).sort((a, b) => b[1] - a[1]).slice(0, 5);
    box.replaceChildren(
      element("div", {}, element("p", { class: "token" }, element("b", {}, "All words")), element("p", { class: "says" }, says), facts),
      element("div", {}, ...(k ? [bars("Longest moves", order, operator, order[0][1] || 1)] : []),
        element("p", { class: "hint" }, "Hover over a word, tap it or tab to it to see its values.")));
  }

  // The sub-steps as a strip of blocks, layer by layer. A click jumps there.
  // With one model all blocks have the same width, like the slider's stops; with two they follow the clock up to `end`.
  function strip(box, part, end, go) {
    box.replaceChildren();
    let block = null, layer = null;
    part.frames.forEach((frame, k) => {
      if (!k) return;
      if (frame.layer !== layer) {
        layer = frame.layer;
        block = box.appendChild(element("div", { class: "layer" }));
        block.dataset.number = layer > 0 && layer <= part.layers ? layer : "";
      }
      const letter = particles.names[frame.operator] ? frame.operator : "\u00a0";
      const cell = element("span", { class: `step op-${frame.operator}`, title: frame.label, "data-frame": k }, letter);
      const width = end ? 100 * (part.times[k] - part.times[k - 1]) : 1;
      cell.style.flexGrow = width;
      cell.addEventListener("click", () => go(k));
      block.append(cell);
      block.style.flexGrow = Number(block.style.flexGrow || 0) + width;
    });
    // A stack may end earlier on the common clock.
    const rest = 100 * (end - part.times[part.times.length - 1]);
    if (rest > 1e-3) box.append(Object.assign(element("div", { class: "layer" }), { style: `flex-grow:${rest}` }));
  }

  function mark(box, k) {
    for (const cell of box.querySelectorAll(".step")) {
      const own = Number(cell.dataset.frame);
      cell.classList.toggle("past", own <= k);
      cell.classList.toggle("current", own === k);
    }
  }

  function table(box, stages, words) {
    const made = stages.map(({ model, part, frame: k, view }) => {
      const frame = part.frames[k];
      const head = ["Word", "Axis 1", "Axis 2", "Norm", "Move", "Nearest words", "Predicts"];
      const rows = part.tokens.map((token, i) => [token, ...frame[view][i].map(number), number(frame.norm[i]), k ? number(frame.move[i]) : "–",
        nearest(part, k, i), predicted(part, k, i, words)]);
      const cell = (tag, content, i, extra = {}) => element(tag, { ...(i > 0 && i < 5 ? { class: "number" } : {}), ...extra }, content);
      return element("div", { class: "scroll" }, element("table", {},
        element("caption", {}, element("span", {}, `${model}, ${part.name}: ${frame.label}`)),
        element("thead", {}, element("tr", {}, ...head.map((name, i) => cell("th", name, i, { scope: "col" })))),
        element("tbody", {}, ...rows.map((row) => element("tr", {},
          ...row.map((value, i) => cell(i ? "td" : "th", value, i, i ? {} : { scope: "row" })))))));
    });
    box.replaceChildren(...made);
  }
  return { summary, word, whole, spoken, tip, strip, mark, table, element };
})();
