// Events of ranks as lanes on one time axis, on a canvas: zoom, pan, and the event under the pointer.
import { shortDuration } from "/chart.js";

const kRowHeight = 16, kRankGap = 8, kAxisHeight = 22, kLeft = 76, kLeast = 1e-6;
const kColors = { step: "--grid", data: "--series-1", dispatch: "--series-7", compute: "--series-0", collective: "--series-3",
  checkpoint: "--series-4", evaluation: "--series-5", other: "--series-6" };

export const categoryVariable = category => `var(${kColors[category]})`;  // follows the light or dark mode

// "1.25 s", "340 ms", "12.5 us".
export function timeText(seconds) {
  const size = Math.abs(seconds), number = value => Number(value.toPrecision(4));
  if (size === 0) return "0 s";
  if (size >= 60) return shortDuration(seconds);
  return size >= 1 ? `${number(seconds)} s` : size >= 1e-3 ? `${number(seconds * 1e3)} ms` : `${number(seconds * 1e6)} us`;
}

// Ticks of an axis: round times, at most `most`.
function timeTicks(from, to, most) {
  const least = (to - from) / most, power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= least * 0.999);
  const out = [];
  for (let n = Math.ceil(from / step); n * step <= to && out.length < 50; ++n) out.push(n * step);
  return out;
}

export class Timeline {
  // `load(from, to, width)` returns the slices of a part of the time axis.
  constructor(overview, load) {
    this.overview = overview;
    this.load = load;
    this.from = 0;
    this.to = Math.max(overview.end, kLeast);
    this.data = null;
    this.chosen = null;  // {row, index} of the event whose values are shown
    this.canvas = document.createElement("canvas");
    this.canvas.className = "timeline";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.values = document.createElement("div");
    this.values.className = "values";
    this.values.hidden = true;
    this.values.setAttribute("aria-live", "polite");
    this.element = document.createElement("figure");
    this.element.append(this.canvas, this.values);
    this.setRanks(overview.ranks);
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
    this.mode = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.draw();
    this.mode.addEventListener("change", this.repaint);
  }

  remove() {
    this.observer.disconnect();
    this.mode.removeEventListener("change", this.repaint);
  }

  // Rows of these ranks: one for each lane and depth.
  setRanks(ranks) {
    this.rows = new Map();
    let y = kAxisHeight;
    this.rankRows = ranks.map(rank => {
      const top = y;
      for (const { lane, depths } of rank.lanes)
        for (let depth = 0; depth < depths; ++depth, y += kRowHeight) this.rows.set(`${rank.rank} ${lane} ${depth}`, y);
      if (rank.lanes.length === 0) y += kRowHeight;
      y += kRankGap;
      return { rank: rank.rank, top, bottom: y - kRankGap };
    });
    this.data = null;
    this.chosen = null;
    this.canvas.style.height = `${Math.max(y, kAxisHeight + kRowHeight)}px`;
    this.fetch();
  }

  setRange(from, to) {
    const extent = Math.max(to - from, kLeast), end = Math.max(this.overview.end, kLeast);
    if (extent >= end) [from, to] = [0, end];
    else if (from < 0) [from, to] = [0, extent];
    else if (from + extent > end) [from, to] = [end - extent, end];
    else to = from + extent;
    [this.from, this.to] = [from, to];
    this.draw();
    this.fetch();
  }

  zoomAt(x, factor) {
    this.setRange(x - (x - this.from) * factor, x + (this.to - x) * factor);
  }

  // One request at a time; a change meanwhile causes another one.
  async fetch() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    const margin = (this.to - this.from) / 2;
    try {
      this.data = await this.load(Math.max(0, this.from - margin), this.to + margin, 2 * Math.max(300, this.canvas.clientWidth));
      this.problem = null;
    } catch (error) {
      this.problem = error.message;
    }
    this.busy = false;
    this.draw();
    if (this.again) {
      this.again = false;
      await this.fetch();
    }
  }

  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  get width() { return Math.max(1, this.canvas.clientWidth - kLeft); }
  x(time) { return kLeft + (time - this.from) / (this.to - this.from) * this.width; }
  timeAt(x) { return this.from + (x - kLeft) / this.width * (this.to - this.from); }

  paint() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (width === 0 || height === 0) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paintAxis(context, css, width, height);
    context.save();
    context.beginPath();
    context.rect(kLeft, kAxisHeight, width - kLeft, height);
    context.clip();
    const colors = this.overview.categories.map(category => css.getPropertyValue(kColors[category]));
    for (const row of this.data?.rows ?? []) this.paintRow(context, css, row, colors);
    this.paintChosen(context, css);
    context.restore();
    this.canvas.dataset.range = `${this.from} ${this.to}`;
    this.canvas.dataset.slices = String((this.data?.rows ?? []).reduce((n, row) => n + row.slices.length / 5, 0));
    this.canvas.setAttribute("aria-label", `Timeline of ${this.rankRows.length} ranks from ${timeText(this.from)} to ${
      timeText(this.to)}; the tables below name the slowest rank of each step`);
    this.showValues();
  }

  paintAxis(context, css, width, height) {
    context.strokeStyle = css.getPropertyValue("--grid");
    context.fillStyle = css.getPropertyValue("--muted");
    context.lineWidth = 1;
    context.textAlign = "center";
    for (const tick of timeTicks(this.from, this.to, Math.max(2, Math.floor(this.width / 90)))) {
      const x = this.x(tick);
      context.beginPath();
      context.moveTo(x, kAxisHeight - 4);
      context.lineTo(x, height);
      context.stroke();
      context.fillText(timeText(tick), Math.min(Math.max(x, kLeft + 20), width - 24), kAxisHeight / 2);
    }
    context.textAlign = "left";
    context.fillStyle = css.getPropertyValue("--text");
    for (const { rank, top, bottom } of this.rankRows) context.fillText(`rank ${rank}`, 8, (top + bottom) / 2);
  }

  paintRow(context, css, row, colors) {
    const y = this.rows.get(`${row.rank} ${row.lane} ${row.depth}`);
    if (y === undefined) return;
    for (let i = 0; i < row.slices.length; i += 5) {
      const [begin, duration, name, category] = row.slices.slice(i, i + 4);
      if (begin + duration < this.from || begin > this.to) continue;
      const left = this.x(begin), width = Math.max(1, this.x(begin + duration) - left - 0.5);
      context.fillStyle = colors[category];
      context.fillRect(left, y, width, kRowHeight - 2);
      const visible = Math.min(left + width, this.canvas.clientWidth) - Math.max(left, kLeft);
      if (visible < 40) continue;
      context.save();
      context.beginPath();
      context.rect(Math.max(left, kLeft), y, visible - 3, kRowHeight);
      context.clip();
      context.fillStyle = css.getPropertyValue(this.overview.categories[category] === "step" ? "--text" : "--background");
      context.fillText(this.data.names[name], Math.max(left, kLeft) + 3, y + kRowHeight / 2 - 1);
      context.restore();
    }
  }

  paintChosen(context, css) {
    if (!this.chosen) return;
    const { row, index } = this.chosen, y = this.rows.get(`${row.rank} ${row.lane} ${row.depth}`), left = this.x(row.slices[index]);
    context.strokeStyle = css.getPropertyValue("--text");
    context.lineWidth = 2;
    context.strokeRect(left, y, Math.max(2, this.x(row.slices[index] + row.slices[index + 1]) - left - 0.5), kRowHeight - 2);
  }

  showValues() {
    this.values.hidden = !this.chosen && !this.problem;
    if (this.problem) this.values.textContent = this.problem;
    if (!this.chosen) return;
    const { row, index } = this.chosen, [begin, duration, name, category, count] = row.slices.slice(index, index + 5);
    const what = count === 1 ? this.data.names[name] : `${count} short events, the longest: ${this.data.names[name]}`;
    this.values.textContent = `rank ${row.rank}, lane ${row.lane}: ${what} (${this.overview.categories[category]})\n${
      timeText(duration)}, from ${timeText(begin)}`;
    const at = Math.min(Math.max(this.x(begin), kLeft), this.canvas.clientWidth), before = at > this.canvas.clientWidth / 2;
    this.values.style.left = before ? "auto" : `${at + 10}px`;
    this.values.style.right = before ? `${this.canvas.clientWidth - at + 10}px` : "auto";
    this.values.style.top = `${this.rows.get(`${row.rank} ${row.lane} ${row.depth}`) + kRowHeight + 4}px`;
  }

  // The event at a place of the canvas; null if there is none.
  eventAt(x, y) {
    const time = this.timeAt(x), slack = (this.to - this.from) / this.width * 1.5;
    for (const row of this.data?.rows ?? []) {
      const top = this.rows.get(`${row.rank} ${row.lane} ${row.depth}`);
      if (top === undefined || y < top || y >= top + kRowHeight) continue;
      for (let i = 0; i < row.slices.length; i += 5)
        if (time >= row.slices[i] - slack && time <= row.slices[i] + row.slices[i + 1] + slack) return { row, index: i };
    }
    return null;
  }

  choose(chosen) {
    this.chosen = chosen;
    this.draw();
  }

  listen() {
    let drag = null;
    this.canvas.addEventListener("pointermove", event => {
      if (drag) {
        const by = (drag.x - event.offsetX) / this.width * (drag.to - drag.from);
        this.setRange(drag.from + by, drag.to + by);
      } else {
        this.choose(this.eventAt(event.offsetX, event.offsetY));
      }
    });
    this.canvas.addEventListener("pointerleave", () => this.choose(null));
    this.canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      drag = { x: event.offsetX, from: this.from, to: this.to };
      this.canvas.setPointerCapture(event.pointerId);
    });
    const end = () => { drag = null; };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener("dblclick", () => this.setRange(0, this.overview.end));
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;  // scrolls the page
      this.zoomAt(this.timeAt(event.offsetX), event.deltaY < 0 ? 0.7 : 1 / 0.7);
      event.preventDefault();
    }, { passive: false });
    this.canvas.addEventListener("blur", () => this.choose(null));
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  // Another event: the next or the one before in the row, or the first visible one of another row.
  move(rows, events) {
    const all = (this.data?.rows ?? []).filter(row => this.rows.has(`${row.rank} ${row.lane} ${row.depth}`) && row.slices.length > 0);
    if (all.length === 0) return;
    // The first event that begins in the visible part; else the one around it.
    const visible = row => {
      let around = 0;
      for (let i = 0; i < row.slices.length && row.slices[i] <= this.to; i += 5) {
        if (row.slices[i] >= this.from) return i;
        if (row.slices[i] + row.slices[i + 1] >= this.from) around = i;
      }
      return around;
    };
    if (!this.chosen) return this.choose({ row: all[0], index: visible(all[0]) });
    const at = all.indexOf(this.chosen.row), row = all[Math.min(all.length - 1, Math.max(0, at + rows))];
    const index = rows !== 0 ? visible(row) : Math.min(row.slices.length - 5, Math.max(0, this.chosen.index + 5 * events));
    this.choose({ row, index });
    const begin = row.slices[index], end = begin + row.slices[index + 1];
    if (end < this.from || begin > this.to) this.setRange(begin - (this.to - this.from) / 2, begin + (this.to - this.from) / 2);
  }

  key(event) {
    const extent = this.to - this.from, center = this.from + extent / 2;
    const actions = {
      ArrowLeft: () => this.setRange(this.from - extent / 5, this.to - extent / 5),
      ArrowRight: () => this.setRange(this.from + extent / 5, this.to + extent / 5),
      ArrowUp: () => this.move(-1, 0),
      ArrowDown: () => this.move(1, 0),
      ",": () => this.move(0, -1),
      ".": () => this.move(0, 1),
      "+": () => this.zoomAt(center, 0.5),
      "=": () => this.zoomAt(center, 0.5),
      "-": () => this.zoomAt(center, 2),
      Home: () => this.setRange(0, this.overview.end),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    actions[event.key]();
    event.preventDefault();
  }
}
