// Placing arrays on devices, and looking at where they lie.
//
//   Array x = device_put(images, NamedSharding(mesh, P("data")));
//   for (const Shard& s : addressable_shards(x)) std::cout << to_string(s.device) << ' ' << s.data << '\n';
//
// The devices of one process share its memory, so placing copies nothing. Where a mesh spans processes, every process
// places the whole array and keeps what its own devices need of it, or gives just that part.
#pragma once

#include "lockstep/trace.h"
#include "lockstep/tree.h"
#include "lockstep/visualize.h"

namespace lockstep {

// The tree with every array laid out like this. Throws Error when a spec does not fit an array.
template <class T>
T device_put(const T& tree, const NamedSharding& sharding, SourceLine at = SourceLine::here()) {
  return tree_map([&](const Array& a) { return detail::constrained(a, sharding, "device_put", at); }, tree);
}

// The same inside a function being traced: these values lie like this, and what they are made of and used for follows;
// so does their gradient. Two that differ for one value are a move from one to the other; all in one compiled function
// are of one mesh.
template <class T>
T with_sharding_constraint(const T& tree, const NamedSharding& sharding, SourceLine at = SourceLine::here()) {
  return tree_map([&](const Array& a) { return detail::constrained(a, sharding, "with_sharding_constraint", at); },
                  tree);
}

// One device's piece of an array.
struct Shard {
  Device device;
  IndexBox index;
  Array data;  // a view of the array's memory where the piece is one stretch of it, else a copy
};
// The pieces of the devices of this process, in mesh order.
std::vector<Shard> addressable_shards(const Array&);

// An array of which every process gives the part that its own devices hold. Throws Error when the part has another
// shape than theirs.
Array make_array_from_process_local_data(const NamedSharding&, const Array& local, const Shape& global_shape);

// The other way: what the devices of this process hold, together; the array itself where that is all of it.
Array process_local_data(const Array&);

// What the devices of this process hold, together, of a dimension that the sharding's first entry cuts.
Range process_range(const NamedSharding&, int64_t extent);

// A drawing of where an array of at most two dimensions lies; the second form prints it, coloured on a terminal.
std::string visualize_sharding(const Array&, const VisualizeOptions& = {});
void visualize_array_sharding(const Array&);

}  // namespace lockstep
