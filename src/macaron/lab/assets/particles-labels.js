// Positions of the labels beside their points: a search over a few candidates per word, with little overlap.
"use strict";
window.particles = {};
// A bare full stop would look like another point.
particles.shown = (word) => (/[\p{L}\p{N}]/u.test(word) ? word : `“${word}”`);
particles.labels = (() => {
  const RADII = [9, 19, 31];
  // In order of preference.
  const DIRECTIONS = [[1, 0], [-1, 0], [0, -1], [0, 1], [0.8, -0.7], [0.8, 0.7], [-0.8, -0.7], [-0.8, 0.7]];
  const PLACES = RADII.flatMap((radius, ring) =>
    DIRECTIONS.map(([x, y], k) => ({ x, y, radius, ring, cost: 0.55 * ring + 0.03 * k })));
  const HEIGHT = 15;
  const context = document.createElement("canvas").getContext("2d");

  function widths(words, font) {
    context.font = font;
    return words.map((word) => context.measureText(word).width + 4);
  }

  const rectangle = ([px, py], width, place) => {
    const x = px + place.x * (place.radius + width / 2), y = py + place.y * (place.radius + HEIGHT / 2);
    return [x - width / 2, y - HEIGHT / 2, x + width / 2, y + HEIGHT / 2];
  };
  const shared = (a, b) =>
    Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));

  // For each word the offset of its centre from its point, whether it is so far away that a line must connect the two
  // (tied), and whether it would cover another word (crowded: drawn on demand only). A word keeps its position of the
  // previous frame unless something else is there.
  function place(points, wide, [left, top, right, bottom], before) {
    const chosen = points.map((_, i) => before?.[i]?.place ?? PLACES[0]);
    const boxes = points.map((point, i) => rectangle(point, wide[i], chosen[i]));
    const spots = points.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
    const covered = (box, i, others) => others.reduce((sum, other, j) => sum + (j === i ? 0 : shared(box, other)), 0);
    const outside = ([x0, y0, x1, y1]) =>
      Math.max(0, left - x0) + Math.max(0, top - y0) + Math.max(0, x1 - right) + Math.max(0, y1 - bottom);
    for (let pass = 0; pass < 3; pass++) {
      points.forEach((point, i) => {
        let best = Infinity;
        for (const candidate of PLACES) {
          const box = rectangle(point, wide[i], candidate), area = wide[i] * HEIGHT;
          const moved = before && before[i].place !== candidate ? 0.4 : 0;
          const cost = candidate.cost + moved + outside(box) +
            (6 * covered(box, i, boxes)) / area + (3 * covered(box, i, spots)) / area;
          if (cost < best) { best = cost; chosen[i] = candidate; boxes[i] = box; }
        }
      });
    }
    const shown = [];
    return points.map(([x, y], i) => {
      const box = boxes[i];
      const crowded = shown.some((other) => shared(box, other) > 0.2 * wide[i] * HEIGHT);
      if (!crowded) shown.push(box);
      return { dx: (box[0] + box[2]) / 2 - x, dy: (box[1] + box[3]) / 2 - y, tied: chosen[i].ring > 0, crowded, place: chosen[i] };
    });
  }
  return { widths, place };
})();
