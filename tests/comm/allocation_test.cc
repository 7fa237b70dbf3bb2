// Counts the heap allocations of this program: operations allocate nothing after a warm-up.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "comm/in_process.h"
#include "comm/recorder.h"
#include "comm/shared_memory_ranks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_SANITIZED
#endif
#endif

#ifndef LOCKSTEP_SANITIZED

namespace {
std::atomic<int64_t> allocations{0};

void* counted(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes ? bytes : 1) != 0) throw std::bad_alloc();
  return memory;
}
}  // namespace

// The array and nothrow forms call these.
void* operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lockstep {
namespace {

TEST(InProcessComm, OperationsAllocateNothingAfterWarmup) {
  const auto comms = in_process_comms(2);
  constexpr size_t kInFlight = 20;
  const int64_t counts[2] = {3, 5};
  const Route routes[2] = {{0, 1}, {1, 0}};
  float in[2][8] = {}, out[2][kInFlight][8] = {};
  Work works[2][kInFlight];
  const auto round = [&] {
    for (size_t rank : {0, 1}) {
      Comm& comm = *comms[rank];
      const float* from = in[rank];
      for (size_t i = 0; i < kInFlight; ++i) {
        float* to = out[rank][i];
        works[rank][i] = i % 5 == 0   ? comm.start_all_reduce(from, to, 8, f32, Reduction::sum)
                         : i % 5 == 1 ? comm.start_reduce_scatter(from, to, counts, f32, Reduction::sum)
                         : i % 5 == 2 ? comm.start_all_gather(from, to, counts, f32)
                         : i % 5 == 3 ? comm.start_permute(from, to, 8, f32, routes)
                                      : comm.start_broadcast(to, 8, f32, 1);
      }
    }
    for (auto& of_rank : works)
      for (Work& work : of_rank) work.wait();
  };
  round();
  const int64_t before = allocations;
  EXPECT_GT(before, 0);
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(allocations, before);
}

TEST(SharedMemoryComm, OperationsAllocateNothingAfterWarmup) {
  std::unique_ptr<Comm> comms[2];
  const std::string key = conformance::unique_key();
  std::thread other([&] { comms[1] = conformance::join_shared(1, 2, key); });
  comms[0] = conformance::join_shared(0, 2, key);
  other.join();
  const int64_t counts[2] = {3, 5};
  float in[2][8] = {}, out[2][2][8] = {};
  const auto round = [&] {
    Work works[2][2];
    for (size_t rank : {0, 1}) {
      works[rank][0] = comms[rank]->start_all_reduce(in[rank], out[rank][0], 8, f32, Reduction::sum);
      works[rank][1] = comms[rank]->start_all_gather(in[rank], out[rank][1], counts, f32);
    }
    for (auto& of_rank : works)
      for (Work& work : of_rank) work.wait();
  };
  round();
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(allocations, before);
}

TEST(FlightRecorder, RecordingAllocatesNothing) {
  const auto comms = in_process_comms(2);
  FlightRecorder recorder(0, 2);
  for (size_t rank : {0, 1}) comms[rank]->record_to(*recorder.lanes()[rank]);
  float values[2][8] = {};
  const auto round = [&] {
    Work works[2];
    for (size_t rank : {0, 1})
      works[rank] = comms[rank]->start_all_reduce(values[rank], values[rank], 8, f32, Reduction::sum);
    for (Work& work : works) work.wait();
  };
  round();
  const int64_t before = allocations;
  for (int i = 0; i < 2000; ++i) round();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(recorder.lanes()[1]->groups()[0]->next(), 2002);
}

}  // namespace
}  // namespace lockstep

#endif
