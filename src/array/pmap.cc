#include <algorithm>

#include "array/flat_values.h"
#include "array/node.h"
#include "base/check.h"
#include "comm/world.h"
#include "lockstep/device_put.h"
#include "lockstep/shard_map.h"

namespace lockstep::detail {

void check_pmap_size(int64_t size, const std::string& axis) {
  // With several processes the axis spans all devices here: pmap_argument() has checked that every process
  // passed one element per device.
  const int devices = process_count() == 1 ? local_device_count() : device_count();
  if (size > devices)
    throw_error(
        "pmap: {} elements along \"{}\" for {} local devices; each device takes one: map over fewer, or set "
        "--devices {} or LOCKSTEP_NUM_CPU_DEVICES={}",
        size, axis, devices, size, size);
}

bool pmap_crosses_lanes() { return World::current().lanes() > 1 && !tracing(); }

namespace {

Array pmap_argument(const Array& array, Axis axis, const std::string& name) {
  const bool alone = process_count() == 1;
  PartitionSpec spec;
  int64_t size = device_count();
  if (axis) {
    const auto rank = static_cast<int64_t>(array.shape().size());
    const int64_t at = *axis < 0 ? *axis + rank : *axis;
    if (at < 0 || at >= rank) return array;  // vmap reports the error
    size = array.shape()[static_cast<size_t>(at)];
    if (alone && size > device_count()) return array;  // likewise
    spec.entries.resize(static_cast<size_t>(at) + 1);
    spec.entries.back() = name;
  }
  if (alone) {
    // Shared arguments keep their sharding: the mapped axis may use only some of the devices.
    if (!axis) return array;
    const std::vector<Device> some(devices().begin(), devices().begin() + size);
    const NamedSharding sharding(make_mesh({{name, size}}, some), spec);
    return known_sharding(array) == sharding ? array : with_sharding(array, sharding);
  }
  const NamedSharding sharding(make_mesh({{name, device_count()}}), spec);
  if (known_sharding(array) == sharding) return array;
  if (!axis) return is_number(array) ? array : with_sharding(array, sharding);
  if (size != local_device_count())
    throw_error(
        "pmap: {} elements along \"{}\", but process {} has {} devices; with several processes, each passes one "
        "element per local device",
        size, name, process_index(), local_device_count());
  Shape shape = array.shape();
  shape[spec.entries.size() - 1] = device_count();
  return make_array_from_process_local_data(sharding, array, shape);
}

void pmap_donated(const Array& array) {
  Node& node = *array.node();
  if (node.kind != Node::Kind::concrete) return;
  node.kind = Node::Kind::donated;
  release_memory(node);
}

}  // namespace

Arrays pmap_arguments(const PmapOptions& options, const FlatTrees& args) {
  if (options.in_axes.size() > args.counts.size()) return args.arrays;  // vmap reports the error
  const std::vector<Axis> axes = values_of_arguments(options.in_axes, args, "pmap: in_axes", Axis(0));
  Arrays out;
  for (size_t i = 0; i < axes.size(); ++i) out.push_back(pmap_argument(args.arrays[i], axes[i], options.axis_name));
  return out;
}

Arrays pmap_results(const PmapOptions& options, const FlatTrees& results) {
  const std::vector<Axis> axes =
      values_of_result(options.out_axes, results, "pmap: out_axes", [](size_t, size_t) {});  // vmap has checked them
  Arrays out;
  for (size_t i = 0; i < axes.size(); ++i)
    out.push_back(axes[i] ? process_local_data(results.arrays[i]) : results.arrays[i]);
  return out;
}

void mark_pmap_donated(const PmapOptions& options, const FlatTrees& args) {
  for (size_t i = 0, at = 0; i < args.counts.size(); ++i)
    for (size_t k = 0; k < args.counts[i]; ++k, ++at)
      if (std::find(options.donate.begin(), options.donate.end(), i) != options.donate.end())
        pmap_donated(args.arrays[at]);
}

JitOptions pmap_jit_options(const PmapOptions& options) { return {.donate = options.donate}; }

}  // namespace lockstep::detail
