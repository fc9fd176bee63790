"use strict";
// Timelines to look into: buttons, the keys + - 0 and the wheel with Ctrl stretch time, and the region around the drawing
// scrolls along it. A drawing says in data-time where it shows time: the pixels of its begin and end, the upper and lower
// edge, and its length in seconds. The names of lanes stay at the left edge where there is room for them.
(() => {
  const MOST = 128;
  const LETTER = 6.4; // pixels of a small letter
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

  function make(parent, name, properties = {}, text = "") {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    if (text !== "") element.textContent = text;
    parent.append(element);
    return element;
  }

  function draw(parent, name, properties, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
    if (text !== "") element.textContent = text;
    parent.append(element);
    return element;
  }

  // A round number of seconds without needless digits.
  function duration(seconds) {
    if (seconds === 0) return "0";
    const [size, unit] = UNITS.find(([size]) => seconds >= size * 0.9995) ?? UNITS[UNITS.length - 1];
    return `${Number((seconds / size).toPrecision(6))} ${unit}`;
  }

  class Timeline {
    constructor(drawing) {
      this.drawing = drawing;
      this.region = drawing.parentElement;
      [this.left, this.right, this.top, this.bottom, this.length] = drawing.dataset.time.split(" ").map(Number);
      this.size = ["width", "height"].map((side) => Number(drawing.getAttribute(side)));
      this.factor = 1;
      this.sort();
      this.controls();
      this.stretch(1, 0);
    }

    // Tells the marks of tasks and of the step's ends from those that stay where they are. Lines and labels at ticks are
    // drawn anew for each factor.
    sort() {
      this.bars = [];
      this.ends = [];
      const [labels, heading] = [[], []];
      for (const mark of [...this.drawing.children]) {
        const at = (name) => Number(mark.getAttribute(name));
        const inside = at("y") >= this.top - 0.5;
        if (mark.tagName === "rect" && inside) {
          const whole = mark.textContent.split(":")[0];
          const names = [whole, whole.replace(/^layer \d+, /, "")];
          this.bars.push({ mark, names, from: at("x") - this.left, width: at("width"), y: at("y") });
        } else if (mark.tagName === "path") {
          if (mark.classList.contains("grid")) mark.remove();
          else this.ends.push({ mark, from: Number(mark.getAttribute("d").match(/^M([0-9.]+)/)[1]) - this.left });
        } else if (mark.tagName === "text" && inside && at("x") >= this.left - 0.5) {
          mark.remove();
        } else if (mark.tagName !== "defs") {
          (inside ? labels : heading).push(mark);
        }
      }
      this.ticks = draw(this.drawing, "g", {});
      this.drawing.prepend(this.ticks);
      this.names = draw(this.drawing, "g", {});
      this.heading = draw(this.drawing, "g", {});
      this.heading.append(...heading);
      this.labels = draw(this.drawing, "g", {});
      const cover = { class: "paper", x: 0, y: this.top, width: this.left - 1, height: this.size[1] - this.top };
      draw(this.labels, "rect", cover);
      this.labels.append(...labels);
      this.region.addEventListener("scroll", () => this.follow());
    }

    controls() {
      const controls = make(document.body, "div", { class: "controls", role: "group", "aria-label": "stretch time" });
      this.region.before(controls);
      const button = (text, label, act) => {
        const button = make(controls, "button", { type: "button", "aria-label": label }, text);
        button.addEventListener("click", act);
        return button;
      };
      const middle = () => this.region.clientWidth / 2;
      this.less = button("−", "half as long", () => this.stretch(this.factor / 2, middle()));
      this.more = button("+", "twice as long", () => this.stretch(this.factor * 2, middle()));
      this.whole = button("whole", "the whole of it", () => this.stretch(1, 0));
      this.told = make(controls, "span", { role: "status", class: "soft" });
      this.region.addEventListener("keydown", (event) => {
        const press = { "+": this.more, "=": this.more, "-": this.less, 0: this.whole }[event.key];
        if (!press || event.ctrlKey || event.metaKey || event.altKey) return;
        press.click();
        event.preventDefault();
      });
      this.region.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        this.stretch(this.factor * 2 ** (-event.deltaY / 200), event.clientX - this.region.getBoundingClientRect().left);
      }, { passive: false });
    }

    // Stretches time; what lies `at` pixels from the region's left edge stays there.
    stretch(factor, at) {
      const before = this.factor;
      this.factor = Math.min(Math.max(factor, 1), MOST);
      const scale = this.factor;
      const width = this.size[0] + (scale - 1) * (this.right - this.left);
      this.drawing.setAttribute("width", width);
      this.drawing.setAttribute("viewBox", `0 0 ${width} ${this.size[1]}`);
      for (const { mark, from, width } of this.bars) {
        mark.setAttribute("x", this.left + from * scale);
        mark.setAttribute("width", width * scale);
      }
      for (const { mark, from } of this.ends) {
        mark.setAttribute("d", `M${this.left + from * scale} ${this.top}L${this.left + from * scale} ${this.bottom}`);
      }
      this.label();
      this.less.disabled = this.whole.disabled = scale === 1;
      this.more.disabled = scale === MOST;
      this.told.textContent = scale === 1 ? "" : `${Number(scale.toPrecision(3))} times as long`;
      const held = this.region.scrollLeft + at - this.left;
      this.region.scrollLeft = this.left + held * scale / before - at;
      this.follow();
    }

    // Ticks for the factor, and the names of tasks that have room for them.
    label() {
      const span = (this.right - this.left) * this.factor;
      const raw = this.length / (9 * this.factor);
      const power = 10 ** Math.floor(Math.log10(raw));
      const step = power * [1, 2, 5, 10].find((round) => round * power >= raw * 0.999);
      this.ticks.replaceChildren();
      for (let tick = 0; tick * step <= this.length * (1 + 1e-9); tick++) {
        const x = this.left + tick * step / this.length * span;
        draw(this.ticks, "path", { class: "grid", d: `M${x} ${this.top}L${x} ${this.bottom}` });
        const place = { class: "soft", x, y: this.bottom + 19, "text-anchor": "middle" };
        draw(this.ticks, "text", place, duration(tick * step));
      }
      this.names.replaceChildren();
      for (const { names, from, width, y } of this.bars) {
        const name = names.find((name) => width * this.factor >= (name.length + 2) * LETTER);
        if (!name) continue;
        const x = this.left + (from + width / 2) * this.factor;
        draw(this.names, "text", { class: "inside", x, y: y + 11.5, "text-anchor": "middle" }, name);
      }
    }

    // What is no time stays in sight: the names of lanes at the left edge unless they fill the region, and of title and
    // legend as much as fits.
    follow() {
      const { scrollLeft, clientWidth } = this.region;
      const named = this.left <= clientWidth * 0.45 ? scrollLeft : 0;
      const headed = Math.max(0, scrollLeft - Math.max(0, this.size[0] - clientWidth));
      this.labels.setAttribute("transform", `translate(${named} 0)`);
      this.heading.setAttribute("transform", `translate(${headed} 0)`);
    }
  }

  for (const drawing of document.querySelectorAll("svg[data-time]")) new Timeline(drawing);
})();
