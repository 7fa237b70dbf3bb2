// Placing arrays on devices, and looking at where they lie.
//
//   Array x = device_put(images, NamedSharding(mesh, P("data")));
//   for (const Shard& s : addressable_shards(x)) std::cout << to_string(s.device) << ' ' << s.data << '\n';
//
// The devices of one process share its memory, so placing copies nothing.
#pragma once

#include "lockstep/trace.h"
#include "lockstep/tree.h"
#include "lockstep/visualize.h"

namespace lockstep {

// The tree with every array laid out like this. Throws Error when a spec does not fit an array.
template <class T>
T device_put(const T& tree, const NamedSharding& sharding) {
  return tree_map([&](const Array& a) { return detail::with_sharding(a, sharding); }, tree);
}

// The same inside a function being traced: what its values, or results, should lie like.
template <class T>
T with_sharding_constraint(const T& tree, const NamedSharding& sharding) {
  return device_put(tree, sharding);
}

// One device's piece of an array.
struct Shard {
  Device device;
  IndexBox index;
  Array data;  // a view of the array's memory where the piece is one stretch of it, else a copy
};
// The pieces of the devices of this process, in mesh order.
std::vector<Shard> addressable_shards(const Array&);

// A drawing of where an array of at most two dimensions lies; the second form prints it, coloured on a terminal.
std::string visualize_sharding(const Array&, const VisualizeOptions& = {});
void visualize_array_sharding(const Array&);

}  // namespace lockstep
