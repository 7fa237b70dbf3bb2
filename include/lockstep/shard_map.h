// Per-device code: shard_map and pmap.
//
//   auto f = shard_map([](Array x) { return psum(x, "data"); }, {.mesh = mesh, .in_specs = {P("data")}, .out_specs =
//   {P()}});
//
// The function sees one device's piece of each argument and speaks to the other devices with collectives
// (collectives.h). The devices of a process are one extra axis of ordinary arrays: no thread for each, nothing to wait
// for. What is the same on all of them is stored once, and a psum folds into the product that made its operand. Nests
// with jit, grad (inside and outside) and vmap.
#pragma once

#include <algorithm>
#include "lockstep/collectives.h"
#include "lockstep/sharding.h"
#include "lockstep/vmap.h"

namespace lockstep {

struct ShardMapOptions {
  Mesh mesh;
  std::vector<PartitionSpec> in_specs;   // one per argument, for all of its arrays
  std::vector<PartitionSpec> out_specs;  // one for the whole result, or one per element of a tuple or pair
  std::vector<std::string> axes = {};    // those the function may name and specs may use; empty: all of the mesh
};

namespace detail {

// The scopes of a mesh's axes.
class MeshScope {
 public:
  explicit MeshScope(const ShardMapOptions&);
  ~MeshScope();

 private:
  std::vector<std::unique_ptr<AxisScope>> scopes_;
};

void check_in_specs(const ShardMapOptions&, size_t arguments);
// What one device sees of an array; throws Error when it does not divide.
Type device_type(const Array&, const ShardMapOptions&, const PartitionSpec&, const std::string& path);
void check_out_specs(size_t specs, size_t elements);
// Runs the per-device program for all devices.
Arrays run_per_device(const Traced&, std::span<const Array> args, const std::vector<PartitionSpec>& in,
                      const std::vector<PartitionSpec>& out, const ShardMapOptions&);
void check_pmap_size(int64_t size, const std::string& axis);

}  // namespace detail

template <class F>
auto shard_map(F f, ShardMapOptions options) {
  return detail::like<F>([f = std::move(f), options = std::move(options)](const auto&... passed) {
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
  std::vector<std::optional<int64_t>> in_axes =
      {};                               // as of vmap: the axis whose elements go to the devices; missing ones are 0
  std::optional<int64_t> out_axes = 0;  // nullopt: results are the same on all devices and come out once
  std::vector<size_t> donate = {};
};

namespace detail {

// Whether pmap's axis crosses lanes: this process has several, or is one of several.
bool pmap_crosses_lanes();
// An argument's array where each device has its element of it; with several processes the elements of this process's
// devices are given, and the array is that of all.
Array pmap_argument(const Array& array, std::optional<int64_t> axis, const std::string& name);
// Of a result, the elements of this process's devices.
Array pmap_result(const Array& array);
// The array was given away under another label.
void pmap_donated(const Array& array);
JitOptions pmap_jit_options(const PmapOptions& options);

}  // namespace detail

// What pmap() makes; see there.
template <class F>
class Pmap {
 public:
  Pmap(F f, PmapOptions options)
      : options_(std::move(options)),
        mapped_(vmap(std::move(f), {options_.in_axes, options_.out_axes, options_.axis_name, detail::check_pmap_size}),
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
    const auto given_away = [&](const auto& tree) {
      const size_t i = argument++;
      if (std::find(options_.donate.begin(), options_.donate.end(), i) == options_.donate.end()) return;
      detail::for_each_array(tree, [](const Array& a) { detail::pmap_donated(a); });
    };
    (given_away(args), ...);
    if (!options_.out_axes) return result;
    return tree_map([](const Array& a) { return detail::pmap_result(a); }, result);
  }

  // How many times the function was compiled.
  size_t compiled() const { return mapped_.compiled(); }

 private:
  PmapOptions options_;
  Jit<decltype(vmap(std::declval<F>(), VmapOptions{}))> mapped_;
};

namespace detail {
template <class F>
struct CallableSignature<Pmap<F>, void> : CallableSignature<F> {};
}  // namespace detail

// f on each element of the mapped axes, one per device, compiled. The axis may not be longer than there are local
// devices. With several processes each gives, and gets, the elements of its own devices, one for every one of them,
// and collectives in f are over those of all.
template <class F>
Pmap<F> pmap(F f, PmapOptions options = {}) {
  return Pmap<F>(std::move(f), std::move(options));
}

}  // namespace lockstep
