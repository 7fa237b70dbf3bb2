// Distributing arrays over devices, and inspecting how they are distributed.
//
//   Array x = device_put(images, NamedSharding(mesh, P("data")));
//   for (const Shard& s : addressable_shards(x)) std::cout << to_string(s.device) << ' ' << s.data << '\n';
//
// The virtual devices of a CPU process share its memory, so device_put copies nothing there. When a mesh
// spans several processes, every process passes the complete array and keeps the part that its devices need.
// To pass only that part, use make_array_from_process_local_data(). Safe to call from any thread.
#pragma once

#include "lockstep/detail/flat_call.h"
#include "lockstep/operand.h"
#include "lockstep/per_leaf.h"
#include "lockstep/visualize.h"

namespace lockstep {
namespace detail {
// The arrays, each constrained to its sharding.
Arrays constrained_each(const FlatTrees& tree, const PerLeaf<NamedSharding>& shardings, const char* what,
                        const SourceLine& at);
}  // namespace detail

// Returns the tree with every array distributed by `sharding`. Throws Error when the spec does not fit an
// array.
template <class T>
T device_put(const T& tree, const NamedSharding& sharding, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& a) { return detail::constrained(a, sharding, "device_put", at); }, tree);
}

// Same for values inside a traced function. Operands and results that have no sharding of their own follow
// the constraint, and so does the gradient. Two different constraints on one value reshard it. All
// constraints in a compiled function must use one mesh.
template <class T>
T with_sharding_constraint(const T& tree, const NamedSharding& sharding, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return tree_map([&](const Array& a) { return detail::constrained(a, sharding, "with_sharding_constraint", at); },
                  tree);
}

// Same with a sharding for each array (per_leaf.h): device_put(params, shardings_by_path(mesh, {{"*/w", P("model")}, ...})).
// Throws Error when an array has no sharding.
template <class T>
T device_put(const T& tree, const PerLeaf<NamedSharding>& shardings, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  const detail::Arrays arrays = detail::constrained_each(detail::flat_arguments(tree), shardings, "device_put", at);
  const Array* next = arrays.data();
  return detail::replace_arrays(tree, next);
}
template <class T>
T with_sharding_constraint(const T& tree, const PerLeaf<NamedSharding>& shardings, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  const detail::Arrays arrays =
      detail::constrained_each(detail::flat_arguments(tree), shardings, "with_sharding_constraint", at);
  const Array* next = arrays.data();
  return detail::replace_arrays(tree, next);
}

// The part of an array that one device holds.
struct Shard {
  Device device;
  IndexBox index;  // which part of the array
  Array data;      // a view of the array's memory if the shard is contiguous there, else a copy
};
// The shards of this process's devices, in mesh order.
std::vector<Shard> addressable_shards(const Operand&);

// Builds a global array from the part that this process's devices hold. Every process of the mesh calls it
// with its own part. Throws Error when `local` does not have the shape of that part.
Array make_array_from_process_local_data(const NamedSharding&, const Operand& local, const Shape& global_shape);

// The inverse: the part that this process's devices hold, as one array. Returns x itself if that is all of it.
Array process_local_data(const Operand&);

// The index range that this process's devices hold of a dimension of length `extent` that is sharded by the
// spec's first entry.
Range process_range(const NamedSharding&, int64_t extent, SourceLine at = SourceLine::here());

// Draws the sharding of an array of at most two dimensions. The second form prints it, colored on a terminal.
std::string visualize_sharding(const Operand&, const VisualizeOptions& = {});
void visualize_array_sharding(const Operand&);

}  // namespace lockstep
