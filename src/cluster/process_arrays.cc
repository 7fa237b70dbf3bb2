// The functions of distributed.h that communicate arrays: broadcast_one_to_all, process_allgather, assert_equal.
#include <cstring>
#include <numeric>

#include "array/node.h"
#include "base/check.h"
#include "base/hash.h"
#include "comm/world.h"
#include "lockstep/distributed.h"
#include "lockstep/jit.h"
#include "plan/lanes.h"

namespace lockstep::distributed {
namespace {

using detail::buffer_of;

// Calls f with a Comm whose ranks are the processes. No compiled function runs meanwhile.
template <class F>
void with_process_group(F f) {
  World& world = World::current();
  const std::lock_guard lock(Lanes::current().run_mutex());
  std::vector<int> first_lanes;
  for (int p = 0; p < world.process_count(); ++p) first_lanes.push_back(static_cast<int>(p * world.local_lanes()));
  try {
    f(world.group(0, first_lanes, "processes"));
  } catch (const std::exception& error) {
    world.abort(error.what(), true);
    world.throw_cause(error);
    throw;
  }
}

Array gathered(const Array& value, const Shape& shape) {
  const BufferPtr& own = buffer_of(value, "process_allgather");
  const Type type{value.dtype(), shape};
  BufferPtr all = allocate(type.bytes());
  with_process_group([&](Comm& comm) {
    const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), value.size());
    comm.all_gather(own->data(), all->data(), counts, value.dtype());
  });
  return detail::concrete(detail::intern(type), std::move(all));
}

bool spans_processes(const Array& value) {
  return !value.is_traced() && value.node()->pieces.divided && value.node()->pieces.divided->across_processes;
}

}  // namespace

Array broadcast_one_to_all(const Operand& value) {
  if (process_count() == 1) return value;
  const BufferPtr& own = buffer_of(value, "broadcast_one_to_all");
  BufferPtr copy = allocate(own->size());
  if (own->size() > 0) std::memcpy(copy->data(), own->data(), static_cast<size_t>(own->size()));
  with_process_group([&](Comm& comm) { comm.broadcast(copy->data(), value.size(), value.dtype(), 0); });
  return detail::concrete(value.node()->type, std::move(copy));
}

Array process_allgather(const Operand& value, bool tiled) {
  if (spans_processes(value)) {
    const NamedSharding whole(value.sharding().mesh(), P());
    return jit([](const Array& x) { return x; }, {.out_shardings = {whole}})(value);
  }
  Shape shape = value.shape();
  if (!tiled)
    shape.insert(shape.begin(), process_count());
  else if (shape.empty())
    throw_error("process_allgather: cannot concatenate scalars; call it with tiled = false");
  else
    shape[0] *= process_count();
  return gathered(value, shape);
}

void assert_equal(const Operand& value, const std::string& what) {
  if (process_count() == 1) return;
  const BufferPtr& own = buffer_of(value, "assert_equal");
  // The type is part of the hash, so that processes with different types still run the same collective.
  Hasher hasher;
  hasher.add(std::string_view(to_string(value.type())));
  hasher.add(std::string_view(reinterpret_cast<const char*>(own->data()), static_cast<size_t>(own->size())));
  const auto hash = static_cast<int64_t>(hasher.value());
  std::vector<int64_t> hashes(static_cast<size_t>(process_count()));
  with_process_group([&](Comm& comm) {
    const std::vector<int64_t> counts(hashes.size(), 1);
    comm.all_gather(&hash, hashes.data(), counts, DType::i64);
  });
  for (size_t p = 1; p < hashes.size(); ++p)
    if (hashes[p] != hashes[0])
      throw_error("assert_equal: {} of process {} differs from that of process 0; process {} has {}", what, p,
                  process_index(), value.to_string());
}

}  // namespace lockstep::distributed
