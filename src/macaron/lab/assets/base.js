// Part of every page: the theme button, values of charts by pointer or keyboard, wide tables that scroll.
// Page scripts use window.macaron.
"use strict";
window.macaron = (() => {
  const themes = ["auto", "light", "dark"];
  const root = document.documentElement;
  const announceTheme = () => document.dispatchEvent(new CustomEvent("macaron:theme"));

  // A page opened from a file may have no storage: then the choice is not remembered.
  function stored() {
    try { return themes.includes(localStorage.getItem("macaron-theme")) ? localStorage.getItem("macaron-theme") : "auto"; }
    catch { return "auto"; }
  }
  function setTheme(name) {
    if (name === "auto") root.removeAttribute("data-theme"); else root.dataset.theme = name;
    try { localStorage.setItem("macaron-theme", name); } catch { /* not remembered */ }
  }
  let theme = stored();
  if (theme !== "auto") root.dataset.theme = theme;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announceTheme);

  function themeButton() {
    const button = document.querySelector("button.theme");
    const show = () => { button.textContent = `Theme: ${theme}`; };
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      setTheme(theme);
      show();
      announceTheme();
    });
    show();
    button.hidden = false;
  }

  const data = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);
  // The computed colour of a variable such as --op-F, for a canvas.
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  // As macaron.lab.charts writes numbers.
  function readable(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    if (size >= 1e-3) return String(Number(value.toPrecision(4)));
    const [mantissa, power] = value.toExponential(2).split("e");
    const ten = `10${[...power].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
    return Math.abs(mantissa) === 1 ? ten.padStart(ten.length + (value < 0), "-") : `${Number(mantissa)}×${ten}`;
  }

  function nearest(sorted, value) {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1; else high = middle;
    }
    return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
  }

  function readChart(figure) {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const drawing = plot.querySelector("svg");
    const values = [...figure.querySelectorAll(".legend b")];
    const at = figure.querySelector(".at");
    const spoken = figure.querySelector("output");
    const usual = [at.textContent, ...values.map((value) => value.textContent)];
    const axis = ([low, high], log) => log
      ? [(value) => Math.log(value / low) / Math.log(high / low), (share) => low * (high / low) ** share]
      : [(value) => (value - low) / (high - low), (share) => low + share * (high - low)];
    const [acrossX, valueAt] = axis(chart.x, chart.log_x);
    const [upY] = axis(chart.y, chart.log_y);
    const stops = [...new Set(chart.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    if (!stops.length) return;
    const cursor = svg("line", { class: "cursor", y1: 0, y2: "100%" });
    const markers = chart.series.map((series) => {
      const marker = svg("circle", { class: "marker", r: 5 });
      marker.style.setProperty("--colour", `var(--series-${series.colour})`);
      return marker;
    });
    const overlay = svg("g", { "aria-hidden": "true" });
    overlay.append(cursor, ...markers);
    overlay.style.display = "none";
    drawing.append(overlay);
    let current = stops.length - 1;

    function show(index, speak) {
      current = Math.min(Math.max(index, 0), stops.length - 1);
      const x = stops[current], share = `${100 * acrossX(x)}%`;
      cursor.setAttribute("x1", share);
      cursor.setAttribute("x2", share);
      overlay.style.display = "";
      at.textContent = `${chart.x_label} ${readable(x)}`;
      const said = [at.textContent];
      chart.series.forEach((series, i) => {
        // A series with other x values shows its nearest value, and none beyond its ends.
        const inside = series.x.length && x >= series.x[0] && x <= series.x[series.x.length - 1];
        markers[i].style.display = inside ? "" : "none";
        if (!inside) { values[i].textContent = "–"; return; }
        const k = nearest(series.x, x);
        markers[i].setAttribute("cx", `${100 * acrossX(series.x[k])}%`);
        markers[i].setAttribute("cy", `${100 * (1 - upY(series.y[k]))}%`);
        values[i].textContent = readable(series.y[k]);
        said.push(`${series.name} ${values[i].textContent}`);
      });
      if (speak) spoken.textContent = said.join(", ");
    }
    function leave() {
      overlay.style.display = "none";
      [at, ...values].forEach((element, i) => { element.textContent = usual[i]; });
      spoken.textContent = "";
    }
    function follow(event) {
      const box = drawing.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      show(nearest(stops, valueAt(share)), false);
    }
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    // On touch screens the values stay when the finger is lifted.
    plot.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch" && document.activeElement !== plot) leave();
    });
    plot.addEventListener("blur", leave);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(current, true); });
    plot.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(stops.length / 10));
      const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, PageUp: current - far, PageDown: current + far, Home: 0, End: stops.length - 1 };
      if (event.key === "Escape") { leave(); return; }
      if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      show(moves[event.key], true);
    });
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    const name = figure.querySelector("figcaption .name").textContent;
    plot.setAttribute("aria-label", `${name}: press the left and right arrow keys to read values`);
  }

  // A table wider than the page gets a name and can be scrolled by keyboard.
  function scrollable() {
    for (const box of document.querySelectorAll(".scroll")) {
      const wide = box.scrollWidth > box.clientWidth;
      if (wide) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", box.querySelector("caption")?.textContent ?? "Table");
      } else ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name));
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll("figure.chart[data-read]").forEach(readChart);
    scrollable();
    addEventListener("resize", scrollable);
    document.addEventListener("toggle", scrollable, true);
  });
  return { data, colour, svg, readable, readChart };
})();
