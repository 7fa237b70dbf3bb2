#include "plan/lanes.h"

#include <algorithm>

#include "base/check.h"
#include "base/runtime_parts.h"
#include "lane/cpus.h"
#include "lockstep/devices.h"
#include "plan/cpu_lane.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "plan/cuda/cuda_lane.h"
#endif

namespace lockstep {
namespace {

std::unique_ptr<Lane> make_default_lane([[maybe_unused]] int64_t index, Pool& pool) {
#ifdef LOCKSTEP_WITH_CUDA
  if (platform() == Platform::cuda) return std::make_unique<CudaLane>(CudaStream::of(index), pool);
#endif
  return std::make_unique<CpuLane>(pool);
}

}  // namespace

Lanes& Lanes::current() { return detail::runtime_part<Lanes>(); }

Lanes::Lanes(int64_t count, MakeLane make)
    : make_(make ? std::move(make) : make_default_lane), lanes_(static_cast<size_t>(count)), threads_(count) {
  if (count == 1) return;
  const int64_t cpus = compute_threads();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t threads = cpus / count + (i < cpus % count ? 1 : 0);
    lanes_[static_cast<size_t>(i)].pool =
        std::make_unique<Pool>(PoolConfig{.threads = static_cast<int>(std::max<int64_t>(threads, 1))});
  }
}

Lane& Lanes::main() { return make(main_, 0); }

Lane& Lanes::lane(int64_t index) {
  LOCKSTEP_CHECK(index >= 0 && index < count(), "lane {} of {}", index, count());
  return count() == 1 ? main() : make(lanes_[static_cast<size_t>(index)], index);
}

Lane& Lanes::make(LazyLane& place, int64_t index) {
  if (Lane* const ready = place.lane.load(std::memory_order_acquire)) return *ready;
  const std::lock_guard lock(making_);
  if (!place.owned) {
    place.owned = make_(index, place.pool ? *place.pool : host_pool_);
    place.lane.store(place.owned.get(), std::memory_order_release);
  }
  return *place.owned;
}

}  // namespace lockstep
