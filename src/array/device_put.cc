#include "lockstep/device_put.h"

#include <unistd.h>

#include <cstdio>

#include "array/node.h"
#include "base/check.h"

namespace lockstep {
namespace detail {

NamedSharding known_sharding(const Array& array) { return array.defined() ? array.node()->sharding : NamedSharding(); }

Array with_sharding(const Array& array, const NamedSharding& sharding) {
  if (!sharding.defined()) throw_error("device_put: the sharding is empty; create it with NamedSharding(mesh, spec)");
  sharding.index_box(array.type().shape, 0);  // throws when the spec is longer than the rank
  if (array.is_traced()) {
    Array out = traced(array.type(), array.node()->trace, array.node()->value);
    out.node()->sharding = sharding;
    return out;
  }
  return with_new_sharding(array, sharding);
}

Arrays constrained_each(const FlatTrees& tree, const PerLeaf<NamedSharding>& shardings, const char* what,
                        const SourceLine& at) {
  const std::vector<NamedSharding> each = shardings.for_arrays(tree.paths, what);
  Arrays out;
  for (size_t i = 0; i < each.size(); ++i) out.push_back(constrained(tree.arrays[i], each[i], what, at));
  return out;
}

}  // namespace detail

std::string visualize_sharding(const Operand& x, const VisualizeOptions& options) {
  return visualize_sharding(x.sharding(), x.shape(), options);
}

void visualize_array_sharding(const Operand& x) {
  std::fputs(visualize_sharding(x, {.color = isatty(STDOUT_FILENO) == 1}).c_str(), stdout);
}

}  // namespace lockstep
