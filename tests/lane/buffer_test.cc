#include "lane/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "lane/memory.h"
#include "lockstep/error.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

TEST(Buffer, IsAlignedWritableAndOfTheRequestedSize) {
  Allocator allocator;
  for (const int64_t bytes : {0, 1, 63, 64, 65, 100, 1000, 4097, 1 << 20, (2 << 20) + 1, 9 << 20}) {
    const BufferPtr buffer = allocator.allocate(bytes);
    EXPECT_EQ(buffer->size(), bytes);
    const uintptr_t alignment = bytes >= (2 << 20) ? 2 << 20 : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0u);
    std::memset(buffer->data(), 7, static_cast<size_t>(bytes));
    const AllocatorStats stats = allocator.stats();
    EXPECT_GE(stats.in_use, bytes);
    EXPECT_LE(stats.in_use, bytes + bytes / 8 + 64);
  }
  EXPECT_EQ(allocator.stats().in_use, 0);
}

TEST(Buffer, IsFreedWithItsLastReference) {
  Allocator allocator;
  BufferPtr first = allocator.allocate(1000);
  EXPECT_TRUE(first->unique());
  BufferPtr second = first;
  EXPECT_FALSE(first->unique());
  EXPECT_EQ(first, second);
  first.reset();
  EXPECT_FALSE(first);
  EXPECT_TRUE(second->unique());
  EXPECT_GT(allocator.stats().in_use, 0);
  second = allocator.allocate(10);
  EXPECT_EQ(allocator.stats().in_use, 64);
  second = nullptr;
  EXPECT_EQ(allocator.stats().in_use, 0);
}

TEST(Allocator, SteadyStateMakesNoSystemCalls) {
  if (kAddressSanitizer) GTEST_SKIP() << "nothing is cached under AddressSanitizer";
  Allocator allocator;
  const auto step = [&] {
    const BufferPtr a = allocator.allocate(5000), b = allocator.allocate(5000), c = allocator.allocate(3 << 20);
    return a->data();
  };
  step();
  const int64_t calls = allocator.stats().system_calls;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(allocator.stats().system_calls, calls);
  EXPECT_EQ(allocator.stats().system_calls, 3);
  EXPECT_GT(allocator.stats().cached, 3 << 20);
  allocator.trim();
  EXPECT_EQ(allocator.stats().cached, 0);
}

TEST(Allocator, CachesAtMostItsLimitOrTheBytesInUse) {
  Allocator allocator({.cache = 1 << 20});
  std::vector<BufferPtr> buffers;
  for (int i = 0; i < 16; ++i) buffers.push_back(allocator.allocate(512 << 10));
  EXPECT_EQ(allocator.stats().peak, 8 << 20);
  while (!buffers.empty()) {
    buffers.pop_back();
    const AllocatorStats stats = allocator.stats();
    EXPECT_LE(stats.cached, std::max<int64_t>(1 << 20, stats.in_use));
  }
  EXPECT_EQ(allocator.stats().cached, kAddressSanitizer ? 0 : 1 << 20);
}

TEST(Allocator, ThrowsOutOfMemoryAboveTheLimit) {
  Allocator allocator({.limit = 1 << 20});
  const BufferPtr held = allocator.allocate(600 << 10);
  try {
    allocator.allocate(600 << 10);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "allocate: 614400 bytes requested, 655360 in use, limit 1048576; use smaller arrays "
                 "or a smaller batch, or shard them over more processes");
  }
  EXPECT_EQ(allocator.stats().in_use, 640 << 10);
  EXPECT_THROW(allocate(machine_memory() + 1), OutOfMemory);
  EXPECT_THROW(allocate(int64_t{1} << 61), OutOfMemory);
}

TEST(Allocator, FreesItsCacheBeforeItThrows) {
  Allocator allocator({.limit = 1 << 20});
  allocator.allocate(512 << 10).reset();
  const BufferPtr large = allocator.allocate(1 << 20);
  EXPECT_EQ(allocator.stats().cached, 0);
}

TEST(Allocator, IsSafeFromSeveralThreads) {
  Allocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const BufferPtr buffer = allocator.allocate(64 + (i * 37 + t) % 4000);
        const BufferPtr copy = buffer;
        buffer->as<int>()[0] = t;
        ASSERT_EQ(copy->as<int>()[0], t);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().in_use, 0);
}

}  // namespace
}  // namespace lockstep
