#include "lockstep/device_put.h"

#include <unistd.h>

#include <cstdio>

#include "array/node.h"
#include "base/check.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace detail {

NamedSharding known_sharding(const Array& array) { return array.defined() ? array.node()->sharding : NamedSharding(); }

Array with_sharding(const Array& array, const NamedSharding& sharding) {
  if (!sharding.defined()) throw_error("device_put: the sharding is empty; make it from a mesh and a spec");
  sharding.index_box(array.type().shape, 0);  // throws when the spec is longer than the rank
  if (array.is_traced()) {
    Array out = traced(array.type(), array.node()->trace, array.node()->value);
    out.node()->sharding = sharding;
    return out;
  }
  return relabelled(array, sharding);
}

void check_in_shardings(size_t shardings, size_t arguments) {
  if (shardings > arguments)
    throw_error("jit: in_shardings has {} entries for {} arguments; give at most one per argument", shardings,
                arguments);
}

void check_out_shardings(size_t shardings, size_t elements) {
  if (shardings != elements)
    throw_error(
        "jit: out_shardings has {} entries for a result of {} elements; give one for the whole result or one per "
        "element",
        shardings, elements);
}

}  // namespace detail

std::vector<Shard> addressable_shards(const Array& x) {
  const BufferPtr& buffer = detail::buffer_of(x, "addressable_shards");
  std::vector<Shard> out;
  for (const DeviceIndices& piece : x.sharding().addressable_indices_map(x.shape())) {
    Type type = x.type();
    std::vector<int64_t> starts, limits;
    for (size_t d = 0; d < type.shape.size(); ++d) {
      type.shape[d] = piece.box[d].size();
      starts.push_back(piece.box[d].begin);
      limits.push_back(piece.box[d].end);
    }
    const int64_t begin = detail::stretch(x.shape(), piece.box);
    if (begin < 0 || type.bytes() == 0) {
      out.push_back({piece.device, piece.box, slice(x, starts, limits)});
      continue;
    }
    auto* owner = new BufferPtr(buffer);
    out.push_back({piece.device, piece.box,
                   detail::adopt_bytes(buffer->data() + begin * size_of(type.dtype), type, owner,
                                       [](void* held) { delete static_cast<BufferPtr*>(held); })});
  }
  return out;
}

std::string visualize_sharding(const Array& x, const VisualizeOptions& options) {
  return visualize_sharding(x.sharding(), x.shape(), options);
}

void visualize_array_sharding(const Array& x) {
  std::fputs(visualize_sharding(x, {.color = isatty(STDOUT_FILENO) == 1}).c_str(), stdout);
}

}  // namespace lockstep
