// The last evaluation of a classifier: its confusion matrix, the results of each class, and the worst mistakes.
import { getJson } from "/api.js";
import { shortNumber } from "/chart.js";
import { make, table } from "/compare.js";

const kMostInMatrix = 100, kShortName = 3;
const percent = share => `${Number((100 * share).toPrecision(4))} %`;
const capitalized = text => text[0].toUpperCase() + text.slice(1);

function headline(report) {
  const metrics = Object.entries(report.metrics).map(([name, value]) =>
    name === "accuracy" ? `accuracy ${percent(value)}` : `${name} ${shortNumber(value)}`);
  const of = report.dataset ? ` of ${report.dataset}` : "";
  return `${capitalized(report.set)} set${of}, ${report.examples} examples, step ${report.step}: ${metrics.join(", ")}`;
}

function describeCell(report, row, column) {
  const names = report.classes.map(each => each.name), count = report.confusion[row][column], all = report.classes[row].examples;
  const share = all > 0 ? `, ${percent(count / all)} of this label` : "";
  return `label ${names[row]}, predicted ${names[column]}: ${count} ${count === 1 ? "example" : "examples"}${share}`;
}

function matrixCell(report, row, column) {
  const count = report.confusion[row][column], share = count / Math.max(report.classes[row].examples, 1);
  const cell = make("td", count === 0 ? "" : String(count));
  if (count === 0) cell.setAttribute("aria-label", "0");
  cell.dataset.row = row;
  cell.dataset.column = column;
  // Rare mistakes are visible, too.
  const shade = count === 0 ? 0 : 12 + 48 * Math.sqrt(share);
  cell.style.background = `color-mix(in srgb, var(${row === column ? "--series-2" : "--alarm"}) ${shade}%, var(--background))`;
  return cell;
}

function matrix(report) {
  const names = report.classes.map(each => each.name), vertical = names.some(name => name.length > kShortName);
  const element = make("table", undefined, { class: "confusion", tabindex: "0", "aria-labelledby": "confusion-title" });
  const title = make("p", "Confusion matrix: rows are labels, columns are predictions", { class: "note", id: "confusion-title" });
  const head = make("tr");
  head.append(make("td"), ...names.map(name => make("th", name, { scope: "col", ...(vertical ? { class: "vertical" } : {}) })));
  element.append(head);
  report.confusion.forEach((counts, row) => {
    const line = make("tr");
    line.append(make("th", names[row], { scope: "row" }), ...counts.map((_, column) => matrixCell(report, row, column)));
    element.append(line);
  });
  const value = make("output", "Point at a cell, or use the arrow keys.", { class: "note", "aria-live": "polite" });
  listen(element, report, value);
  const wide = make("div", undefined, { class: "wide" });
  wide.append(element);
  return [title, wide, value];
}

function listen(element, report, value) {
  const size = report.classes.length;
  let at = null;
  const show = cell => {
    element.querySelector(".chosen")?.classList.remove("chosen");
    cell.classList.add("chosen");
    at = { row: Number(cell.dataset.row), column: Number(cell.dataset.column) };
    value.textContent = describeCell(report, at.row, at.column);
  };
  element.addEventListener("pointerover", event => {
    if (event.target.dataset.row !== undefined) show(event.target);
  });
  element.addEventListener("keydown", event => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    const within = n => Math.min(size - 1, Math.max(0, n));
    const row = at ? within(at.row + move[0]) : 0, column = at ? within(at.column + move[1]) : 0;
    const cell = element.querySelector(`[data-row="${row}"][data-column="${column}"]`);
    show(cell);
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    event.preventDefault();
  });
}

function confusions(report) {
  const names = report.classes.map(each => each.name);
  return [make("h3", "Most frequent confusions"), table(["label", "predicted", "examples"],
    report.confusions.map(each => [names[each.label], names[each.predicted], each.examples]))];
}

function classes(report) {
  const rows = report.classes.map(each => [each.name, each.examples, each.predicted,
    ...["precision", "recall", "f1"].map(key => shortNumber(each[key] ?? NaN))]);
  const element = make("details");
  element.append(make("summary", `Results of ${report.classes.length} classes`),
    table(["class", "examples", "predicted", "precision", "recall", "F1"], rows));
  return element;
}

// The picture, or why it cannot be shown.
function picture(run) {
  const address = `/api/worst.png?${new URLSearchParams({ run: run.id, version: run.files.evaluation })}`;
  const image = make("img", undefined, { src: address, class: "worst",
    alt: "Pictures of the worst mistakes with labels, predictions and probabilities; the table below lists them" });
  image.addEventListener("error", async () => {
    let text = "The picture is damaged.";
    try {
      await getJson("/api/worst.png", { run: run.id });
    } catch (error) {
      if (error.status !== undefined) text = error.message;
    }
    image.replaceWith(make("p", text, { class: "problem", role: "alert" }));
  });
  return image;
}

function mistakes(report, run) {
  const list = report.mistakes ?? [], name = number => report.classes[number]?.name ?? number;
  const out = [make("h3", "Worst mistakes")];
  if (list.length === 0) return [...out, make("p", "Every example is correct.", { class: "note" })];
  const element = make("details");
  element.append(make("summary", list.length === 1 ? "1 mistake" : `${list.length} mistakes with the highest probability`),
    table(["example", "label", "predicted", "probability"],
      list.map(each => [`#${each.example}`, name(each.label), name(each.predicted), percent(each.probability)])));
  if (report.picture) out.push(picture(run));
  else element.open = true;
  return [...out, element];
}

export const evaluation = {
  id: "evaluation",
  title: "Predictions",
  file: "evaluation",
  missing: name => `${name} has no results of a classifier yet. Training writes them at its end; "lockstep eval ${name}" does, too.`,

  async show(element, run, current) {
    const report = await getJson("/api/evaluation", { run: run.id });
    if (!current()) return;
    const small = report.confusion && report.classes.length <= kMostInMatrix;
    element.replaceChildren(make("h2", headline(report)), ...(small ? matrix(report) : confusions(report)), classes(report),
      ...mistakes(report, run));
  },
};
