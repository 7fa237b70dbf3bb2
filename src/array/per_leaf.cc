#include "lockstep/per_leaf.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace lockstep {
namespace detail {
namespace {

// Whether `part` is the path of a tree that contains the array, or the array itself.
bool contains_array(std::string_view part, std::string_view array) {
  return part.empty() || (array.starts_with(part) && (array.size() == part.size() || array[part.size()] == '/'));
}

// "w1", "layers/0/b" and 7 more.
std::string listed(std::span<const std::string> paths) {
  constexpr size_t kMost = 6;
  std::string out;
  for (size_t i = 0; i < std::min(paths.size(), kMost); ++i) out += fmt::format("{}\"{}\"", i ? ", " : "", paths[i]);
  if (paths.size() > kMost) out += fmt::format(" and {} more", paths.size() - kMost);
  return paths.empty() ? "none" : out;
}

bool matches_text(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = pattern.npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view path) {
  return matches_text(pattern, path) || (pattern.starts_with("*/") && matches_text(pattern.substr(2), path));
}

std::vector<size_t> match_leaves(const LeafPaths& values, std::span<const std::string> arrays,
                                 const std::string& what) {
  std::vector<size_t> out;
  std::vector<bool> used(values.paths.size(), false);
  for (const std::string& array : arrays) {
    size_t found = values.paths.size();
    for (size_t i = 0; i < values.paths.size() && found == values.paths.size(); ++i)
      if (values.patterns ? matches_pattern(values.paths[i], array) : contains_array(values.paths[i], array)) found = i;
    if (found == values.paths.size()) {
      if (values.patterns)
        throw_error("{}: no pattern matches the array \"{}\"; the patterns are {}; add {{\"*\", ...}} for the others", what,
                    array, listed(values.paths));
      throw_error("{}: no entry for the array \"{}\"; the entries are {}; add one for it, or for a part of the tree that "
                  "contains it",
                  what, array, listed(values.paths));
    }
    used[found] = true;
    out.push_back(found);
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i] && !values.patterns && !values.paths[i].empty())
      throw_error("{}: the entry \"{}\" belongs to no array; the arrays are {}; rename or remove it", what, values.paths[i],
                  listed(arrays));
  return out;
}

namespace {

template <class L, class Value, class Convert>
PerLeaf<L> by_path(const std::vector<std::pair<std::string, Value>>& rules, const Convert& convert) {
  LeafPaths paths{{}, true};
  std::vector<L> values;
  for (const auto& [pattern, value] : rules) {
    paths.paths.push_back(pattern);
    values.push_back(convert(value));
  }
  return {std::move(paths), std::move(values)};
}

}  // namespace
namespace {

// The leaves of type L of a tree, with their paths.
template <class L>
struct LeafCollector final : PathVisitor {
  LeafPaths& to;
  std::vector<L>& values;
  LeafCollector(LeafPaths& p, std::vector<L>& v) : to(p), values(v) {}
  void leaf(const void* value) override {
    to.paths.push_back(path);
    values.push_back(*static_cast<const L*>(value));
  }
  void array(const Array&) override {}
};

}  // namespace
}  // namespace detail

template <class L>
PerLeaf<L>::PerLeaf() : PerLeaf(Whole{}, L()) {}
template <class L>
PerLeaf<L>::PerLeaf(Whole, const L& value) : paths_{{""}} {
  values_.push_back(value);
}
template <class L>
PerLeaf<L>::PerLeaf(Whole, L&& value) : paths_{{""}} {
  values_.push_back(std::move(value));
}
template <class L>
PerLeaf<L>::PerLeaf(const void* tree, void (*visit)(const void*, detail::TreeVisitor&)) {
  detail::LeafCollector<L> collector(paths_, values_);
  visit(tree, collector);
}
template <class L>
PerLeaf<L>::PerLeaf(detail::LeafPaths paths, std::vector<L> values)
    : paths_(std::move(paths)), values_(std::move(values)) {}
template <class L>
PerLeaf<L>::PerLeaf(const PerLeaf&) = default;
template <class L>
PerLeaf<L>::PerLeaf(PerLeaf&&) noexcept = default;
template <class L>
PerLeaf<L>& PerLeaf<L>::operator=(const PerLeaf&) = default;
template <class L>
PerLeaf<L>& PerLeaf<L>::operator=(PerLeaf&&) noexcept = default;
template <class L>
PerLeaf<L>::~PerLeaf() = default;

template <class L>
std::vector<L> PerLeaf<L>::for_arrays(std::span<const std::string> arrays, const std::string& what) const {
  std::vector<L> out;
  for (const size_t i : detail::match_leaves(paths_, arrays, what)) out.push_back(values_[i]);
  return out;
}

template <class L>
PerArgument<L>::PerArgument() = default;
template <class L>
PerArgument<L>::PerArgument(std::initializer_list<PerLeaf<L>> each) : each_(each) {}
template <class L>
PerArgument<L>::PerArgument(const std::vector<L>& each) : each_(each.begin(), each.end()) {}
template <class L>
PerArgument<L>::PerArgument(std::vector<PerLeaf<L>> each) : each_(std::move(each)) {}
template <class L>
PerArgument<L>::PerArgument(All, PerLeaf<L> value) {
  each_.push_back(std::move(value));
}
template <class L>
PerArgument<L>::PerArgument(const PerArgument&) = default;
template <class L>
PerArgument<L>::PerArgument(PerArgument&&) noexcept = default;
template <class L>
PerArgument<L>& PerArgument<L>::operator=(const PerArgument&) = default;
template <class L>
PerArgument<L>& PerArgument<L>::operator=(PerArgument&&) noexcept = default;
template <class L>
PerArgument<L>::~PerArgument() = default;

template class PerLeaf<PartitionSpec>;
template class PerLeaf<NamedSharding>;
template class PerLeaf<Axis>;
template class PerArgument<PartitionSpec>;
template class PerArgument<NamedSharding>;
template class PerArgument<Axis>;

PerLeaf<PartitionSpec> specs_by_path(const std::vector<std::pair<std::string, PartitionSpec>>& rules) {
  return detail::by_path<PartitionSpec>(rules, [](const PartitionSpec& spec) { return spec; });
}

PerLeaf<NamedSharding> shardings_by_path(const Mesh& mesh,
                                         const std::vector<std::pair<std::string, PartitionSpec>>& rules) {
  return detail::by_path<NamedSharding>(rules, [&](const PartitionSpec& spec) { return NamedSharding(mesh, spec); });
}

PerLeaf<Axis> axes_by_path(const std::vector<std::pair<std::string, Axis>>& rules) {
  return detail::by_path<Axis>(rules, [](const Axis& axis) { return axis; });
}

PerLeaf<NamedSharding> named_shardings(const Mesh& mesh, const PerLeaf<PartitionSpec>& specs) {
  std::vector<NamedSharding> shardings;
  for (const PartitionSpec& spec : specs.values()) shardings.emplace_back(mesh, spec);
  return {specs.paths(), std::move(shardings)};
}

}  // namespace lockstep
