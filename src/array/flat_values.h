// Options with one value for each argument or result, expanded to one for each array.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "lockstep/detail/flat_call.h"
#include "lockstep/per_leaf.h"

namespace lockstep::detail {

// The values of argument `i`, whose arrays have these paths. `what` names the option in errors: "shard_map: in_specs".
template <class L>
std::vector<L> values_of(const PerArgument<L>& options, size_t i, std::span<const std::string> paths,
                         std::string_view what) {
  return options[i].for_arrays(paths, fmt::format("{}[{}]", what, i));
}

// One value for each array of the arguments; `missing` for those of arguments without an entry.
template <class L>
std::vector<L> values_of_arguments(const PerArgument<L>& options, const FlatTrees& trees, std::string_view what,
                                   const L& missing = {}) {
  std::vector<L> out;
  size_t begin = 0;
  for (size_t i = 0; i < trees.counts.size(); begin += trees.counts[i++]) {
    if (i >= options.size()) {
      out.resize(out.size() + trees.counts[i], missing);
      continue;
    }
    const std::span<const std::string> paths(trees.paths.data() + begin, trees.counts[i]);
    for (const L& value : values_of(options, i, paths, what)) out.push_back(value);
  }
  return out;
}

// The paths of the arrays of a result: those of a tuple begin with the number of the element.
inline std::vector<std::string> result_paths(const std::vector<std::string>& paths, const std::vector<size_t>& counts) {
  std::vector<std::string> out;
  for (size_t i = 0, at = 0; i < counts.size(); ++i)
    for (size_t k = 0; k < counts[i]; ++k, ++at)
      out.push_back(counts.size() == 1 ? paths[at]
                                       : fmt::format("{}{}{}", i, paths[at].empty() ? "" : "/", paths[at]));
  return out;
}

// One value for each array of a result: `options` has one for the whole result, or one for each of its elements. `check`
// throws when their number is neither.
template <class L>
std::vector<L> values_of_result(const PerArgument<L>& options, const FlatTrees& result, std::string_view what,
                                void (*check)(size_t options, size_t elements)) {
  if (options.size() == 1)
    return options[0].for_arrays(result_paths(result.paths, result.counts), std::string(what));
  check(options.size(), result.counts.size());
  return values_of_arguments(options, result, what);
}

}  // namespace lockstep::detail
