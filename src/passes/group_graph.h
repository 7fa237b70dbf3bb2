// GroupGraph: a partition of a program's equations into groups that can be executed one after the other. Groups are
// merged one merge at a time, which fails if the groups would depend on each other in a cycle. Used by one thread.
//
// Labels are a topological order of the groups: whatever must come after a group has a higher label. So a search for a
// cycle through some groups looks only at labels up to the highest of them. A merge changes the labels in between (as
// the algorithm of Pearce and Kelly does for new edges). For the chains that programs mostly are, both look at
// a few groups, however long the program is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class GroupGraph {
 public:
  // Every equation is a group, of the same number. `after`: by equation, those that must come after it. They have higher
  // numbers.
  explicit GroupGraph(std::vector<std::vector<int>> after);

  int group_of(size_t equation) const { return group_[equation]; }
  // Empty if the group has become a part of another.
  const std::vector<int>& members(int group) const { return members_[static_cast<size_t>(group)]; }
  size_t size() const { return members_.size(); }

  // Merges groups into the first of them. Returns false, and changes nothing, if a path leaves them and comes back, or if
  // the search for one takes more than a fixed number of steps.
  bool merge(const std::vector<int>& groups);

  // Merges groups into the first of them without a search. merge() is then undefined.
  void unite(const std::vector<int>& groups);

  // The dependencies that all searches have followed so far.
  int64_t steps() const { return steps_; }

 private:
  using Groups = std::vector<int>;
  enum class Found : uint8_t { all, cycle, too_many };

  int64_t& label(int g) { return label_[static_cast<size_t>(g)]; }
  Found find_after(const Groups& merged, int64_t last, Groups& after);
  Found find_before(const Groups& merged, int64_t first, Groups& before);
  // Adds the neighbors of a group that a search has not visited and whose label is within the limit.
  template <class Within>
  Found visit(const std::vector<int>& equations, const Within& within, Groups& pending);
  bool relabel(const Groups& merged, Groups& after, int64_t last);

  std::vector<int> group_;                        // by equation
  std::vector<std::vector<int>> members_;         // by group
  std::vector<std::vector<int>> after_, before_;  // by group: equations of other groups that must come after or before
  std::vector<int64_t> label_;                    // by group
  std::vector<int64_t> seen_, inside_;            // by group: the last search that visited it, the last merge of it
  int64_t search_ = 0, merge_ = 0, steps_ = 0, most_steps_ = 0;
};

}  // namespace lockstep
