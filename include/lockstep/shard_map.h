// shard_map and pmap: functions written for one device and run on every device of a mesh.
//
//   auto f = shard_map([](Array x) { return psum(x, "data"); },
//                      {.mesh = mesh, .in_specs = {P("data")}, .out_specs = {P()}});
//
// The function receives one device's shard of each argument and communicates with other devices by
// collectives (collectives.h). It is traced once; devices of a lane become a batch axis, not threads.
// Replicated values are stored once per lane. Nests with jit, grad (inside and outside) and vmap. Safe to
// call from any thread.
#pragma once

#include <algorithm>
#include "lockstep/collectives.h"
#include "lockstep/sharding.h"
#include "lockstep/vmap.h"

namespace lockstep {

struct ShardMapOptions {
  Mesh mesh;
  std::vector<PartitionSpec> in_specs;   // one per argument, for all arrays in it
  std::vector<PartitionSpec> out_specs;  // one for the whole result, or one per element of a tuple or pair
  std::vector<std::string> axes = {};    // mesh axes the function may use in collectives; empty: all of the mesh
};

namespace detail {

// Brings the options' mesh axes into scope for collectives of the calling thread, until destroyed.
class MeshScope {
 public:
  explicit MeshScope(const ShardMapOptions&);
  ~MeshScope();

 private:
  std::vector<std::unique_ptr<AxisScope>> scopes_;
};

void check_in_specs(const ShardMapOptions&, size_t arguments);
// The type of one device's shard of an array. Throws Error when shards would be uneven.
Type device_type(const Array&, const ShardMapOptions&, const PartitionSpec&, const std::string& path);
void check_out_specs(size_t specs, size_t elements);
// Runs the per-device program on all devices.
Arrays run_per_device(const Traced&, std::span<const Array> args, const std::vector<PartitionSpec>& in,
                      const std::vector<PartitionSpec>& out, const ShardMapOptions&);
void check_pmap_size(int64_t size, const std::string& axis);

}  // namespace detail

// Returns a function that takes global arrays, runs f on every device with its shards, and returns global
// arrays. Calls throw Error when the specs do not fit the arguments or results, or shards would be uneven.
template <class F>
auto shard_map(F f, ShardMapOptions options) {
  return detail::with_parameters_of<F>([f = std::move(f), options = std::move(options)](const auto&... passed) {
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          detail::check_in_specs(options, sizeof...(args));
          const detail::MeshScope scope(options);
          detail::Tracing tracing("shard_map");
          std::vector<PartitionSpec> in_specs;
          size_t argument = 0;
          auto piece = [&](auto tree) {
            const PartitionSpec& spec = options.in_specs[argument];
            detail::for_each_path(tree, [&](const std::string& path, Array& a) {
              a = tracing.input(
                  detail::device_type(a, options, spec,
                                      "argument " + std::to_string(argument) + (path.empty() ? "" : ", " + path)),
                  a);
              in_specs.push_back(spec);
            });
            ++argument;
            return tree;
          };
          const std::tuple<std::decay_t<decltype(args)>...> inputs{piece(args)...};
          auto result = std::decay_t<decltype(std::apply(f, inputs))>(std::apply(f, inputs));
          const std::vector<PartitionSpec> out_specs =
              detail::for_each_result(result, options.out_specs, detail::check_out_specs);
          const detail::Traced traced = tracing.finish(tree_leaves(result));
          const detail::Arrays results =
              detail::run_per_device(traced, detail::leaves_of(args...), in_specs, out_specs, options);
          const Array* next = results.data();
          return detail::replace_arrays(std::move(result), next);
        },
        passed...);
  });
}

struct PmapOptions {
  std::string axis_name = "devices";
  // Per argument: the axis whose elements go to the devices, as for vmap. Missing entries are 0.
  std::vector<std::optional<int64_t>> in_axes = {};
  // The axis of the results along which devices are stacked. nullopt: results are equal on all devices,
  // returned once.
  std::optional<int64_t> out_axes = 0;
  std::vector<size_t> donate = {};  // as for jit
};

namespace detail {

// Whether pmap's axis spans several lanes: of this process, or of several processes.
bool pmap_crosses_lanes();
// Distributes an argument over the devices, one element of `axis` each. With several processes, `array` holds
// the elements of this process's devices, and the result is the global array.
Array pmap_argument(const Array& array, std::optional<int64_t> axis, const std::string& name);
// The elements of a result that belong to this process's devices.
Array pmap_result(const Array& array);
// Marks an argument as donated, after a call donated its distributed copy.
void pmap_donated(const Array& array);
JitOptions pmap_jit_options(const PmapOptions& options);

}  // namespace detail

// A function that runs on every device. Created by pmap().
template <class F>
class Pmap {
 public:
  Pmap(F f, PmapOptions options)
      : options_(std::move(options)),
        mapped_(vmap(std::move(f), {.in_axes = options_.in_axes,
                                    .out_axes = options_.out_axes,
                                    .axis_name = options_.axis_name,
                                    .check = detail::check_pmap_size}),
                detail::pmap_jit_options(options_)) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    if (!detail::pmap_crosses_lanes()) return mapped_(args...);
    size_t argument = 0;
    const auto placed = [&](const auto& tree) {
      const size_t i = argument++;
      const auto axis = i < options_.in_axes.size() ? options_.in_axes[i] : std::optional<int64_t>(0);
      return tree_map([&](const Array& a) { return detail::pmap_argument(a, axis, options_.axis_name); }, tree);
    };
    const std::tuple<Args...> all{placed(args)...};  // braces: in order
    auto result = std::apply(mapped_, all);
    argument = 0;
    const auto mark_donated = [&](const auto& tree) {
      const size_t i = argument++;
      if (std::find(options_.donate.begin(), options_.donate.end(), i) == options_.donate.end()) return;
      detail::for_each_array(tree, [](const Array& a) { detail::pmap_donated(a); });
    };
    (mark_donated(args), ...);
    if (!options_.out_axes) return result;
    return tree_map([](const Array& a) { return detail::pmap_result(a); }, result);
  }

  // The number of versions compiled so far.
  size_t compiled() const { return mapped_.compiled(); }

 private:
  PmapOptions options_;
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
Pmap<F> pmap(F f, PmapOptions options = {}) {
  return Pmap<F>(std::move(f), std::move(options));
}

}  // namespace lockstep
