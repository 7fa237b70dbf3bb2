// A chart of one metric: curves of several runs on a canvas, with zoom and the values under the pointer.

const kMargin = { left: 58, right: 24, top: 8, bottom: 30 };

const styles = () => getComputedStyle(document.documentElement);
export const seriesVariable = index => `var(--series-${index % 8})`;  // follows the light or dark mode
export const seriesColor = index => styles().getPropertyValue(`--series-${index % 8}`).trim();

export function shortNumber(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e12 || size < 1e-4)) return value.toExponential(3);
  for (const [scale, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= scale) return Number((value / (unit === "k" ? 1e3 : scale)).toPrecision(4)) + unit;
  return String(Number(value.toPrecision(5)));
}

export function shortDuration(seconds) {
  if (!Number.isFinite(seconds)) return "-";
  if (seconds < 60) return `${Number(seconds.toPrecision(3))}s`;
  const s = Math.round(seconds), two = n => String(n).padStart(2, "0");
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)}`;
  if (s < 86400) return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  return `${Math.floor(s / 86400)}d ${Math.floor(s / 3600) % 24}h`;
}

function ticks(low, high, most, log) {
  const out = [];
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const stride = Math.max(1, Math.ceil((last - first) / most));
    const factors = last - first <= 1 ? [1, 2, 3, 5] : last - first <= 3 ? [1, 3] : [1];
    for (let power = first; power <= last; power += stride)
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) out.push(value);
      }
    return out;
  }
  const least = (high - low) / most, power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= least * 0.999);
  for (let n = Math.ceil(low / step); n * step <= high && out.length < 50; ++n) out.push(n === 0 ? 0 : n * step);
  return out;
}

// The index of the value nearest to x.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

// Moving average with bias correction; a point that stands for n values counts n times.
function smoothed(values, counts, weight) {
  let average = 0, total = 0;
  return values.map((value, i) => {
    if (value === null) return null;
    const kept = weight ** counts[i];
    average = kept * average + (1 - kept) * value;
    total = kept * total + (1 - kept);
    return average / total;
  });
}

export class Chart {
  // `zoomed(range)` is called with the x values that were chosen, or null.
  constructor(tag, zoomed, removed) {
    this.tag = tag;
    this.zoomed = zoomed;
    this.runs = [];  // {name, color, series, marks}
    this.view = { x: "step", smooth: 0, log: false, range: null };
    this.cursor = null;
    this.element = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.append(tag);
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "×";
    close.setAttribute("aria-label", `Remove the chart of ${tag}`);
    close.addEventListener("click", removed);
    caption.append(close);
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.values = document.createElement("div");
    this.values.className = "values";
    this.values.hidden = true;
    this.values.setAttribute("aria-live", "polite");
    this.element.append(caption, this.canvas, this.values);
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
  }

  remove() {
    this.observer.disconnect();
    this.element.remove();
  }

  set(runs, view) {
    this.runs = runs.map(run => ({ ...run, curve: run.series ? this.curveOf(run.series, view) : null }));
    this.view = view;
    this.draw();
  }

  // Draws before the next frame.
  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  curveOf(series, view) {
    const epoch = Math.max(series.steps_per_epoch, 1);
    const x = view.x === "time" ? series.time : view.x === "epoch" ? series.step.map(s => s / epoch) : series.step;
    const y = view.smooth > 0 ? smoothed(series.mean, series.count, view.smooth) : series.mean;
    return { x, y, low: view.smooth > 0 ? y : series.min, high: view.smooth > 0 ? y : series.max };
  }

  ranges() {
    let [left, right] = this.view.range || [Infinity, -Infinity];
    let low = Infinity, high = -Infinity;
    for (const { curve } of this.runs) {
      if (!curve) continue;
      if (!this.view.range && curve.x.length > 0) {
        left = Math.min(left, curve.x[0]);
        right = Math.max(right, curve.x[curve.x.length - 1]);
      }
      for (let i = 0; i < curve.x.length; ++i) {
        if (curve.y[i] === null || (this.view.range && (curve.x[i] < left || curve.x[i] > right))) continue;
        for (const value of [curve.low[i], curve.high[i]])
          if (!this.view.log || value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
      }
    }
    if (!(left <= right)) [left, right] = [0, 1];
    if (left === right) [left, right] = [left - 0.5, right + 0.5];
    if (!(low <= high)) [low, high] = this.view.log ? [0.1, 1] : [0, 1];
    if (low === high) [low, high] = this.view.log ? [low / 2, high * 2] : [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
    if (!this.view.log) {
      const pad = (high - low) * 0.04;
      [low, high] = [low - pad, high + pad];
    }
    return { left, right, low, high };
  }

  paint() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (width === 0 || height === 0) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d"), css = styles();
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    const range = this.ranges(), log = this.view.log;
    const plot = { width: width - kMargin.left - kMargin.right, height: height - kMargin.top - kMargin.bottom };
    const up = log ? Math.log10 : value => value;
    const scale = {
      x: x => kMargin.left + (x - range.left) / (range.right - range.left) * plot.width,
      y: y => kMargin.top + (1 - (up(log ? Math.max(y, range.low) : y) - up(range.low)) / (up(range.high) - up(range.low))) * plot.height,
    };
    this.geometry = { ...range, plot };
    this.paintAxes(context, css, scale, range, plot);
    context.save();
    context.beginPath();
    context.rect(kMargin.left, kMargin.top, plot.width, plot.height);
    context.clip();
    for (const run of this.runs) this.paintCurve(context, run, scale);
    this.paintMarks(context, css, scale, plot);
    context.restore();
    const lasts = this.runs.map(run => run.series && run.series.last || 0);
    this.canvas.dataset.lastStep = String(Math.max(0, ...lasts));
    this.canvas.dataset.range = `${range.left} ${range.right}`;
    this.canvas.dataset.curves = String(this.runs.filter(run => run.curve && run.curve.x.length > 0).length);
    this.canvas.setAttribute("aria-label", this.describe());
    this.showValues();
  }

  describe() {
    const parts = this.runs.filter(run => run.curve && run.curve.x.length > 0).map(run => {
      const last = run.curve.y.length - 1;
      return `${run.name} ${shortNumber(run.curve.y[last])}`;
    });
    return `${this.tag} by ${this.view.x}; last values: ${parts.join(", ") || "none"}`;
  }

  paintAxes(context, css, scale, range, plot) {
    context.strokeStyle = css.getPropertyValue("--grid");
    context.fillStyle = css.getPropertyValue("--muted");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const line = (x0, y0, x1, y1) => {
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      context.stroke();
    };
    for (const tick of ticks(range.low, range.high, 7, this.view.log)) {
      const y = scale.y(tick);
      line(kMargin.left, y, kMargin.left + plot.width, y);
      context.fillText(shortNumber(tick), kMargin.left - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of ticks(range.left, range.right, Math.max(2, Math.floor(plot.width / 80)), false)) {
      const x = scale.x(tick);
      line(x, kMargin.top, x, kMargin.top + plot.height);
      context.fillText(this.view.x === "time" ? shortDuration(tick) : shortNumber(tick), x, kMargin.top + plot.height + 5);
    }
    context.strokeStyle = css.getPropertyValue("--border");
    context.strokeRect(kMargin.left, kMargin.top, plot.width, plot.height);
  }

  paintCurve(context, run, scale) {
    const curve = run.curve;
    if (!curve) return;
    const shown = i => curve.y[i] !== null && (!this.view.log || curve.y[i] > 0);
    context.fillStyle = context.strokeStyle = run.color;
    if (this.view.smooth === 0) {
      context.globalAlpha = 0.2;
      context.beginPath();
      let begun = false;
      for (let i = 0; i < curve.x.length; ++i)
        if (shown(i)) { context[begun ? "lineTo" : "moveTo"](scale.x(curve.x[i]), scale.y(curve.high[i])); begun = true; }
      for (let i = curve.x.length - 1; i >= 0; --i)
        if (shown(i)) context.lineTo(scale.x(curve.x[i]), scale.y(curve.low[i]));
      context.fill();
      context.globalAlpha = 1;
    }
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.beginPath();
    let down = false, count = 0, last = 0;
    for (let i = 0; i < curve.x.length; ++i) {
      if (!shown(i)) { down = false; continue; }
      context[down ? "lineTo" : "moveTo"](scale.x(curve.x[i]), scale.y(curve.y[i]));
      down = true;
      ++count;
      last = i;
    }
    context.stroke();
    if (count === 1) {
      context.beginPath();
      context.arc(scale.x(curve.x[last]), scale.y(curve.y[last]), 3, 0, 7);
      context.fill();
    }
  }

  // Alarms, restarts, the part that is being chosen, and the cursor.
  paintMarks(context, css, scale, plot) {
    const vertical = (x, color, dash) => {
      context.strokeStyle = css.getPropertyValue(color);
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(scale.x(x), kMargin.top);
      context.lineTo(scale.x(x), kMargin.top + plot.height);
      context.stroke();
      context.setLineDash([]);
    };
    for (const run of this.runs)
      for (const mark of run.marks || []) vertical(mark.x, mark.alarm ? "--alarm" : "--muted", mark.alarm ? [] : [2, 4]);
    if (this.dragFrom !== undefined && this.cursor !== null) {
      context.fillStyle = css.getPropertyValue("--accent");
      context.globalAlpha = 0.2;
      const from = scale.x(this.dragFrom);
      context.fillRect(from, kMargin.top, scale.x(this.cursor) - from, plot.height);
      context.globalAlpha = 1;
    }
    if (this.cursor !== null) vertical(this.cursor, "--muted", [3, 3]);
  }

  showValues() {
    this.values.hidden = this.cursor === null;
    if (this.cursor === null) return;
    const lines = [];
    for (const run of this.runs) {
      if (!run.curve || run.curve.x.length === 0) continue;
      const i = nearest(run.curve.x, this.cursor), x = run.curve.x[i];
      lines.push(`${run.name}  ${this.view.x} ${this.view.x === "time" ? shortDuration(x) : shortNumber(x)}: ${shortNumber(run.curve.y[i])}`);
      for (const mark of run.marks || [])
        if (mark.alarm && Math.abs(mark.x - this.cursor) * this.geometry.plot.width < 6 * (this.geometry.right - this.geometry.left))
          lines.push(`alarm: ${mark.text}`);
    }
    this.values.textContent = lines.join("\n");
    const { left, right, plot } = this.geometry;
    const at = kMargin.left + (this.cursor - left) / (right - left) * plot.width, before = at > this.canvas.clientWidth / 2;
    this.values.style.left = before ? "auto" : `${at + 10}px`;
    this.values.style.right = before ? `${this.canvas.clientWidth - at + 10}px` : "auto";
  }

  xAt(event) {
    const bounds = this.canvas.getBoundingClientRect(), { left, right, plot } = this.geometry;
    const part = (event.clientX - bounds.left - kMargin.left) / plot.width;
    return left + Math.min(1, Math.max(0, part)) * (right - left);
  }

  listen() {
    this.canvas.addEventListener("pointermove", event => {
      if (!this.geometry) return;
      this.cursor = this.xAt(event);
      this.draw();
    });
    this.canvas.addEventListener("pointerleave", () => {
      if (this.dragFrom === undefined) this.cursor = null;
      this.draw();
    });
    this.canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0 || !this.geometry) return;
      this.dragFrom = this.xAt(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    const end = event => {
      if (this.dragFrom === undefined) return;
      const from = this.dragFrom, to = this.xAt(event), { left, right, plot } = this.geometry;
      this.dragFrom = undefined;
      if (event.type === "pointerup" && Math.abs(to - from) / (right - left) * plot.width > 5)
        this.zoomed([Math.min(from, to), Math.max(from, to)]);
      this.draw();
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener("dblclick", () => this.zoomed(null));
    this.canvas.addEventListener("blur", () => { this.cursor = null; this.draw(); });
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    if (!this.geometry) return;
    const { left, right } = this.geometry, extent = right - left, center = this.cursor ?? (left + right) / 2;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const moved = center + (event.key === "ArrowLeft" ? -1 : 1) * extent / 50;
      this.cursor = Math.min(right, Math.max(left, moved));
      this.draw();
    } else if (event.key === "+" || event.key === "=") {
      this.zoomed([Math.max(left, center - extent / 4), Math.min(right, center + extent / 4)]);
    } else if (event.key === "-") {
      this.zoomed([center - extent, center + extent]);
    } else {
      return;
    }
    event.preventDefault();
  }
}
