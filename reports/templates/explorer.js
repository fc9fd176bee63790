"use strict";
// A table to explore: readers choose the column of each axis, the column of the colour, and the rows shown.
// The columns are JSON in the page, packed by reports/src/page/explorer.rs. Names are set as text, never as markup.
(() => {
  const MARGIN = { left: 76, right: 14, top: 12, bottom: 44 };
  const HEIGHT = 420;
  const REACH = 14; // distance in pixels within which the pointer selects a point
  const MOST_CHOICES = 200;
  // From dark blue over green to yellow. Lightness grows, so that it can be read without seeing hues.
  const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

  function make(parent, name, properties = {}, text = "") {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    if (text !== "") element.textContent = text;
    parent.append(element);
    return element;
  }

  function bytesOf(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
    return bytes;
  }

  // A column: the text of each row, and its number for an axis. Bytes are unpacked on first use.
  class Column {
    constructor(packed, rows) {
      Object.assign(this, { name: packed.name, packed, rows, kind: packed.kind, names: packed.names });
      this.isWords = packed.kind === "words";
    }
    get indices() {
      const bytes = bytesOf(this.packed.data);
      const value = this.packed.width === 0 ? new Uint8Array(this.rows)
        : this.packed.width === 1 ? bytes : new Uint16Array(bytes.buffer);
      Object.defineProperty(this, "indices", { value });
      return value;
    }
    get numbers() {
      const value = new Float64Array(this.rows);
      if (this.kind === "count") {
        for (let row = 0; row < this.rows; row++) value[row] = this.packed.first + row;
      } else if (this.kind === "numbers") {
        const bytes = bytesOf(this.packed.data);
        const word = new DataView(new ArrayBuffer(4));
        for (let row = 0, at = 0; row < this.rows; row++, at += 3) {
          word.setUint32(0, (bytes[at + 2] << 24) | (bytes[at + 1] << 16) | (bytes[at] << 8));
          value[row] = word.getFloat32(0);
        }
      } else {
        const levels = this.isWords ? this.names.map((_, index) => index) : this.names.map((it) => it ?? NaN);
        for (let row = 0; row < this.rows; row++) value[row] = levels[this.indices[row]];
      }
      Object.defineProperty(this, "numbers", { value });
      return value;
    }
    text(row) {
      if (this.isWords) return this.names[this.indices[row]];
      const value = this.numbers[row];
      return Number.isNaN(value) ? "" : written(value);
    }
    choices() {
      return this.names && this.names.length > 1 && this.names.length <= MOST_CHOICES ? this.names : [];
    }
  }

  function written(value) {
    const size = Math.abs(value);
    if (value === 0) return "0";
    return size >= 1e-3 && size < 1e7 ? String(Number(value.toPrecision(5))) : value.toExponential(3);
  }

  // Round numbers between two ends; on a long logarithmic axis, the same digits of each decade.
  function ticks([from, to], logarithmic, most) {
    if (logarithmic && to / from >= 10) {
      for (const digits of [[1, 2, 5], [1, 3], [1]]) {
        const all = [];
        for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); e++)
          for (const digit of digits) all.push(digit * 10 ** e);
        const inside = all.filter((it) => it >= from && it <= to);
        if (inside.length <= most || digits.length === 1) return inside;
      }
    }
    const raw = (to - from) / most;
    const magnitude = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((it) => it * magnitude).find((it) => it >= raw * 0.999);
    const all = [];
    for (let at = Math.ceil(from / step); at <= Math.floor(to / step + 1e-9); at++) all.push(at * step);
    return all;
  }

  class Explorer {
    constructor(place) {
      const data = JSON.parse(place.querySelector("script").textContent);
      this.rows = data.rows;
      this.columns = new Map();
      for (const packed of data.columns) {
        const twin = packed.kind === "twin" && this.columns.get(packed.of);
        if (packed.kind === "twin" && !twin) continue;
        this.columns.set(packed.name, twin ? Object.assign(new Column(twin.packed, data.rows), { name: packed.name })
          : new Column(packed, data.rows));
      }
      this.filters = new Map();
      this.range = { column: "", least: -Infinity, most: Infinity };
      this.build(place, data);
      this.choose();
    }

    build(place, data) {
      const names = [...this.columns.keys()];
      const axes = make(place, "div", { class: "controls" });
      this.x = this.select(axes, "Across", names, data.x ?? names[0]);
      this.y = this.select(axes, "Up", names, data.y ?? names[names.length - 1]);
      this.colour = this.select(axes, "Colour", ["", ...names], data.colour ?? "", "one");
      this.logs = [this.x, this.y].map((select, side) => this.checkbox(axes, `log ${"xy"[side]}`, this.isWide(select.value)));
      const filters = make(place, "div", { class: "controls", role: "group", "aria-label": "Rows shown" });
      for (const name of data.filters) {
        const choices = this.columns.get(name).choices();
        if (choices.length === 0) continue;
        const select = this.select(filters, name, ["", ...choices.keys()].map(String), "", "all", (index) =>
          choices[index] === null || choices[index] === "" ? "(nothing)" : String(choices[index]));
        this.filters.set(name, select);
      }
      const numbers = names.filter((name) => !this.columns.get(name).isWords);
      const range = this.select(filters, "between", ["", ...numbers], "", "any numbers");
      const ends = ["from", "to"].map((word) => make(make(filters, "label", {}, `${word} `), "input",
        { type: "number", step: "any", size: "8", inputmode: "decimal" }));
      for (const input of ends) input.addEventListener("input", () => this.choose());
      this.rangeInputs = [range, ...ends];
      this.status = make(place, "p", { class: "soft", role: "status" });
      this.legend = make(place, "p", { class: "legend" });
      this.frame = make(place, "div", { class: "canvas" });
      this.canvas = make(this.frame, "canvas", {
        tabindex: "0", role: "img", "aria-describedby": "",
        "aria-label": "Every row as a point. Left and right arrow go from point to point, Enter shows its row.",
      });
      this.tip = make(this.frame, "div", { class: "tip", role: "status", hidden: "" });
      this.detail = make(place, "div", { class: "scroll detail" });
      this.listen();
    }

    select(parent, label, values, chosen, empty = "", textOf = (value) => value) {
      const select = make(make(parent, "label", {}, `${label} `), "select");
      for (const value of values) make(select, "option", { value }, value === "" ? empty : textOf(value));
      select.value = chosen;
      select.addEventListener("change", () => this.choose());
      return select;
    }

    // Whether the values of a column span such a range that its axis should be logarithmic.
    isWide(name) {
      const column = this.columns.get(name);
      const [least, most] = column.numbers.reduce(([a, b], it) => [it < a ? it : a, it > b ? it : b], [Infinity, 0]);
      return !column.isWords && least > 0 && most > 30 * least;
    }

    checkbox(parent, label, checked) {
      const outer = make(parent, "label");
      const box = make(outer, "input", { type: "checkbox" });
      box.checked = checked;
      outer.append(` ${label}`);
      box.addEventListener("change", () => this.choose());
      return box;
    }

    listen() {
      this.canvas.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
      this.canvas.addEventListener("pointerleave", () => this.point(-1));
      this.canvas.addEventListener("click", (event) => this.show(this.nearest(event)));
      this.canvas.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (step) this.walk(step);
        else if (event.key === "Enter" && this.current >= 0) this.show(this.current);
        else if (event.key === "Escape") this.point(-1);
        else return;
        event.preventDefault();
      });
      new ResizeObserver(() => this.frame.clientWidth !== this.width && this.draw()).observe(this.frame);
      for (const query of ["(prefers-color-scheme: dark)", "print"])
        matchMedia(query).addEventListener("change", () => this.draw());
    }

    // Chooses the rows to show and the ends of the axes.
    choose() {
      const tests = [];
      for (const [name, select] of this.filters) {
        if (select.value === "") continue;
        const [wanted, { indices }] = [Number(select.value), this.columns.get(name)];
        tests.push((row) => indices[row] === wanted);
      }
      const [column, from, to] = this.rangeInputs;
      if (column.value !== "") {
        const { numbers } = this.columns.get(column.value);
        const lowest = from.value === "" ? -Infinity : Number(from.value);
        const highest = to.value === "" ? Infinity : Number(to.value);
        tests.push((row) => numbers[row] >= lowest && numbers[row] <= highest);
      }
      const axes = [this.x, this.y].map((select) => this.columns.get(select.value));
      const logs = this.logs.map((box, side) => box.checked && !axes[side].isWords);
      const [xs, ys] = axes.map((axis) => axis.numbers);
      const least = logs.map((logarithmic) => (logarithmic ? Number.MIN_VALUE : -Infinity));
      const all = new Uint32Array(this.rows);
      let count = 0;
      for (let row = 0; row < this.rows; row++) {
        const [x, y] = [xs[row], ys[row]];
        // False for a missing value, too.
        if (x >= least[0] && y >= least[1] && x < Infinity && y < Infinity && tests.every((test) => test(row))) all[count++] = row;
      }
      const shown = all.subarray(0, count);
      Object.assign(this, { axes, logged: logs, shown, current: -1 });
      this.ends = axes.map((axis, side) => ends(axis.numbers, this.shown, logs[side], axis.isWords));
      this.status.textContent = `${count} of ${this.rows} rows shown`;
      this.detail.replaceChildren();
      this.draw();
    }

    draw() {
      this.width = this.frame.clientWidth;
      const width = Math.max(this.width, 240);
      const ratio = window.devicePixelRatio || 1;
      Object.assign(this.canvas, { width: width * ratio, height: HEIGHT * ratio });
      this.canvas.style.height = `${HEIGHT}px`;
      const pen = this.canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const style = getComputedStyle(this.canvas);
      const colour = (name) => style.getPropertyValue(name).trim();
      const box = [[MARGIN.left, width - MARGIN.right], [HEIGHT - MARGIN.bottom, MARGIN.top]];
      this.places = this.axes.map((axis, side) => placer(this.ends[side], box[side], this.logged[side]));
      pen.font = `13px ${style.fontFamily}`;
      this.drawAxes(pen, box, colour);
      this.drawPoints(pen, colour);
      this.point(-1);
      this.canvas.dataset.drawn = String(Number(this.canvas.dataset.drawn ?? 0) + 1);
    }

    drawAxes(pen, [[left, right], [bottom, top]], colour) {
      pen.lineWidth = 1;
      this.axes.forEach((axis, side) => {
        const most = side === 0 ? Math.max(2, Math.floor((right - left) / 90)) : 8;
        const all = axis.isWords
          ? axis.names.map((_, index) => index).filter((index) => index % Math.ceil(axis.names.length / (side ? 14 : most)) === 0)
          : ticks(this.ends[side], this.logged[side], most);
        for (const tick of all) {
          const at = this.places[side](tick);
          pen.strokeStyle = colour("--rule");
          pen.fillStyle = colour("--soft");
          pen.beginPath();
          if (side === 0) { pen.moveTo(at, top); pen.lineTo(at, bottom); } else { pen.moveTo(left, at); pen.lineTo(right, at); }
          pen.stroke();
          const text = cut(axis.isWords ? axis.names[tick] : written(tick), side === 0 ? 12 : 10);
          pen.textAlign = side === 0 ? "center" : "right";
          if (side === 0) pen.fillText(text, at, bottom + 17); else pen.fillText(text, left - 6, at + 4);
        }
      });
      pen.fillStyle = colour("--ink");
      pen.textAlign = "center";
      pen.fillText(this.axes[0].name, (left + right) / 2, HEIGHT - 8);
      pen.save();
      pen.translate(13, (top + bottom) / 2);
      pen.rotate(-Math.PI / 2);
      pen.fillText(this.axes[1].name, 0, 0);
      pen.restore();
    }

    // Draws rows in groups of one colour, because changing the colour is slow.
    drawPoints(pen, colour) {
      const palette = [0, 1, 2, 3, 4, 5].map((index) => colour(`--c${index}`));
      const column = this.columns.get(this.colour.value);
      const groups = [];
      const span = column && !column.isWords && (!column.names || column.names.length > 6)
        ? extremes(column.numbers, this.shown) : null;
      for (const row of this.shown) {
        const group = !column ? 0 : span ? Math.round(24 * share(column.numbers[row], span)) : column.indices?.[row] ?? 0;
        (groups[group] ??= []).push(row);
      }
      const colourOf = (group) => (span ? ramp(group / 24) : palette[group % palette.length]);
      const size = [[20000, 2], [2000, 3], [200, 6], [0, 9]].find(([least]) => this.shown.length >= least)[1];
      const [xs, ys] = this.axes.map((axis) => axis.numbers);
      const [across, up] = this.places;
      pen.globalAlpha = this.shown.length > 2000 ? 0.7 : 0.9;
      groups.forEach((rows, group) => {
        pen.fillStyle = colourOf(group);
        for (const row of rows) pen.fillRect(across(xs[row]) - size / 2, up(ys[row]) - size / 2, size, size);
      });
      pen.globalAlpha = 1;
      this.legend.replaceChildren();
      if (!column || this.shown.length === 0) return;
      const entry = (hue, text) => {
        const outer = make(this.legend, "span");
        make(outer, "i").style.background = hue;
        outer.append(text);
      };
      if (span) for (const part of [0, 0.5, 1]) entry(ramp(part), written(span[0] + part * (span[1] - span[0])));
      else Object.keys(groups).slice(0, 24).forEach((group) =>
        entry(colourOf(group), cut(String(column.names?.[group] ?? column.packed.first ?? "(nothing)") || "(nothing)", 40)));
    }

    nearest(event) {
      const corner = this.canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - corner.left, event.clientY - corner.top];
      const [xs, ys] = this.axes.map((axis) => axis.numbers);
      let [best, found] = [REACH * REACH, -1];
      for (const row of this.shown) {
        const [dx, dy] = [this.places[0](xs[row]) - x, this.places[1](ys[row]) - y];
        const distance = dx * dx + dy * dy;
        if (distance < best) [best, found] = [distance, row];
      }
      return found;
    }

    // Moves along the horizontal axis, for readers without a pointer.
    walk(step) {
      if (this.shown.length === 0) return;
      const xs = this.axes[0].numbers;
      if (this.walked !== this.shown) {
        this.shown.sort((a, b) => xs[a] - xs[b] || a - b);
        this.walked = this.shown;
      }
      const at = this.current < 0 ? (step > 0 ? -1 : 0) : this.shown.indexOf(this.current);
      this.point(this.shown[(at + step + this.shown.length) % this.shown.length]);
    }

    point(row) {
      this.current = row;
      this.tip.hidden = row < 0;
      if (row < 0) return;
      const names = new Set([...this.filters.keys(), this.x.value, this.y.value, this.colour.value]);
      this.tip.replaceChildren();
      for (const name of names) {
        const text = this.columns.get(name)?.text(row) ?? "";
        if (text !== "") make(this.tip, "div", {}, `${name}: ${text}`);
      }
      const [x, y] = this.axes.map((axis, side) => this.places[side](axis.numbers[row]));
      const left = Math.min(x + 12, this.frame.clientWidth - this.tip.offsetWidth - 4);
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = `${y > HEIGHT / 2 ? y - this.tip.offsetHeight - 10 : y + 12}px`;
    }

    // Shows the whole row as a table.
    show(row) {
      this.detail.replaceChildren();
      if (row < 0) return;
      const table = make(make(this.detail, "table"), "tbody");
      for (const column of this.columns.values()) {
        const text = column.text(row);
        if (text === "") continue;
        const line = make(table, "tr");
        make(line, "th", { scope: "row" }, column.name);
        make(line, "td", {}, text);
      }
    }
  }

  function cut(text, most) {
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  }

  function extremes(numbers, rows) {
    let [least, most] = [Infinity, -Infinity];
    for (const row of rows) {
      const value = numbers[row];
      if (value < least) least = value;
      if (value > most) most = value;
    }
    return [least, most];
  }

  function ends(numbers, rows, logarithmic, isWords) {
    const [least, most] = extremes(numbers, rows);
    if (least > most) return logarithmic ? [0.1, 1] : [0, 1];
    if (logarithmic) return [least / 1.1, most * 1.1];
    const air = isWords ? 0.5 : 0.04 * (most - least) || Math.abs(least) / 10 || 1;
    return [least - air, most + air];
  }

  function share(value, [least, most]) {
    return Number.isNaN(value) || most <= least ? 0 : Math.min(1, Math.max(0, (value - least) / (most - least)));
  }

  function placer([from, to], [start, end], logarithmic) {
    if (!logarithmic) return (value) => start + ((value - from) / (to - from)) * (end - start);
    const scale = (end - start) / Math.log(to / from);
    return (value) => start + Math.log(value / from) * scale;
  }

  function ramp(part) {
    const at = Math.min(part * (RAMP.length - 1), RAMP.length - 1.0001);
    const [low, high] = [RAMP[Math.floor(at)], RAMP[Math.floor(at) + 1]];
    return `rgb(${low.map((it, index) => Math.round(it + (high[index] - it) * (at % 1))).join(",")})`;
  }

  for (const place of document.querySelectorAll(".explorer")) new Explorer(place);
})();
