// The stage: the words of one model as points in an SVG, their moves, and the attention between them.
"use strict";
particles.Stage = class {
  // Least attention that is drawn, in per cent: for one word, for all words.
  static ONE = 2;
  static ALL = 25;

  constructor(box, state) {
    this.box = box;
    this.state = state;
    this.svg = box.querySelector("svg");
    for (const name of ["axes", "source", "trails", "attention", "path", "threads", "points", "labels"]) {
      this[name] = macaron.svg("g", { class: name });
      this.svg.append(this[name]);
      if (name !== "points") this[name].setAttribute("aria-hidden", "true");
    }
    this.points.setAttribute("role", "listbox");
    this.points.setAttribute("aria-label", "Words: press the up and down arrow keys to move between words, Enter to select");
    this.width = this.height = 0;
  }

  // Show another part. source: the words that cross-attention attends to.
  setPart(part, source) {
    this.part = part;
    this.sourceWords = part.frames.some((frame) => frame.operator === "H") ? source : [];
    const make = (parent, tag, attributes) => parent.appendChild(macaron.svg(tag, attributes));
    for (const group of [this.source, this.threads, this.points, this.labels]) group.replaceChildren();
    this.particles = part.tokens.map((token, i) => {
      const particle = make(this.points, "g", { class: "particle", role: "option", "data-word": i, tabindex: i ? -1 : 0 });
      particle.setAttribute("aria-label", `${token}, word ${i + 1} of ${part.tokens.length}`);
      make(particle, "circle", { class: "halo", r: 8.5 });
      make(particle, "circle", { class: "dot", r: 4.5 });
      return particle;
    });
    this.texts = part.tokens.map((token, i) => {
      const text = make(this.labels, "text", { "data-word": i });
      text.textContent = particles.shown(token);
      return text;
    });
    this.lines = part.tokens.map(() => make(this.threads, "line", {}));
    this.sources = this.sourceWords.map((word, i) => {
      const text = make(this.source, "text", { "data-source": i });
      text.textContent = word;
      return text;
    });
    this.at = null;
    this.layout();
  }

  layout() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    if (!this.width || !this.part) return;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    // A stage that is too low for one column of source words has two.
    const columns = (this.height - 60) / Math.max(1, this.sources.length) < 10 ? 2 : 1, rows = Math.ceil(this.sources.length / columns);
    const gutter = this.sourceWords.length ? (this.width < 500 ? 78 + 30 * (columns - 1) : 110) : 0;
    this.inside = [26, 22, this.width - 26 - gutter, this.height - 36];
    this.bounds = [4, 6, this.width - 4 - gutter, this.height - 22];
    this.places = this.part.frames.map((frame) => frame[this.state.view]);
    const font = `${getComputedStyle(this.svg).fontSize} ${getComputedStyle(this.svg).fontFamily}`;
    this.wide = particles.labels.widths(this.texts.map((text) => text.textContent), font);
    this.offsets = [];
    this.nameAxes();
    const step = Math.min(22, (this.height - 60) / Math.max(1, rows));
    const first = this.height / 2 - (step * (rows - 1)) / 2;
    this.sourceAt = this.sources.map((_, i) => [this.width - gutter + 10 + (Math.floor(i / rows) * gutter) / 2, first + step * (i % rows)]);
    this.source.style.fontSize = `${Math.max(7, Math.min(13 - 3 * (columns - 1), step - 1))}px`;
    this.sources.forEach((text, i) => { text.setAttribute("x", this.sourceAt[i][0] + 6); text.setAttribute("y", this.sourceAt[i][1]); });
  }

  // The centre and the scale of the picture: for all frames, or for the layer of a frame.
  // Both axes have the same scale, so that lengths are comparable.
  camera(k) {
    const [x0, x1, y0, y1] = this.state.window(this, k), [left, top, right, bottom] = this.inside;
    const scale = Math.min((right - left) / (x1 - x0 || 1), (bottom - top) / (y1 - y0 || 1));
    return [(x0 + x1) / 2, (y0 + y1) / 2, Math.log(scale)];
  }
  project([x, y], [cx, cy, zoom]) {
    const [left, top, right, bottom] = this.inside, scale = Math.exp(zoom);
    return [(left + right) / 2 + scale * (x - cx), (top + bottom) / 2 - scale * (y - cy)];
  }

  nameAxes() {
    const shares = this.part.variance[this.state.view].map((share) => `${Math.round(100 * share)} %`);
    const low = this.height - 8;
    const text = (content, attributes) => {
      const element = macaron.svg("text", attributes);
      element.textContent = content;
      return element;
    };
    this.cross = [macaron.svg("line", {}), macaron.svg("line", {})];
    this.bar = macaron.svg("path", { class: "bar" });
    this.barText = text("", { y: low, "text-anchor": "end" });
    this.axes.replaceChildren(...this.cross, this.bar, this.barText,
      text(`axis 1 → ${shares[0]} of the variance`, { x: 10, y: low }),
      text(`axis 2 → ${shares[1]}`, { transform: `translate(14 ${this.height - 30}) rotate(-90)` }));
    if (this.sources.length) this.axes.append(text("source words", { x: this.width - 10, y: 16, "text-anchor": "end" }));
  }

  // The lines through zero, and a scale bar.
  drawAxes(camera) {
    const [x, y] = this.project([0, 0], camera), right = this.bounds[2], low = this.height - 20;
    const at = (line, x1, y1, x2, y2) => Object.entries({ x1, y1, x2, y2 }).forEach(([key, value]) => line.setAttribute(key, value.toFixed(1)));
    at(this.cross[0], 0, Math.min(Math.max(y, -9), low + 99), y > low ? 0 : right, Math.min(Math.max(y, -9), low + 99));
    at(this.cross[1], x, 0, x, x > right ? 0 : low);
    const scale = Math.exp(camera[2]), power = 10 ** Math.floor(Math.log10(70 / scale));
    const unit = [5, 2, 1].find((each) => each * power * scale <= 70) * power, length = unit * scale;
    this.bar.setAttribute("d", `M${this.width - 10 - length} ${this.height - 15}v4h${length}v-4`);
    this.barText.setAttribute("x", this.width - 16 - length);
    this.barText.textContent = String(Number(unit.toPrecision(1)));
  }

  // Label positions of a frame, computed on first use in order of frames, so that labels stay where they are.
  offset(k) {
    for (let j = this.offsets.length; j <= k; j++) {
      const camera = this.camera(j), points = this.places[j].map((point) => this.project(point, camera));
      this.offsets.push(particles.labels.place(points, this.wide, this.bounds, this.offsets[j - 1]));
    }
    return this.offsets[k];
  }

  // On the way from one frame to the next: what is drawn while playing.
  between(a, b, share) { this.mix(this.still(a), this.still(b), share, share); }

  // From where the points are now to a frame: a step back, another view, a pause in the middle of a move.
  leave() { this.from = this.at && { ...this.at }; }
  arrive(frame, share) {
    if (!this.from || share >= 1) this.mix(this.still(frame), this.still(frame), 1, 1);
    else this.mix(this.from, this.still(frame), share, this.from.frame === frame - 1 ? share : 1);
  }

  still(frame) {
    return { points: this.places[frame], offsets: this.offset(frame).map(({ dx, dy }) => [dx, dy]), camera: this.camera(frame), frame };
  }
  mix(from, to, share, grown) {
    const blend = (a, b) => a.map((value, i) => value + share * (b[i] - value));
    const pairs = (a, b) => a.map((value, i) => blend(value, b[i]));
    this.at = { points: pairs(from.points, to.points), offsets: pairs(from.offsets, to.offsets), camera: blend(from.camera, to.camera), frame: to.frame, grown };
    this.redraw();
  }

  redraw() {
    if (!this.at) return;
    const { offsets, camera, frame, grown } = this.at, one = this.active();
    const points = this.pixels = this.at.points.map((point) => this.project(point, camera));
    this.drawAxes(camera);
    const labels = this.offset(frame);
    const weights = this.lookedAt(frame, one);
    this.svg.classList.toggle("choosing", one !== null);
    points.forEach(([x, y], i) => {
      const [dx, dy] = offsets[i], special = i === one || (one !== null && weights?.[i] >= particles.Stage.ONE);
      this.particles[i].setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      this.particles[i].classList.toggle("chosen", i === one);
      this.particles[i].classList.toggle("near", special);
      this.particles[i].setAttribute("aria-selected", this.state.isChosen(this, i));
      const text = this.texts[i];
      text.setAttribute("x", (x + dx).toFixed(1));
      text.setAttribute("y", (y + dy).toFixed(1));
      text.classList.toggle("near", special);
      text.classList.toggle("crowded", labels[i].crowded && !special);
      const tied = labels[i].tied && (special || !labels[i].crowded);
      const ends = { x1: x, y1: y, x2: tied ? x + 0.7 * dx : x, y2: tied ? y + 0.7 * dy : y };
      for (const [key, value] of Object.entries(ends)) this.lines[i].setAttribute(key, value.toFixed(1));
    });
    this.drawMoves(points, frame, grown, one, camera);
    this.drawAttention(points, frame, grown, one);
  }

  // The moves of each sub-step in the colour and line style of its operator, older ones fainter.
  drawMoves(points, frame, grown, one, camera) {
    const { frames } = this.part;
    const at = (j, i) => this.project(this.places[j][i], camera).map((value) => value.toFixed(1));
    const segment = (j, i) => `M${at(j - 1, i)}L${j === frame && grown < 1 ? points[i].map((value) => value.toFixed(1)) : at(j, i)}`;
    let first = frame;
    if (this.state.trails === "layer") while (first > 1 && frames[first - 1].layer === frames[frame].layer) first--;
    if (this.state.trails === "path") first = 1;
    const draw = (j, words, opacity) => macaron.svg("path", {
      class: `move op-${frames[j].operator}`, d: words.map((i) => segment(j, i)).join(""), opacity });
    const drawn = [];
    const all = this.part.tokens.map((_, i) => i);
    for (let j = Math.max(1, first); j <= frame && this.state.trails !== "off"; j++) {
      const age = frame - j, faintest = this.state.trails === "path" ? 0.22 : 0.35;
      drawn.push(draw(j, all, Math.max(faintest, 0.9 - 0.25 * age)));
    }
    this.trails.replaceChildren(...drawn);
    const path = [];
    for (let j = 1; one !== null && j <= frame; j++) path.push(draw(j, [one], j === frame ? 1 : 0.8));
    this.path.replaceChildren(...path);
  }

  drawAttention(points, frame, grown, one) {
    const { operator, attention } = this.part.frames[frame];
    this.source.classList.toggle("active", operator === "H");
    const lines = [];
    if (attention && this.state.attention) {
      const ends = operator === "H" ? this.sourceAt : points;
      const least = one === null ? particles.Stage.ALL : particles.Stage.ONE;
      attention.weights.forEach((row, i) => {
        if (one !== null && one !== i) return;
        row.forEach((weight, j) => {
          if (weight < least || !ends[j] || (operator === "F" && i === j)) return;
          lines.push(this.thread(points[i], ends[j], weight, operator, grown));
        });
      });
    }
    this.attention.replaceChildren(...lines);
    const row = operator === "H" && one !== null ? attention?.weights[one] : null;
    this.sources.forEach((text, j) => text.classList.toggle("near", (row?.[j] ?? 0) >= particles.Stage.ONE));
  }

  // An arc: moves are straight, and two words that attend to each other have two arcs.
  thread([x0, y0], [x1, y1], weight, operator, grown) {
    const bend = operator === "H" ? 0.06 : 0.14;
    const mx = (x0 + x1) / 2 + bend * (y1 - y0), my = (y0 + y1) / 2 - bend * (x1 - x0);
    return macaron.svg("path", {
      class: `thread op-${operator}`,
      d: `M${x0.toFixed(1)} ${y0.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`,
      "stroke-width": (0.6 + weight / 28).toFixed(2),
      opacity: (grown * Math.min(0.75, 0.16 + weight / 110)).toFixed(2),
    });
  }

  // The attention of the active word to each word of its own part in a frame, in per cent, or null.
  lookedAt(frame, one) {
    const { operator, attention } = this.part.frames[frame];
    return one !== null && operator === "F" && this.state.attention ? attention?.weights[one] : null;
  }

  active() { return this.state.activeWord(this); }

  // The word under the pointer: the nearest point within reach, or the label.
  wordAt(event, reach) {
    const label = event.target.closest?.(".labels text");
    if (label) return Number(label.dataset.word);
    const box = this.svg.getBoundingClientRect();
    let best = null, least = reach;
    (this.pixels ?? []).forEach(([x, y], i) => {
      const distance = Math.hypot(event.clientX - box.left - x, event.clientY - box.top - y);
      if (distance < least) { least = distance; best = i; }
    });
    return best;
  }
};
