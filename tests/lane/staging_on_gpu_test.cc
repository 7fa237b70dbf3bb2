// Copies between a GPU and memory of the host's that is not pinned (lane/cuda/staging.h).
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "base/file.h"
#include "lane/cuda/cuda_lane.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kSlot = 512 << 10;  // as of the staging

class StagingOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }
};

Bytes noise(int64_t size, uint32_t seed) {
  std::mt19937 bits(seed);
  Bytes out(static_cast<size_t>(size));
  for (uint8_t& each : out) each = static_cast<uint8_t>(bits());
  return out;
}

BufferPtr sent(CudaLane& lane, const Bytes& bytes) {
  BufferPtr there = lane.allocate(static_cast<int64_t>(bytes.size()));
  lane.to_device(there->data(), bytes.data(), there->size());
  return there;
}

Bytes received(CudaLane& lane, const Buffer& there) {
  Bytes out(static_cast<size_t>(there.size()));
  lane.to_host(out.data(), there.data(), there.size());
  return out;
}

TEST_F(StagingOnGpu, BytesComeAndGo) {
  CudaLane& lane = CudaLane::local();
  // Little, a slot more or less, and more than all slots.
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{8192}, int64_t{8193}, int64_t{100352}, kSlot - 1, kSlot,
                             kSlot + 1, 4 * kSlot, 4 * kSlot + 3, 8 * kSlot + 1, 19 * kSlot + 5}) {
    const Bytes bytes = noise(size, static_cast<uint32_t>(size));
    EXPECT_TRUE(received(lane, *sent(lane, bytes)) == bytes) << size;
  }
}

TEST_F(StagingOnGpu, MemoryOfTheHostMayBeUsedAgainAtOnce) {
  CudaLane& lane = CudaLane::local();
  Bytes bytes;
  std::vector<BufferPtr> there;
  for (uint32_t i = 0; i < 40; ++i) {
    bytes = noise(100000 + i, i);
    there.push_back(sent(lane, bytes));
    std::fill(bytes.begin(), bytes.end(), 0);
  }
  for (uint32_t i = 0; i < 40; ++i) EXPECT_TRUE(received(lane, *there[i]) == noise(100000 + i, i)) << i;
}

// What was queued before reads what was there before, and what is queued after it what has come.
TEST_F(StagingOnGpu, CopiesAreInTheOrderOfWhatIsQueued) {
  CudaLane& lane = CudaLane::local();
  const int64_t size = 3 * kSlot + 7;
  const BufferPtr there = lane.allocate(size), before = lane.allocate(size), after = lane.allocate(size);
  for (uint32_t i = 0; i < 10; ++i) {
    lane.to_device(there->data(), noise(size, 2 * i).data(), size);
    lane.copy(before->data(), there->data(), size);
    lane.to_device(there->data(), noise(size, 2 * i + 1).data(), size);
    lane.copy(after->data(), there->data(), size);
    lane.clear(there->data(), size);
    EXPECT_TRUE(received(lane, *before) == noise(size, 2 * i)) << i;
    EXPECT_TRUE(received(lane, *after) == noise(size, 2 * i + 1)) << i;
    EXPECT_TRUE(received(lane, *there) == Bytes(static_cast<size_t>(size), 0)) << i;
  }
}

TEST_F(StagingOnGpu, SeveralThreadsCopy) {
  CudaLane& lane = CudaLane::local();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&lane, t] {
      for (uint32_t i = 0; i < 12; ++i) {
        const Bytes bytes = noise(i % 3 == 0 ? 100 : kSlot * (1 + i % 5) + t, 100 * t + i);
        EXPECT_TRUE(received(lane, *sent(lane, bytes)) == bytes) << t << " " << i;
      }
    });
  for (std::thread& each : threads) each.join();
}

// Copies to the GPU are nobody's wait: what is computed with them may be recorded.
TEST_F(StagingOnGpu, OnlyWhatComesBackIsWaitedFor) {
  CudaLane& lane = CudaLane::local();
  const int64_t begin = CudaLane::waits();
  const BufferPtr there = sent(lane, noise(20 * kSlot, 1));
  EXPECT_EQ(CudaLane::waits(), begin);
  received(lane, *there);
  EXPECT_EQ(CudaLane::waits(), begin + 1);
}

// In a process of its own, which waits for no GPU any more afterwards. `copy` is given a lane and memory on it.
void ends_by_deadline(const std::function<void(CudaLane&, Buffer&)>& copy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const TempDir folder;
        const std::string sign = folder.path() + "/hangs";
        ::setenv("LOCKSTEP_EMULATED_HANGS_WITH", sign.c_str(), 1);
        ::setenv("LOCKSTEP_GPU_TIMEOUT", "0.2", 1);
        CudaLane& lane = CudaLane::local();
        const BufferPtr there = sent(lane, Bytes(20 * kSlot));
        FileSystem::real().write(sign, Bytes());
        try {
          copy(lane, *there);
        } catch (const DeviceLost& error) {
          std::fputs(error.what(), stderr);
          std::filesystem::remove_all(folder.path());
          std::_Exit(3);
        }
        std::_Exit(4);
      },
      testing::ExitedWithCode(3), "has not done within 0.2 s what it was given");
}

TEST_F(StagingOnGpu, GpuThatHangsIsNotWaitedForForEver) {
  // No lane is made here: what the environment says is read then.
  const std::vector<Gpu> gpus = report_first_gpu().gpus;
  if (gpus.empty() || gpus[0].name != "emulated GPU") GTEST_SKIP() << "the GPU is a real one";
  ends_by_deadline([](CudaLane& lane, Buffer& there) { received(lane, there); });
  ends_by_deadline([](CudaLane& lane, Buffer& there) {
    const Bytes bytes(static_cast<size_t>(there.size()));
    lane.to_device(there.data(), bytes.data(), there.size());
  });
}

}  // namespace
}  // namespace lockstep
#endif
