// Elements and tables; tables about the selected runs: summary, alarms, and the settings with their differences.
import { shortDuration, shortNumber } from "/chart.js";

export function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Each row begins with its heading. A value is a text or an element.
export function table(headings, rows) {
  const element = make("table"), head = make("tr");
  head.append(...headings.map(name => name === "" ? make("td") : make("th", name, { scope: "col" })));
  element.append(head);
  for (const [name, ...values] of rows) {
    const row = make("tr"), heading = make("th", undefined, { scope: "row" });
    heading.append(name);
    row.append(heading, ...values.map(value => make("td", value)));
    element.append(row);
  }
  const wide = make("div", undefined, { class: "wide" });
  wide.append(element);
  return wide;
}

const runTable = (runs, rows) => table(["", ...runs.map(run => run.name)], rows);

const value = (run, names) => {
  for (const name of names) {
    if (run.result && name in run.result) return run.result[name];
    if (name in run.values) return run.values[name];
  }
  return null;
};

// The steps per second since the run was last started.
function rate(run) {
  const start = run.starts.length > 0 ? run.starts[run.starts.length - 1] : null;
  if (!start || run.last_time <= start.time || run.step <= start.step) return 0;
  return (run.step - start.step) / (run.last_time - start.time);
}

function summaryRows(runs) {
  const row = (name, text) => [name, ...runs.map(text)];
  const metric = (title, ...names) => row(title, run => shortNumber(value(run, names)));
  const rows = [
    row("state", run => run.state),
    row("step", run => run.total_steps > 0 ? `${run.step} of ${run.total_steps}` : String(run.step)),
    row("time", run => shortDuration(run.last_time - run.first_time)),
    row("rate", run => rate(run) > 0 ? `${shortNumber(rate(run))} steps/s` : "-"),
    row("time left", run => run.state === "running" && run.total_steps > run.step && rate(run) > 0
      ? shortDuration((run.total_steps - run.step) / rate(run)) : "-"),
    metric("loss", "loss"),
  ];
  const logged = (...names) => runs.some(run => value(run, names) !== null);
  for (const [title, ...names] of [["validation accuracy", "validation_accuracy"], ["test accuracy", "test_accuracy"],
    ["gradient norm", "grad_norm"], ["learning rate", "learning_rate"], ["memory", "memory_bytes", "peak_memory"]])
    if (logged(...names)) rows.push(metric(title, ...names));
  return rows;
}

function settingRows(runs) {
  const keys = [...new Set(runs.flatMap(run => Object.keys(run.config)))].sort();
  const rows = keys.map(key => [key, ...runs.map(run => run.config[key] ?? "")]);
  const differs = row => row.slice(2).some(each => each !== row[1]);
  return [rows.filter(differs), rows.filter(row => !differs(row))];
}

export function showDetails(element, runs) {
  element.replaceChildren();
  if (runs.length === 0) return;
  element.append(make("h2", "Summary"), runTable(runs, summaryRows(runs)));
  const alarms = runs.flatMap(run => run.messages.filter(each => each.alarm)
    .map(each => make("li", `${run.name}, step ${each.step}: ${each.text}`, { class: "alarm" })));
  if (alarms.length > 0) {
    const list = make("ul");
    list.append(...alarms);
    element.append(make("h2", "Alarms"), list);
  }
  for (const run of runs) {
    const problems = [];
    if (run.skipped_lines > 0) problems.push(`${run.skipped_lines} damaged lines were skipped`);
    if (run.ignored_tags > 0) problems.push(`${run.ignored_tags} or more metrics beyond the limit are not shown`);
    if (problems.length > 0) element.append(make("p", `${run.name}: ${problems.join(", ")}`, { class: "note" }));
  }
  const [differing, equal] = settingRows(runs);
  element.append(make("h2", "Settings"));
  if (differing.length > 0) element.append(runTable(runs, differing));
  else if (runs.length > 1) element.append(make("p", "The settings are equal.", { class: "note" }));
  if (equal.length > 0) {
    const more = make("details");
    more.append(make("summary", runs.length > 1 ? "Settings that are equal" : "All settings"), runTable(runs, equal));
    element.append(more);
  }
}
