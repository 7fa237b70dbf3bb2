// Named groups of metrics, which are shown and hidden together.

// The first group that a metric belongs to counts. Metrics that a group names come first, in that order.
const kGroups = [
  { name: "Loss and accuracy", first: ["loss", "validation_loss", "test_loss", "accuracy", "validation_accuracy", "test_accuracy"],
    has: tag => /(^|_)(loss|accuracy|error|perplexity|bits_per_byte)$/.test(tag) },
  { name: "Speed and memory", first: ["steps_per_second", "examples_per_second", "tokens_per_second", "mfu"],
    has: tag => /^mfu|memory|_per_second$|^step_seconds$|_share$/.test(tag) },
  { name: "Gradient norms", first: ["grad_norm"], has: tag => /grad(ient)?_norm/.test(tag) },
];
const kOthers = "Other metrics";

export const groupNames = kGroups.map(group => group.name);
export const sectionNames = [...groupNames, kOthers];
const found = new Map();  // a run may have tens of thousands of metrics
export function groupOf(tag) {
  if (!found.has(tag)) found.set(tag, kGroups.find(group => group.has(tag))?.name ?? kOthers);
  return found.get(tag);
}

// The metrics of a group among those that are known, at most `most`.
export function tagsOfGroup(name, known, most) {
  const group = kGroups.find(each => each.name === name), own = known.filter(tag => groupOf(tag) === name);
  const place = tag => {
    const at = group.first.indexOf(tag);
    return at < 0 ? group.first.length : at;
  };
  return own.sort((a, b) => place(a) - place(b)).slice(0, most);
}

// Steps per second follow from the seconds that a step takes.
const kRate = "steps_per_second", kSeconds = "step_seconds";
export const withRate = tags => tags.includes(kSeconds) && !tags.includes(kRate) ? [...tags, kRate] : tags;
export const loggedTag = (tag, run) => tag === kRate && run && !run.tags.includes(kRate) ? kSeconds : tag;
export function derivedSeries(tag, logged, series) {
  if (tag === logged) return series;
  const inverse = values => values.map(value => value > 0 ? 1 / value : null);
  return { ...series, tag, mean: inverse(series.mean), min: inverse(series.max), max: inverse(series.min) };
}
