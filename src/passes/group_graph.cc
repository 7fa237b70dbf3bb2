#include "passes/group_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// Bounds the steps of one merge, so that those of a program grow with its length only. Searches that need more are of
// programs whose far ends meet in one equation; then that equation is computed separately.
constexpr int64_t kMostSteps = 1 << 14;

}  // namespace

GroupGraph::GroupGraph(std::vector<std::vector<int>> after)
    : group_(after.size()),
      members_(after.size()),
      after_(std::move(after)),
      before_(group_.size()),
      label_(group_.size()),
      seen_(group_.size(), 0),
      inside_(group_.size(), 0) {
  std::iota(group_.begin(), group_.end(), 0);
  std::iota(label_.begin(), label_.end(), int64_t{0});
  for (size_t i = 0; i < group_.size(); ++i) {
    members_[i] = {static_cast<int>(i)};
    for (const int later : after_[i]) before_[static_cast<size_t>(later)].push_back(static_cast<int>(i));
  }
}

bool GroupGraph::merge(const std::vector<int>& groups) {
  ++merge_;
  most_steps_ = steps_ + kMostSteps;
  int64_t last = 0;
  for (const int g : groups) {
    inside_[static_cast<size_t>(g)] = merge_;
    last = std::max(last, label(g));
  }
  Groups after;
  if (find_after(groups, last, after) != Found::all) return false;
  if (after.empty())
    label(groups[0]) = last;
  else if (!relabel(groups, after, last))
    return false;
  unite(groups);
  return true;
}

template <class Within>
GroupGraph::Found GroupGraph::visit(const std::vector<int>& equations, const Within& within, Groups& pending) {
  steps_ += static_cast<int64_t>(equations.size());
  if (steps_ > most_steps_) return Found::too_many;
  for (const int equation : equations) {
    const int g = group_[static_cast<size_t>(equation)];
    const auto at = static_cast<size_t>(g);
    if (seen_[at] == search_ || !within(label_[at])) continue;
    if (inside_[at] == merge_) return Found::cycle;
    seen_[at] = search_;
    pending.push_back(g);
  }
  return Found::all;
}

// The groups after the merged ones with labels up to `last`. They are merged ones themselves if there is a cycle.
GroupGraph::Found GroupGraph::find_after(const Groups& merged, int64_t last, Groups& after) {
  ++search_;
  const auto within = [last](int64_t label) { return label <= last; };
  Groups pending;
  for (const int g : merged) seen_[static_cast<size_t>(g)] = search_;  // from one merged group to another: no cycle
  for (const int g : merged)
    if (const Found found = visit(after_[static_cast<size_t>(g)], within, pending); found != Found::all) return found;
  for (const int g : merged) seen_[static_cast<size_t>(g)] = 0;
  while (!pending.empty()) {
    const int g = pending.back();
    pending.pop_back();
    after.push_back(g);
    if (const Found found = visit(after_[static_cast<size_t>(g)], within, pending); found != Found::all) return found;
  }
  return Found::all;
}

// The groups before the merged ones with labels from `first` on.
GroupGraph::Found GroupGraph::find_before(const Groups& merged, int64_t first, Groups& before) {
  ++search_;
  const auto within = [first](int64_t label) { return label >= first; };
  Groups pending;
  for (const int g : merged) seen_[static_cast<size_t>(g)] = search_;
  for (const int g : merged)
    if (const Found found = visit(before_[static_cast<size_t>(g)], within, pending); found != Found::all) return found;
  while (!pending.empty()) {
    const int g = pending.back();
    pending.pop_back();
    before.push_back(g);
    if (const Found found = visit(before_[static_cast<size_t>(g)], within, pending); found != Found::all) return found;
  }
  return Found::all;
}

// Gives the labels of the groups before the merged ones, the merged one and those after it to them in this order.
// Returns false, and changes nothing, if this takes too many steps.
bool GroupGraph::relabel(const Groups& merged, Groups& after, int64_t last) {
  const auto by_label = [this](int a, int b) { return label(a) < label(b); };
  std::sort(after.begin(), after.end(), by_label);
  Groups order;
  if (find_before(merged, label(after[0]), order) != Found::all) return false;
  std::sort(order.begin(), order.end(), by_label);
  order.push_back(merged[0]);
  order.insert(order.end(), after.begin(), after.end());
  label(merged[0]) = last;
  std::vector<int64_t> labels;
  for (const int g : order) labels.push_back(label(g));
  std::sort(labels.begin(), labels.end());
  for (size_t k = 0; k < order.size(); ++k) label(order[k]) = labels[k];
  return true;
}

void GroupGraph::unite(const Groups& merged) {
  const auto into = static_cast<size_t>(merged[0]);
  for (size_t k = 1; k < merged.size(); ++k) {
    const auto from = static_cast<size_t>(merged[k]);
    for (const int member : members_[from]) group_[static_cast<size_t>(member)] = merged[0];
    for (auto* each : {&members_, &after_, &before_}) {
      std::vector<int> moved = std::move((*each)[from]);
      (*each)[from].clear();
      std::vector<int>& to = (*each)[into];
      to.insert(to.end(), moved.begin(), moved.end());
    }
  }
  for (auto* each : {&after_, &before_}) {
    std::vector<int>& equations = (*each)[into];
    std::erase_if(equations, [&](int equation) { return group_[static_cast<size_t>(equation)] == merged[0]; });
    std::sort(equations.begin(), equations.end());
    equations.erase(std::unique(equations.begin(), equations.end()), equations.end());
  }
}

}  // namespace lockstep
