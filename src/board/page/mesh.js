// The devices of a mesh, and which part of a parameter each of them holds.
import { getJson } from "/api.js";
import { seriesVariable } from "/chart.js";
import { make } from "/compare.js";
import { TagList } from "/tag_list.js";

const kMostCells = 4096;
const kKinds = [["sharding", "parameter"], ["gradient", "gradient"], ["state", "optimizer state"]];
const kBytes = { f64: 8, i64: 8, u64: 8, f32: 4, i32: 4, u32: 4, f16: 2, bf16: 2, i16: 2, u16: 2 };

// The range of part number `piece`: the first parts are one larger if the extent is not a multiple of `pieces`.
export function shardRange(extent, pieces, piece) {
  const size = Math.floor(extent / pieces), larger = extent % pieces;
  const begin = piece * size + Math.min(piece, larger);
  return [begin, begin + size + (piece < larger ? 1 : 0)];
}

// The coordinates of a device along the axes, from its position in row-major order.
function coordinates(axes, position) {
  const out = {};
  for (const axis of [...axes].reverse()) {
    out[axis.name] = position % axis.size;
    position = Math.floor(position / axis.size);
  }
  return out;
}

// The range of each dimension that a device holds. `sharding`: the axes of each dimension, the first is outermost.
export function partOf(axes, shape, sharding, position) {
  const at = coordinates(axes, position);
  return shape.map((extent, d) => {
    let pieces = 1, piece = 0;
    for (const name of sharding[d]) {
      const size = axes.find(axis => axis.name === name).size;
      piece = piece * size + at[name];
      pieces *= size;
    }
    return shardRange(extent, pieces, piece);
  });
}

const partText = part => part.length === 0 ? "scalar" : `[${part.map(([begin, end]) => `${begin}:${end}`).join(", ")}]`;
const specText = sharding => `P(${sharding.map(axes => axes.length === 0 ? "None" : axes.length === 1 ? `'${axes[0]}'`
  : `(${axes.map(axis => `'${axis}'`).join(", ")})`).join(", ")})`;

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

// The array as a box with the part of a device filled: the last two dimensions.
function partBox(shape, part) {
  const box = make("span", undefined, { class: "part", "aria-hidden": "true" }), fill = make("span");
  const along = d => d >= 0 && shape[d] > 0 ? [100 * part[d][0] / shape[d], 100 * (part[d][1] - part[d][0]) / shape[d]] : [0, 100];
  const [top, height] = along(shape.length - 2), [left, width] = along(shape.length - 1);
  Object.assign(fill.style, { top: `${top}%`, height: `${height}%`, left: `${left}%`, width: `${width}%` });
  box.append(fill);
  return box;
}

class MeshView {
  constructor(element, data) {
    this.data = data;
    this.parameter = 0;
    this.kind = "sharding";
    this.labels = data.parameters.map(each => `${each.path}  ${each.type}[${each.shape.join(",")}]  ${specText(each.sharding)}`);
    this.caption = make("p", undefined, { "aria-live": "polite" });
    this.grid = make("div", undefined, { class: "wide", tabindex: "0" });
    element.replaceChildren(make("h2", this.headline()), this.legend(), this.chooser(), this.caption, this.grid);
    this.list.set(this.labels, new Set([this.labels[0]]));
    this.draw();
  }

  headline() {
    const { axes, devices, platform, zero } = this.data, processes = new Set(devices.map(each => each.process)).size;
    const sizes = axes.map(axis => `${axis.name} ${axis.size}`).join(", ");
    return `Mesh: ${sizes}; ${devices.length} ${platform} device${devices.length === 1 ? "" : "s"}, ${processes} process${
      processes === 1 ? "" : "es"}${zero > 0 ? `, ZeRO stage ${zero}` : ""}`;
  }

  legend() {
    const element = make("ul", undefined, { class: "legend", "aria-label": "Processes" });
    const processes = [...new Set(this.data.devices.map(each => each.process))].sort((a, b) => a - b);
    for (const process of processes.slice(0, 32)) {
      const item = make("li"), swatch = make("span", undefined, { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = seriesVariable(process);
      item.append(swatch, `process ${process}`);
      element.append(item);
    }
    if (processes.length > 32) element.append(make("li", `and ${processes.length - 32} more`));
    return element;
  }

  chooser() {
    const row = make("div", undefined, { class: "row chooser" });
    const filter = make("input", undefined, { type: "search", placeholder: "Filter parameters", "aria-label": "Filter parameters" });
    const list = make("div", undefined, { class: "tag-list", tabindex: "0", role: "listbox", "aria-label": "Parameters" });
    this.list = new TagList(list, filter, label => this.choose(this.labels.indexOf(label)));
    this.list.prefix = "parameter";
    const kinds = make("select", undefined, { "aria-label": "Array" });
    for (const [kind, name] of kKinds) kinds.append(make("option", name, { value: kind }));
    kinds.addEventListener("change", () => { this.kind = kinds.value; this.draw(); });
    const left = make("div");
    left.append(filter, list);
    const label = make("label", "show the ");
    label.append(kinds);
    row.append(left, label);
    return row;
  }

  choose(index) {
    this.parameter = index;
    this.list.set(this.labels, new Set([this.labels[index]]));
    this.draw();
  }

  draw() {
    const { axes, devices, parameters } = this.data, parameter = parameters[this.parameter];
    const kind = kKinds.find(each => each[0] === this.kind)[1];
    const sharding = parameter?.[this.kind];
    if (!sharding) {
      this.caption.textContent = parameter ? `${parameter.path} is not trained: it has no ${kind}.` : "The model has no parameters.";
      this.grid.replaceChildren();
      return;
    }
    const parts = devices.slice(0, kMostCells).map((_, i) => partOf(axes, parameter.shape, sharding, i));
    const texts = parts.map(partText), different = new Set(texts).size;
    const elements = parts.length === 0 ? 0 : Math.max(...parts.map(part => part.reduce((n, [begin, end]) => n * (end - begin), 1)));
    const size = kBytes[parameter.type] ? `, at most ${bytesText(elements * kBytes[parameter.type])} on a device` : "";
    this.caption.textContent = `${kind === "parameter" ? "" : `${kind} of `}${parameter.path}: ${parameter.type}[${
      parameter.shape.join(", ")}], ${specText(sharding)}: ${different === 1 ? "every device holds all of it" : `${different} different parts`}${size}`;
    this.grid.replaceChildren(this.table(parameter, parts, texts));
    if (devices.length > kMostCells)
      this.grid.append(make("p", `${kMostCells} of ${devices.length} devices are shown`, { class: "note" }));
  }

  // Columns are the last axis, and rows the others.
  table(parameter, parts, texts) {
    const { axes } = this.data, last = axes[axes.length - 1], columns = last?.size ?? 1;
    const element = make("table", undefined, { class: "mesh" }), head = make("tr");
    head.append(make("td"));
    for (let c = 0; c < columns; ++c) head.append(make("th", last ? `${last.name} ${c}` : "", { scope: "col" }));
    element.append(head);
    for (let begin = 0; begin < parts.length; begin += columns) {
      const row = make("tr"), at = coordinates(axes, begin);
      row.append(make("th", axes.slice(0, -1).map(axis => `${axis.name} ${at[axis.name]}`).join(", "), { scope: "row" }));
      for (let i = begin; i < Math.min(begin + columns, parts.length); ++i) row.append(this.cell(parameter, i, parts[i], texts));
      element.append(row);
    }
    return element;
  }

  cell(parameter, i, part, texts) {
    const device = this.data.devices[i], cell = make("td"), name = `device ${device.id}`;
    cell.style.borderColor = seriesVariable(device.process);
    cell.title = `${name}, process ${device.process}: ${texts[i]}`;
    cell.append(partBox(parameter.shape, part), make("b", name), make("span", `process ${device.process}`, { class: "note" }), make("span", texts[i]));
    // Shows which devices hold the same part.
    const mark = on => {
      [...this.grid.querySelectorAll("td[title]")].forEach((each, k) => each.classList.toggle("same", on && texts[k] === texts[i]));
    };
    cell.addEventListener("pointerenter", () => mark(true));
    cell.addEventListener("pointerleave", () => mark(false));
    return cell;
  }
}

export const mesh = {
  id: "mesh",
  title: "Mesh",
  file: "mesh",
  missing: name => `${name} has no mesh.json. Runs of this version of Lockstep write it when they start.`,

  async show(element, run, current) {
    const data = await getJson("/api/mesh", { run: run.id });
    if (current()) new MeshView(element, data);
  },
};
