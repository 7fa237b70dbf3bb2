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
              a = tracing.input(detail::device_type(
                  a, options, spec, "argument " + std::to_string(argument) + (path.empty() ? "" : ", " + path)));
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

// f on each element of the mapped axes, one per device, compiled. The axis may not be longer than there are local
// devices.
template <class F>
auto pmap(F f, PmapOptions options = {}) {
  auto mapped = vmap(std::move(f), {options.in_axes, options.out_axes, options.axis_name, detail::check_pmap_size});
  return jit(std::move(mapped), {.donate = options.donate});
}

}  // namespace lockstep
