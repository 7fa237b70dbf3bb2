// vmap: turns a function of one example into a function of a batch.
//
//   auto batched = vmap(f);                                              // axis 0 of every argument
//   auto rows = vmap(f, {.in_axes = {0, std::nullopt}, .out_axes = 1});  // second argument shared; batch at axis 1
//   auto some = vmap(f, {.in_axes = {axes_by_path({{"lora/*", 0}, {"*", std::nullopt}}), 0}});  // per array
//
// Nests with jit, grad and itself. Numbers and strings in arguments are shared. Safe to call from any thread.
#pragma once

#include "lockstep/collectives.h"
#include "lockstep/grad.h"
#include "lockstep/per_leaf.h"
#include "lockstep/source_line.h"

namespace lockstep {

struct VmapOptions {
  // Per argument, or per array in it (per_leaf.h): the axis to map over, negative from the back; nullopt: shared by
  // all examples. Missing entries are 0.
  PerArgument<Axis> in_axes = {};
  // The axis of the results that holds the batch: one for the whole result, or one per element of a tuple or pair.
  // nullopt: the results must not depend on the batch and are returned without it.
  PerArgument<Axis> out_axes = 0;
  // A name for the mapped axis, for collectives (collectives.h) in the function. Empty: none.
  std::string axis_name = "";
  // A mesh axis that shards the batch wherever the function constrains a sharding: with_sharding_constraint(x,
  // P("model")) in it constrains the batched x to P(spmd_axis_name, "model"). Empty: none.
  std::string spmd_axis_name = "";
  // Internal: called with the extent and name of the mapped axis; may throw.
  void (*check)(int64_t size, const std::string& axis_name) = nullptr;
};

namespace detail {

extern template class SharedOptions<VmapOptions>;

Type without_axis(const Type&, int64_t axis);
// batch_program() in which constraints shard the batch by `spmd_axis`, unless that is empty.
VmapProgram batch_along(const Traced&, std::vector<bool> batched_args, int64_t size, const std::vector<bool>& force,
                        const std::string& axis, const std::string& spmd_axis);
// vmap of a function of arrays.
Arrays vmap_arrays(const VmapOptions& options, const FlatTrees& args, const FlatFunction& f);

}  // namespace detail

// Returns a function that applies f to each element of the mapped axes and stacks the results. Calls throw
// Error when mapped axes differ in extent or an axis does not exist.
template <class F>
auto vmap(F f, VmapOptions options = {}, SourceLine at = SourceLine::here()) {
  const detail::SharedOptions<VmapOptions> shared(std::move(options));
  return detail::with_parameters_of<F>([f = std::move(f), shared, at](const auto&... passed) {
    const detail::CallerLine line(at);
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(args)>...>> result;
          const detail::Arrays results = detail::vmap_arrays(*shared, detail::TreeRefs{detail::TreeRef(args)...},
                                                             detail::on_arrays(result, f, args...));
          return result.take(results.data());
        },
        passed...);
  });
}
// Of a function that is overloaded with those of the C library, such as vmap(log1p).
inline auto vmap(Array (*f)(const Operand&), VmapOptions options = {}, SourceLine at = SourceLine::here()) {
  return vmap<Array (*)(const Operand&)>(f, std::move(options), at);
}

}  // namespace lockstep
