"use strict";
// What a screen adds to a plot: values under the pointer, zoom, and a legend that switches policies.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const data = JSON.parse(document.getElementById("data").textContent);
  const values = document.getElementById("values");
  const boxOf = (key) => all("input[name=policy]").find((box) => box.value === key);

  function text(value) {
    if (value === null || value === undefined) return "–";
    return value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
  }

  // Axes: between points of the plot and values.
  class Scale {
    constructor(words, start, end) {
      const [kind, low, high] = words.split(" ");
      this.kind = kind;
      this.low = this.forward(Number(low));
      this.high = this.forward(Number(high));
      this.start = start;
      this.end = end;
    }
    forward(value) { return this.kind === "log" ? Math.log10(value) : value; }
    value(point) {
      const at = this.low + (this.high - this.low) * (point - this.start) / (this.end - this.start);
      return this.kind === "log" ? 10 ** at : at;
    }
    point(value) {
      return this.start + (this.end - this.start) * (this.forward(value) - this.low) / (this.high - this.low);
    }
  }

  function ticks(scale, low, high) {
    const found = [];
    if (scale.kind === "log" && high / low >= 8) {
      const marks = high / low < 100 ? [1, 2, 5] : [1];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
        for (const mark of marks) found.push(mark * 10 ** power);
      }
    } else {
      const rough = (high - low) / 5;
      const unit = 10 ** Math.floor(Math.log10(rough));
      const step = unit * [1, 2, 5, 10].find((mark) => mark * unit >= rough);
      for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(n * step);
    }
    return found.filter((value) => value >= low && value <= high);
  }

  function element(name, attributes, parent) {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    parent.append(made);
    return made;
  }

  class Plot {
    constructor(svg, group) {
      [this.left, this.top, this.width, this.height] = group.dataset.box.split(" ").map(Number);
      this.svg = svg;
      this.group = group;
      this.figure = svg.closest("figure");
      this.full = [this.left, this.left + this.width, this.top, this.top + this.height];
      this.window = [...this.full];
      this.x = new Scale(group.dataset.x, this.full[0], this.full[1]);
      this.y = new Scale(group.dataset.y, this.full[3], this.full[2]);
      this.curves = data[this.figure.dataset.curves];
    }
    has(point) {
      const [left, right, top, bottom] = this.full;
      return point.x >= left && point.x <= right && point.y >= top && point.y <= bottom;
    }
    // From a point on the screen to the place in the whole plot, which lies elsewhere when the plot is zoomed.
    unzoomed(point) {
      const [x0, x1, y0, y1] = this.window;
      return {
        x: x0 + (point.x - this.left) / this.width * (x1 - x0),
        y: y0 + (point.y - this.top) / this.height * (y1 - y0),
      };
    }
    zoomed(x, y) {
      const [x0, x1, y0, y1] = this.window;
      return [this.left + (x - x0) / (x1 - x0) * this.width, this.top + (y - y0) / (y1 - y0) * this.height];
    }
    zoom(first, second) {
      const [a, b] = [this.unzoomed(first), this.unzoomed(second)];
      const names = [this.x.kind === "names", this.y.kind === "names"];
      this.window = [
        ...(names[0] ? this.full.slice(0, 2) : [Math.min(a.x, b.x), Math.max(a.x, b.x)]),
        ...(names[1] ? this.full.slice(2) : [Math.min(a.y, b.y), Math.max(a.y, b.y)]),
      ];
      this.redraw();
    }
    reset() {
      this.window = [...this.full];
      this.redraw();
    }
    redraw() {
      const zoomed = this.window.some((side, place) => side !== this.full[place]);
      this.figure.classList.toggle("zoomed", zoomed);
      for (const path of this.parts("path")) {
        path.originalPath ??= path.getAttribute("d");
        const moved = path.originalPath.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x, y) =>
          this.zoomed(Number(x), Number(y)).map((side) => side.toFixed(2)).join(" "));
        path.setAttribute("d", moved);
      }
      for (const use of this.parts("use")) {
        use.originalPlace ??= [Number(use.getAttribute("x")), Number(use.getAttribute("y"))];
        const [x, y] = this.zoomed(...use.originalPlace);
        use.setAttribute("x", x);
        use.setAttribute("y", y);
        const slack = 1;
        const inside = x >= this.full[0] - slack && x <= this.full[1] + slack
          && y >= this.full[2] - slack && y <= this.full[3] + slack;
        use.style.display = inside || !zoomed ? "" : "none";
      }
      this.redrawTicks(zoomed);
      this.back(zoomed);
    }
    // What lies inside the axes: neither shapes that others use, nor ticks, nor the legend.
    parts(what) {
      return all(what, this.group).filter((part) =>
        part.closest(".series, [clip-path]") && !part.closest("defs, .legend, [id*='-matplotlib.axis']"));
    }
    redrawTicks(zoomed) {
      for (const old of all(".ticks", this.group)) old.remove();
      for (const [scale, across] of [[this.x, true], [this.y, false]]) {
        if (scale.kind === "names") continue;
        const name = across ? "-xtick_" : "-ytick_";
        for (const tick of all(`[id*='${name}']`, this.group)) tick.style.display = zoomed ? "none" : "";
        if (zoomed) this.drawTicks(scale, across);
      }
    }
    drawTicks(scale, across) {
      const ends = across ? this.window.slice(0, 2) : [this.window[3], this.window[2]];
      const group = element("g", { class: "ticks" }, this.group);
      for (const value of ticks(scale, scale.value(ends[0]), scale.value(ends[1]))) {
        const at = across ? this.zoomed(scale.point(value), 0)[0] : this.zoomed(0, scale.point(value))[1];
        const bottom = this.top + this.height;
        const line = across ? { x1: at, x2: at, y1: this.top, y2: bottom + 3 }
          : { x1: this.left - 3, x2: this.left + this.width, y1: at, y2: at };
        element("line", { ...line, stroke: "currentColor", "stroke-opacity": 0.2, "stroke-width": 0.6 }, group);
        const place = across ? { x: at, y: bottom + 14, "text-anchor": "middle" }
          : { x: this.left - 6, y: at + 3.5, "text-anchor": "end" };
        element("text", { ...place, style: "font: 10px var(--plot-font)" }, group).textContent = text(value);
      }
    }
    back(zoomed) {
      let button = this.figure.querySelector(".back");
      if (!zoomed) {
        if (button) button.remove();
        return;
      }
      if (button) return;
      button = document.createElement("button");
      button.type = "button";
      button.className = "back";
      button.textContent = "zoom out";
      button.addEventListener("click", () => this.reset());
      this.figure.append(button);
    }
    tell(point, event) {
      const place = this.unzoomed(point);
      const lines = [];
      const x = this.x.kind === "names" ? null : this.x.value(place.x);
      if (this.curves) {
        const shown = Object.entries(this.curves).filter(([key]) => boxOf(key).checked);
        const found = shown.map(([, curve]) => at(curve, x)).sort((a, b) => b.mean - a.mean);
        lines.push(`step ${text(Math.max(0, Math.round(x)))}`);
        for (const one of found) {
          const interval = one.low === null ? "" : ` [${text(one.low)}, ${text(one.high)}]`;
          lines.push(`${one.label}: ${text(one.mean)}${interval}`);
        }
      } else {
        const y = this.y.kind === "names" ? null : this.y.value(place.y);
        if (x !== null) lines.push(`across: ${rounded(x)}`);
        if (y !== null) lines.push(`up: ${rounded(y)}`);
        const series = event.target.closest(".series title, .series");
        const title = series && series.querySelector("title");
        if (title) lines.unshift(title.textContent);
      }
      showValues(lines, event);
      this.cross(point);
    }
    cross(point) {
      this.line ??= element("line", { class: "at", y1: this.top, y2: this.top + this.height }, this.svg);
      this.line.setAttribute("x1", point.x);
      this.line.setAttribute("x2", point.x);
      this.line.style.display = "";
    }
    forget() {
      if (this.line) this.line.style.display = "none";
    }
  }

  function rounded(value) { return text(Number(value.toPrecision(3))); }

  // The values of a curve at a step, on the straight line between its checkpoints.
  function at(curve, step) {
    curve.steps ??= curve.x.reduce((steps, more) => [...steps, steps.at(-1) + more], [0]);
    const steps = curve.steps;
    const inside = Math.min(Math.max(step, 0), steps[steps.length - 1]);
    let place = steps.findIndex((one) => one >= inside);
    if (place < 1) place = 1;
    const share = (inside - steps[place - 1]) / (steps[place] - steps[place - 1]);
    const between = (row) => {
      const [one, two] = [place > 1 ? row[place - 2] : 0, row[place - 1]];
      return two === null ? null : Number((one + share * (two - one)).toPrecision(4));
    };
    return { label: curve.label, mean: between(curve.mean), low: between(curve.low), high: between(curve.high) };
  }

  function showValues(lines, event) {
    values.replaceChildren(...lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    values.hidden = !lines.length;
    const box = values.getBoundingClientRect();
    const right = event.clientX + 16 + box.width > window.innerWidth;
    values.style.left = `${Math.max(4, right ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
    values.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - box.height - 4))}px`;
  }

  function lively(svg) {
    const plots = all("[data-box]", svg).map((group) => new Plot(svg, group));
    const where = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY);
      return point.matrixTransform(svg.getScreenCTM().inverse());
    };
    const under = (point) => plots.find((plot) => plot.has(point));
    let start = null;
    let box = null;
    svg.addEventListener("pointermove", (event) => {
      const point = where(event);
      if (start) {
        box ??= element("rect", { class: "pick" }, svg);
        box.setAttribute("x", Math.min(point.x, start.point.x));
        box.setAttribute("y", Math.min(point.y, start.point.y));
        box.setAttribute("width", Math.abs(point.x - start.point.x));
        box.setAttribute("height", Math.abs(point.y - start.point.y));
      }
      const plot = under(point);
      for (const other of plots) if (other !== plot) other.forget();
      if (plot) plot.tell(point, event); else values.hidden = true;
    });
    svg.addEventListener("pointerdown", (event) => {
      const point = where(event);
      const plot = under(point);
      if (plot && event.button === 0 && event.pointerType === "mouse") {
        start = { plot, point };
        event.preventDefault();
      }
    });
    window.addEventListener("pointerup", (event) => {
      if (!start) return;
      const { plot, point: first } = start;
      const last = where(event);
      const second = {
        x: Math.min(Math.max(last.x, plot.full[0]), plot.full[1]),
        y: Math.min(Math.max(last.y, plot.full[2]), plot.full[3]),
      };
      start = null;
      if (box) box.remove();
      box = null;
      if (Math.abs(second.x - first.x) > 6 && Math.abs(second.y - first.y) > 6) plot.zoom(first, second);
    });
    svg.addEventListener("pointerleave", () => {
      values.hidden = true;
      for (const plot of plots) plot.forget();
    });
    svg.addEventListener("dblclick", (event) => {
      const plot = under(where(event));
      if (plot) plot.reset();
    });
    svg.addEventListener("click", (event) => {
      const entry = event.target.closest(".legend .series");
      if (entry) boxOf(entry.dataset.policy).click();
    });
  }

  all("svg.plot").forEach(lively);
})();
