// The tabs above the curves. Besides the curves, each shows a file of one of the selected runs, which is read when the
// tab is open and the file has changed.
import { make } from "/compare.js";
import { evaluation } from "/evaluation.js";
import { mesh } from "/mesh.js";
import { samples } from "/samples.js";
import { trace } from "/trace.js";

// Of each: id, title, file (of a run's `files`), missing(name), what to do for a file that does not exist, and
// show(element, run, current), which fills an element unless !current() after a wait.
const kPanels = [evaluation, samples, mesh, trace];
const byId = id => document.getElementById(id);

export class Panels {
  constructor(changed) {
    this.changed = changed;  // called when another tab or run was chosen
    this.open = "curves";
    this.wanted = null;      // the id of the chosen run
    this.runs = [];
    this.shown = new Map();  // id of a panel -> what it shows
    this.tabs = [{ id: "curves", title: "Curves" }, ...kPanels].map(panel => this.makeTab(panel));
    byId("panel-tabs").append(...this.tabs);
    byId("panel-tabs").addEventListener("keydown", event => this.key(event));
    byId("panel-run").addEventListener("change", event => {
      this.wanted = event.target.value;
      this.update();
      this.changed();
    });
    this.update();
  }

  makeTab({ id, title }) {
    const tab = make("button", title, { type: "button", role: "tab", id: `tab-of-${id}`, "aria-controls": `panel-${id}` });
    tab.addEventListener("click", () => this.choose(id));
    return tab;
  }

  // Opens the tab that the address names. Ignores unknown ones.
  restore(id) {
    if (id !== "curves" && !kPanels.some(panel => panel.id === id)) return;
    this.open = id;
    this.update();
  }

  choose(id) {
    this.restore(id);
    this.changed();
  }

  chooseAt(index) {
    if (index < this.tabs.length) this.tabs[index].click();
  }

  key(event) {
    const at = this.tabs.indexOf(document.activeElement), last = this.tabs.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (at < 0 || next === undefined) return;
    this.tabs[next].focus();
    this.tabs[next].click();
    event.preventDefault();
  }

  // `runs`: the selected ones with their files.
  set(runs) {
    this.runs = runs;
    this.update();
  }

  update() {
    const ids = ["curves", ...kPanels.map(panel => panel.id)];
    ids.forEach((id, i) => {
      const chosen = id === this.open, panel = kPanels.find(each => each.id === id);
      this.tabs[i].setAttribute("aria-selected", chosen);
      this.tabs[i].tabIndex = chosen ? 0 : -1;
      this.tabs[i].classList.toggle("empty", panel !== undefined && !this.runs.some(run => panel.file in run.files));
      byId(`panel-${id}`).hidden = !chosen;
    });
    const panel = kPanels.find(each => each.id === this.open);
    byId("panel-run-label").hidden = !panel || this.runs.length < 2;
    if (!panel) return;
    const run = this.runs.find(each => each.id === this.wanted) ?? this.runs.find(each => panel.file in each.files) ?? this.runs[0];
    const options = this.runs.map(each => make("option", each.name, { value: each.id }));
    if (byId("panel-run").textContent !== this.runs.map(each => each.name).join("")) byId("panel-run").replaceChildren(...options);
    if (run) byId("panel-run").value = run.id;
    this.show(panel, run);
  }

  async show(panel, run) {
    const element = byId(`panel-${panel.id}`), state = run ? `${run.id} ${run.files[panel.file]}` : "none";
    if (this.shown.get(panel.id) === state) return;
    this.shown.set(panel.id, state);
    if (!run || !(panel.file in run.files)) {
      element.replaceChildren(make("p", run ? panel.missing(run.name) : "Select a run.", { class: "note" }));
      return;
    }
    if (element.dataset.run !== run.id) element.replaceChildren(make("p", "Reading ...", { class: "note" }));
    element.dataset.run = run.id;
    const current = () => this.shown.get(panel.id) === state;
    try {
      await panel.show(element, run, current);
    } catch (error) {
      if (!current()) return;
      element.replaceChildren(make("p", `${run.name}: ${error.message}`, { class: "problem", role: "alert" }));
      if (error.status === undefined) this.shown.delete(panel.id);  // the board did not answer: the next change tries again
    }
  }
}
