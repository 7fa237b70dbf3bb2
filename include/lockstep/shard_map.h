// shard_map and pmap: functions written for one device and run on every device of a mesh.
//
//   auto f = shard_map([](Array x) { return psum(x, "data"); },
//                      {.mesh = mesh, .in_specs = {P("data")}, .out_specs = {P()}});
//   auto g = shard_map(step, {.mesh = mesh,
//                             .in_specs = {specs_by_path({{"*/w", P({}, "model")}, {"*", P()}}), P("data")}, ...});
//
// The function receives one device's shard of each argument and communicates with other devices by
// collectives (collectives.h). It is traced once; devices of a lane become a batch axis, not threads.
// Replicated values are stored once per lane. Nests with jit, grad (inside and outside) and vmap. Safe to
// call from any thread.
#pragma once

#include "lockstep/collectives.h"
#include "lockstep/sharding.h"
#include "lockstep/source_line.h"
#include "lockstep/vmap.h"

namespace lockstep {

struct ShardMapOptions {
  Mesh mesh;
  PerArgument<PartitionSpec> in_specs;   // one per argument, for all arrays in it or per array (per_leaf.h)
  PerArgument<PartitionSpec> out_specs;  // one for the whole result, or one per element of a tuple or pair
  std::vector<std::string> axes = {};    // mesh axes the function may use in collectives; empty: all of the mesh
};

namespace detail {

extern template class SharedOptions<ShardMapOptions>;

// shard_map of a function of arrays.
Arrays shard_map_arrays(const ShardMapOptions& options, const FlatTrees& args, const FlatFunction& f);
// Runs the per-device program on all devices, with a spec for each argument and each result.
Arrays run_per_device(const Traced&, std::span<const Array> args, const std::vector<PartitionSpec>& in,
                      const std::vector<PartitionSpec>& out, const ShardMapOptions&);
void check_pmap_size(int64_t size, const std::string& axis);

}  // namespace detail

// Returns a function that takes global arrays, runs f on every device with its shards, and returns global
// arrays. Calls throw Error when the specs do not fit the arguments or results, or shards would be uneven.
template <class F>
auto shard_map(F f, ShardMapOptions options, SourceLine at = SourceLine::here()) {
  const detail::SharedOptions<ShardMapOptions> shared(std::move(options));
  return detail::with_parameters_of<F>([f = std::move(f), shared, at](const auto&... passed) {
    const detail::CallerLine line(at);
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(args)>...>> result;
          const detail::Arrays results = detail::shard_map_arrays(*shared, detail::TreeRefs{detail::TreeRef(args)...},
                                                                  detail::on_arrays(result, f, args...));
          return result.take(results.data());
        },
        passed...);
  });
}

struct PmapOptions {
  std::string axis_name = "devices";
  // Per argument, or per array in it: the axis whose elements go to the devices, as for vmap. Missing entries are 0.
  PerArgument<Axis> in_axes = {};
  // The axis of the results along which devices are stacked: one for the whole result, or one per element of a tuple or
  // pair. nullopt: equal on all devices, returned once.
  PerArgument<Axis> out_axes = 0;
  std::vector<size_t> donate = {};  // as for jit
};

namespace detail {

// Whether pmap's axis spans several lanes: of this process, or of several processes.
bool pmap_crosses_lanes();
// Distributes the arguments over the devices, one element of their axes each. With several processes, `args` hold the
// elements of this process's devices, and the results are global arrays.
Arrays pmap_arguments(const PmapOptions& options, const FlatTrees& args);
// The elements of the results that belong to this process's devices.
Arrays pmap_results(const PmapOptions& options, const FlatTrees& results);
// Marks donated arguments, after a call donated their distributed copies.
void mark_pmap_donated(const PmapOptions& options, const FlatTrees& args);
JitOptions pmap_jit_options(const PmapOptions& options);

}  // namespace detail

// A function that runs on every device. Created by pmap().
template <class F>
class Pmap {
 public:
  Pmap(F f, PmapOptions options, SourceLine at)
      : options_(std::move(options)),
        at_(at),
        mapped_(vmap(std::move(f),
                     {.in_axes = options_.in_axes,
                      .out_axes = options_.out_axes,
                      .axis_name = options_.axis_name,
                      .check = detail::check_pmap_size},
                     at),
                detail::pmap_jit_options(options_), at) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    const detail::CallerLine line(at_);
    if (!detail::pmap_crosses_lanes()) return mapped_(args...);
    const detail::FlatTrees trees = detail::flat_arguments(args...);
    const detail::Arrays placed = detail::pmap_arguments(options_, trees);
    const Array* next = placed.data();
    const std::tuple<Args...> all{detail::replace_arrays(args, next)...};  // braces: in order
    auto result = std::apply(mapped_, all);
    detail::mark_pmap_donated(options_, trees);
    const detail::Arrays here = detail::pmap_results(options_, detail::flat_result(result));
    next = here.data();
    return detail::replace_arrays(std::move(result), next);
  }

  // The number of versions compiled so far.
  size_t compiled() const { return mapped_.compiled(); }

 private:
  PmapOptions options_;
  SourceLine at_;
  Jit<decltype(vmap(std::declval<F>(), VmapOptions{}))> mapped_;
};

namespace detail {
template <class F>
struct CallableSignature<Pmap<F>, void> : CallableSignature<F> {};
}  // namespace detail

// Returns a compiled function that runs f on each element of the mapped axes, one element per device. The
// mapped axis must not be longer than the number of local devices. With several processes, each passes and
// receives exactly one element for each of its own devices; collectives in f span the devices of all
// processes.
template <class F>
Pmap<F> pmap(F f, PmapOptions options = {}, SourceLine at = SourceLine::here()) {
  return Pmap<F>(std::move(f), std::move(options), at);
}

}  // namespace lockstep
