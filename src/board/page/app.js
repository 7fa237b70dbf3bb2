// The page of a board: selection of runs and metrics, and what is fetched when something changes.
import { getJson, watch } from "/api.js";
import { Chart, seriesColor, shortNumber } from "/chart.js";
import { make, showDetails } from "/compare.js";
import { derivedSeries, groupNames, groupOf, loggedTag, sectionNames, tagsOfGroup, withRate } from "/groups.js";
import { refreshJobs } from "/jobs.js";
import { Panels } from "/panels.js";
import { TagList } from "/tag_list.js";

const kMaxListed = 300, kMaxSelected = 16, kMaxCharts = 24, kMaxOfGroup = 12, kJobsPause = 2000;
const kTooManyCharts = `At most ${kMaxCharts} charts can be shown.`;
const kDefaultTags = ["loss", "validation_accuracy", "test_accuracy", "accuracy", "validation_loss", "test_loss"];
const byId = id => document.getElementById(id);

let runs = [];               // the list
const selected = [];         // ids, in the order of their colors
const details = new Map();   // id -> run with its settings, tags and messages
let tags = [];               // the selected metrics
let tagsWereChosen = false;
const charts = new Map();    // tag -> {chart, series: id -> series, busy, again}
const sections = new Map();  // name of a group -> the element of its charts
let known = [];              // the metrics of the selected runs
const view = { x: "step", smooth: 0, log: false, range: null };
let closeWatch = () => {};

function remember() {
  const state = new URLSearchParams({ runs: selected.join(","), ...(tagsWereChosen ? { tags: tags.join(",") } : {}),
    ...(panels.open === "curves" ? {} : { show: panels.open }) });
  history.replaceState(null, "", `#${state}`);
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1)), list = name => (state.get(name) || "").split(",").filter(Boolean);
  selected.push(...list("runs").slice(0, kMaxSelected));
  tags = list("tags").slice(0, kMaxCharts);
  tagsWereChosen = tags.length > 0;
  panels.restore(state.get("show") || "curves");
}

function listedRuns() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.filter(run => words.every(word => `${run.name} ${run.title} ${run.state}`.toLowerCase().includes(word)));
  const loss = run => run.values.loss ?? Infinity;
  const orders = {
    name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
    state: (a, b) => b.state.localeCompare(a.state) || b.updated - a.updated,
    loss: (a, b) => loss(a) - loss(b),
  };
  const order = orders[byId("sort").value];
  return order ? found.sort(order) : found;
}

function runRow(run) {
  const item = make("li"), label = make("label"), box = make("input", undefined, { type: "checkbox", value: run.id });
  const place = selected.indexOf(run.id);
  box.checked = place >= 0;
  box.addEventListener("change", () => toggleRun(run.id));
  const swatch = make("span", undefined, { class: "swatch", "aria-hidden": "true" });
  if (place >= 0) swatch.style.background = seriesColor(place);
  const step = run.total_steps > 0 ? `${run.step}/${run.total_steps}` : run.step;
  const loss = run.values.loss === undefined ? "" : `  loss ${shortNumber(run.values.loss)}`;
  label.append(box, swatch, make("span", run.name, { class: "name" }), make("span", run.state, { class: `state ${run.state}` }),
    make("span", `step ${step}${loss}  ${run.title}`, { class: "facts" }));
  item.append(label);
  return item;
}

function showRuns() {
  const focused = document.activeElement?.value, inList = byId("run-list").contains(document.activeElement);
  const found = listedRuns();
  byId("run-list").replaceChildren(...found.slice(0, kMaxListed).map(runRow));
  if (inList) byId("run-list").querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  byId("run-note").textContent = runs.length === 0 ? "No runs with metrics yet. Train one with lockstep train."
    : found.length > kMaxListed ? `${found.length} runs; ${kMaxListed} are shown. Search for others.` : "";
}

function toggleRun(id) {
  const place = selected.indexOf(id);
  if (place >= 0) selected.splice(place, 1);
  else if (selected.length < kMaxSelected) selected.push(id);
  else byId("message").textContent = `At most ${kMaxSelected} runs can be compared.`;
  selectionChanged();
}

function selectionChanged() {
  for (const id of details.keys()) if (!selected.includes(id)) details.delete(id);
  remember();
  showRuns();
  closeWatch();
  closeWatch = watch(selected, changed, state => { byId("status").textContent = state; });
  refresh(selected);
}

async function changed(ids) {
  if (ids.has("")) await loadList();
  await refresh(selected.filter(id => ids.has(id)));
}

async function loadList() {
  runs = (await getJson("/api/runs")).runs;
  if (selected.length === 0 && details.size === 0 && runs.length > 0 && !location.hash) {
    selected.push(runs[0].id);
    selectionChanged();
  }
  showRuns();
}

// Fetches what is new of some runs.
async function refresh(ids) {
  const charted = refreshCharts(ids);
  await Promise.all(ids.map(async id => {
    try {
      details.set(id, await getJson(`/api/runs/${id}`));
    } catch (error) {
      details.delete(id);
      const name = runs.find(run => run.id === id)?.name ?? "A run";
      byId("message").textContent = error.status === 404 ? `${name} no longer exists.` : error.message;
      for (const { series } of charts.values()) series.delete(id);
    }
  }));
  showSelection();
  await charted;
}

function showSelection() {
  const chosen = selected.map(id => details.get(id)).filter(Boolean);
  known = withRate([...new Set(chosen.flatMap(run => run.tags))]);
  if (!tagsWereChosen) {
    const loss = known.filter(tag => tag === "loss"), others = kDefaultTags.slice(1).filter(tag => known.includes(tag));
    tags = [...loss, ...others].slice(0, 4);
    if (tags.length === 0) tags = known.slice(0, 2);
  }
  byId("tag-count").textContent = known.length;
  tagList.set(known, new Set(tags));
  showDetails(byId("details"), chosen);
  panels.set(chosen);
  const loading = chosen.filter(run => !run.complete);
  if (loading.length > 0)
    byId("message").textContent = loading.map(run => `Reading ${run.name}: ${Math.round(100 * run.bytes_read / Math.max(run.bytes, 1))} %`).join(", ");
  else if (byId("message").textContent.startsWith("Reading")) byId("message").textContent = "";
  arrangeCharts();
}

function arrangeCharts() {
  for (const [tag, { chart }] of charts)
    if (!tags.includes(tag)) {
      chart.remove();
      charts.delete(tag);
    }
  const added = tags.filter(tag => !charts.has(tag));
  for (const tag of added) {
    const chart = new Chart(tag, zoom, () => toggleTag(tag));
    charts.set(tag, { chart, series: new Map(), busy: false, again: false });
    sections.get(groupOf(tag)).lastChild.append(chart.element);
  }
  arrangeSections();
  for (const tag of added) fetchChart(tag, selected);
  showCharts();
}

// A heading above the charts of each group, if charts of several groups are shown.
function arrangeSections() {
  const used = new Set(tags.map(groupOf));
  for (const [name, element] of sections) {
    element.hidden = !used.has(name);
    element.firstChild.textContent = used.size > 1 ? name : "";
    element.lastChild.append(...tags.filter(tag => groupOf(tag) === name).map(tag => charts.get(tag).chart.element));
  }
  for (const button of byId("groups").children) {
    const own = tagsOfGroup(button.textContent, known, kMaxOfGroup), shown = own.filter(tag => tags.includes(tag)).length;
    button.disabled = own.length === 0;
    button.setAttribute("aria-pressed", shown === 0 ? "false" : shown === own.length ? "true" : "mixed");
  }
}

function makeGroups() {
  for (const name of sectionNames) {
    const element = make("section", undefined, { class: "group", "aria-label": name });
    element.append(make("h2"), make("div", undefined, { class: "charts" }));
    sections.set(name, element);
  }
  byId("charts").append(...sections.values());
  for (const name of groupNames) {
    const button = make("button", name, { type: "button", "aria-pressed": "false" });
    button.addEventListener("click", () => toggleGroup(name));
    byId("groups").append(button);
  }
}

// Shows all metrics of a group, or hides them if all are shown.
function toggleGroup(name) {
  const own = tagsOfGroup(name, known, kMaxOfGroup), missing = own.filter(tag => !tags.includes(tag));
  tagsWereChosen = true;
  if (tags.length + missing.length > kMaxCharts) byId("message").textContent = kTooManyCharts;
  tags = missing.length === 0 ? tags.filter(tag => groupOf(tag) !== name) : [...tags, ...missing].slice(0, kMaxCharts);
  remember();
  showSelection();
}

function toggleTag(tag) {
  tagsWereChosen = true;
  if (tags.includes(tag)) tags = tags.filter(each => each !== tag);
  else if (tags.length < kMaxCharts) tags = [...tags, tag];
  else byId("message").textContent = kTooManyCharts;
  remember();
  showSelection();
}

const refreshCharts = ids => Promise.all([...charts.keys()].map(tag => fetchChart(tag, ids)));

// The steps of the zoomed part of a run. Times are translated by the points that are known.
function stepsOf(range, series, run) {
  if (!range) return {};
  let [from, to] = range;
  if (view.x === "epoch") {
    const epoch = Math.max(run?.steps_per_epoch ?? 1, 1);
    [from, to] = [from * epoch, to * epoch];
  } else if (view.x === "time") {
    if (!series || series.time.length === 0) return {};
    const first = series.time.findIndex(time => time >= range[0]), last = series.time.findLastIndex(time => time <= range[1]);
    from = series.step[Math.max(0, (first < 0 ? series.time.length : first) - 1)];
    to = series.step[Math.min(series.step.length - 1, last + 1)];
  }
  return { from: Math.floor(from), to: Math.ceil(to) };
}

// One request per run and chart at a time; a change meanwhile causes another one.
async function fetchChart(tag, ids) {
  const entry = charts.get(tag);
  if (!entry) return;
  if (entry.busy) {
    entry.again = true;
    return;
  }
  entry.busy = true;
  const points = Math.min(2000, Math.max(200, entry.chart.canvas.clientWidth));
  await Promise.all(ids.map(async id => {
    try {
      const range = stepsOf(view.range, entry.series.get(id), details.get(id)), logged = loggedTag(tag, details.get(id));
      entry.series.set(id, derivedSeries(tag, logged, await getJson("/api/series", { run: id, tag: logged, points, ...range })));
    } catch {
      entry.series.delete(id);  // refresh() reports a run that is gone
    }
  }));
  entry.busy = false;
  showChart(tag);
  if (entry.again) {
    entry.again = false;
    await fetchChart(tag, selected);
  }
}

function marksOf(run) {
  if (!run) return [];
  const epoch = Math.max(run.steps_per_epoch, 1);
  const x = each => view.x === "time" ? each.time - run.first_time : view.x === "epoch" ? each.step / epoch : each.step;
  return [...run.messages.filter(each => each.alarm).map(each => ({ x: x(each), alarm: true, text: each.text })),
    ...run.starts.slice(1).map(each => ({ x: x(each), alarm: false }))];
}

function showChart(tag) {
  const entry = charts.get(tag);
  if (!entry) return;
  entry.chart.set(selected.map((id, i) => ({
    name: details.get(id)?.name ?? runs.find(run => run.id === id)?.name ?? id,
    color: seriesColor(i), series: entry.series.get(id), marks: marksOf(details.get(id)),
  })), { ...view });
}

const showCharts = () => { for (const tag of charts.keys()) showChart(tag); };

function zoom(range) {
  view.range = range;
  showCharts();
  refreshCharts(selected);
}

function setAxis(x) {
  view.x = byId("x").value = x;
  zoom(null);
}

function showView(name) {
  byId("runs-view").hidden = name !== "runs";
  byId("jobs-view").hidden = name !== "jobs";
  byId("show-runs").setAttribute("aria-pressed", name === "runs");
  byId("show-jobs").setAttribute("aria-pressed", name === "jobs");
  if (name === "jobs") refreshJobs();
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], select")) return;
  const axes = ["step", "time", "epoch"];
  if (/^[1-9]$/.test(event.key)) return panels.chooseAt(Number(event.key) - 1);
  const actions = {
    "/": () => byId("search").focus(),
    m: () => { panels.choose("curves"); byId("metrics").open = true; byId("tag-filter").focus(); },
    x: () => setAxis(axes[(axes.indexOf(view.x) + 1) % 3]),
    l: () => byId("log").click(),
    r: () => zoom(null),
    "?": () => byId("shortcuts").showModal(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

makeGroups();
const panels = new Panels(remember);
const tagList = new TagList(byId("tag-list"), byId("tag-filter"), toggleTag);
byId("search").addEventListener("input", showRuns);
byId("sort").addEventListener("change", showRuns);
byId("x").addEventListener("change", event => setAxis(event.target.value));
byId("smooth").addEventListener("input", event => {
  view.smooth = Number(event.target.value);
  byId("smooth-value").textContent = event.target.value;
  showCharts();
});
byId("log").addEventListener("change", event => { view.log = event.target.checked; showCharts(); });
byId("reset").addEventListener("click", () => zoom(null));
byId("controls").addEventListener("submit", event => event.preventDefault());
byId("help").addEventListener("click", () => byId("shortcuts").showModal());
byId("show-runs").addEventListener("click", () => showView("runs"));
byId("show-jobs").addEventListener("click", () => showView("jobs"));
document.addEventListener("keydown", key);
// A hidden page holds no connection: a browser has only a few for each server.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) closeWatch();
  else selectionChanged();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showRuns(); showCharts(); });
setInterval(() => { if (!byId("jobs-view").hidden && !document.hidden) refreshJobs(); }, kJobsPause);

recall();
try {
  await loadList();
  if (selected.length > 0 || runs.length === 0) selectionChanged();
} catch (error) {
  byId("message").textContent = error.message;
}
