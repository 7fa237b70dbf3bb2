// Rematerialization: the gradient of a function computes values again instead of storing them.
//
//   auto block = remat(transformer_block, {.policy = checkpoint_policies::dots_saveable});
//
// Nests with all transforms and may be called from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/detail/flat_call.h"
#include "lockstep/detail/signature.h"

namespace lockstep {

// Which values of a function the gradient stores instead of computing them again.
struct CheckpointPolicy {
  std::string text = "nothing_saveable";  // as in programs
};
namespace checkpoint_policies {
extern const CheckpointPolicy nothing_saveable;
extern const CheckpointPolicy everything_saveable;
// Products, convolutions and attention; and matrix products without batch dimensions.
extern const CheckpointPolicy dots_saveable;
extern const CheckpointPolicy dots_with_no_batch_dims_saveable;
// By the names that checkpoint_name() gave: only these; all names but these; all values but these.
CheckpointPolicy save_only_these_names(const std::vector<std::string>& names);
CheckpointPolicy save_any_names_but_these(const std::vector<std::string>& names);
CheckpointPolicy save_anything_except_these_names(const std::vector<std::string>& names);
}  // namespace checkpoint_policies

// Returns the arrays of a tree under a name, for the policies above. Throws Error for an empty name or one with a comma.
template <class T>
T checkpoint_name(T tree, const std::string& name, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  detail::for_each_array(tree, [&](Array& a) { a = detail::checkpoint_name(a, name); });
  return tree;
}

struct RematOptions {
  CheckpointPolicy policy = {};
};

// Returns f with rematerialization: the backward pass recomputes f's intermediate values instead of storing
// them, except those that the policy names: remat(f, {.policy = checkpoint_policies::dots_saveable}).
template <class F>
auto remat(F f, RematOptions options = {}, SourceLine at = SourceLine::here()) {
  return detail::with_parameters_of<F>([f = std::move(f), options = std::move(options), at](const auto&... passed) {
    const detail::CallerLine line(at);
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(args)>...>> result;
          const detail::Arrays results = detail::remat_flat({detail::TreeRef(args)...},
                                                            detail::on_arrays(result, f, args...), options.policy.text);
          return result.take(results.data());
        },
        passed...);
  });
}

}  // namespace lockstep
