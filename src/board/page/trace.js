// What each rank did when, and which rank was the slowest.
import { getJson } from "/api.js";
import { make, table } from "/compare.js";
import { categoryVariable, Timeline, timeText } from "/timeline.js";

const kMicro = 1e6, kRanks = 16, kSteps = 100;
const share = (part, all) => all > 0 ? `${Math.round(100 * part / all)} %` : "-";
const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

// "rank 3 was the slowest in 41 of 50 steps, mostly in data".
function verdict(data) {
  const uneven = data.steps.filter(step => !step.even);
  if (data.ranks.filter(rank => rank.steps > 0).length < 2)
    return data.steps.length > 0 ? "Only one rank has traced steps, so there is nothing to compare." : "The trace has no steps.";
  if (uneven.length === 0) return `No rank was noticeably slower than the others in ${counted(data.all_steps, "step")}.`;
  const slowest = data.ranks.reduce((a, b) => b.slowest > a.slowest ? b : a);
  const count = {};
  for (const step of uneven)
    if (step.slowest === slowest.rank) count[step.category] = (count[step.category] ?? 0) + 1;
  const most = Object.entries(count).sort((a, b) => b[1] - a[1])[0][0];
  return `Rank ${slowest.rank} was the slowest in ${slowest.slowest} of ${counted(data.all_steps, "step")}, mostly in ${most}.`;
}

function legend(data) {
  const element = make("ul", undefined, { class: "legend", "aria-label": "Categories" });
  const traced = category => data.ranks.some(rank => rank.categories.includes(category));
  for (const category of data.categories.filter(traced)) {
    const item = make("li"), swatch = make("span", undefined, { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = categoryVariable(category);
    item.append(swatch, category);
    element.append(item);
  }
  return element;
}

// The mean over the steps of each rank.
function rankTable(data) {
  const used = data.categories.filter(each => each !== "step" && data.ranks.some(rank => rank.times[each] > 0));
  const rows = data.ranks.filter(rank => rank.steps > 0).map(rank => [`rank ${rank.rank}`,
    timeText(rank.seconds / rank.steps), timeText(rank.work / rank.steps),
    ...used.map(category => share(rank.times[category] ?? 0, rank.seconds)), `${rank.slowest} of ${rank.steps}`]);
  return rows.length === 0 ? [] : [make("h3", "Ranks: the mean of their steps"), table(["", "step", "work", ...used, "slowest in"], rows)];
}

function stepTable(data, zoom) {
  if (data.steps.length === 0) return [];
  const single = data.ranks.filter(rank => rank.steps > 0).length < 2;
  const headings = single ? ["step", "time", "work", "most in"] : ["step", "time", "slowest", "its work", "median of the others", "most in"];
  const row = step => {
    const open = make("button", `step ${step.step}`, { type: "button", "aria-label": `Zoom to step ${step.step}` });
    open.addEventListener("click", () => zoom(step));
    const common = [open, timeText(step.end - step.begin)];
    if (single) return [...common, timeText(step.work), step.category];
    return [...common, step.even ? "none" : `rank ${step.slowest}`, timeText(step.work), timeText(step.others),
      step.even ? "" : `${step.category} (+${timeText(step.excess)})`];
  };
  const out = [make("h3", "Steps"), table(headings, data.steps.slice(0, kSteps).map(row))];
  if (data.all_steps <= kSteps) return out;
  const more = make("button", `Show ${counted(data.steps.length - kSteps, "more step")}`, { type: "button" });
  more.addEventListener("click", () => {
    const all = table(headings, data.steps.map(row));
    out[1].replaceWith(all);
    more.replaceWith(...(data.all_steps > data.steps.length
      ? [make("p", `The first ${data.steps.length} of ${data.all_steps} steps are listed.`, { class: "note" })] : []));
  });
  return [...out, more];
}

// Buttons for those without a mouse or a keyboard, and for other ranks.
function controls(timeline, data, state) {
  const row = make("div", undefined, { class: "row" });
  const button = (text, label, action) => {
    const each = make("button", text, { type: "button", "aria-label": label });
    each.addEventListener("click", action);
    row.append(each);
  };
  const center = () => (timeline.from + timeline.to) / 2;
  button("+", "Zoom in", () => timeline.zoomAt(center(), 0.5));
  button("−", "Zoom out", () => timeline.zoomAt(center(), 2));
  button("All", "Show the whole trace", () => timeline.setRange(0, data.end));
  if (data.ranks.length > kRanks) {
    const ranks = make("select", undefined, { "aria-label": "Ranks" });
    for (let first = 0; first < data.ranks.length; first += kRanks) {
      const last = Math.min(first + kRanks, data.ranks.length) - 1;
      ranks.append(make("option", `ranks ${data.ranks[first].rank} to ${data.ranks[last].rank}`, { value: first }));
    }
    ranks.addEventListener("change", () => {
      state.first = Number(ranks.value);
      timeline.setRanks(data.ranks.slice(state.first, state.first + kRanks));
    });
    row.append(ranks);
  }
  row.append(make("span", "Drag to move, Ctrl and wheel to zoom; keys: arrows, + - , . Home", { class: "note" }));
  return row;
}

let timeline = null;

export const trace = {
  id: "trace",
  title: "Timeline",
  file: "trace",
  missing: name => `${name} has no trace. Record some steps with "lockstep train --trace FILE --trace-steps 10..20".`,

  async show(element, run, current) {
    const data = await getJson("/api/trace", { run: run.id });
    if (!current()) return;
    timeline?.remove();
    const problems = data.problems.map(text => make("p", text, { class: "problem" }));
    if (data.ranks.every(rank => rank.events === 0)) {
      element.replaceChildren(make("h2", "Timeline"), ...problems, make("p", "The trace has no events.", { class: "note" }));
      return;
    }
    const state = { first: 0 };
    const load = (from, to, width) => getJson("/api/trace/slices",
      { run: run.id, from: Math.floor(from * kMicro), to: Math.ceil(to * kMicro), width: Math.round(width), first: state.first });
    timeline = new Timeline({ ...data, ranks: data.ranks.slice(0, kRanks) }, load);
    const zoom = step => {
      const margin = (step.end - step.begin) / 20;
      timeline.setRange(step.begin - margin, step.end + margin);
      timeline.canvas.focus();
    };
    element.replaceChildren(make("h2", verdict(data)), ...problems, legend(data), controls(timeline, data, state), timeline.element,
      ...rankTable(data), ...stepTable(data, zoom));
  },
};
