// Texts that a language model has written during its training, the newest first.
import { getJson } from "/api.js";
import { make } from "/compare.js";

const kShownAtFirst = 20;

function sampleElement(sample) {
  const element = make("article", undefined, { class: "sample", "aria-label": `Step ${sample.step}` });
  element.append(make("h3", `Step ${sample.step}`));
  if (sample.error !== undefined) {
    element.append(make("p", sample.error, { class: "problem" }));
    return element;
  }
  const text = make("pre", undefined, { tabindex: "0" });
  if (sample.prompt) text.append(make("b", sample.prompt));
  text.append(sample.text);
  element.append(text);
  return element;
}

export const samples = {
  id: "samples",
  title: "Texts",
  file: "samples",
  missing: name => `${name} has no texts. Train a language model with "lockstep train --model gpt --sample-tokens 200": it writes one at every evaluation.`,

  async show(element, run, current) {
    const { samples: all, skipped } = await getJson("/api/samples", { run: run.id });
    if (!current()) return;
    const newest = all.reverse(), count = newest.length === 1 ? "1 text" : `${newest.length} texts`;
    element.replaceChildren(make("h2", `${count}, the newest first`), ...newest.slice(0, kShownAtFirst).map(sampleElement));
    if (skipped > 0) element.append(make("p", `${skipped === 1 ? "1 damaged line" : `${skipped} damaged lines`} of samples.jsonl skipped`, { class: "note" }));
    if (newest.length <= kShownAtFirst) return;
    const more = make("button", `Show ${newest.length - kShownAtFirst} older texts`, { type: "button" });
    more.addEventListener("click", () => more.replaceWith(...newest.slice(kShownAtFirst).map(sampleElement)));
    element.append(more);
  },
};
