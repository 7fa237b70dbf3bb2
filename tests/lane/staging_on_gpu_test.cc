// Copies between a GPU and pageable host memory (lane/cuda/staging.h).
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "base/file.h"
#include "lane/cuda/cuda_stream.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kSlot = 512 << 10;  // as in staging.cc

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

BufferPtr upload(CudaStream& lane, const Bytes& bytes) {
  BufferPtr device = lane.allocate(static_cast<int64_t>(bytes.size()));
  lane.to_device(device->data(), bytes.data(), device->size());
  return device;
}

Bytes download(CudaStream& lane, const Buffer& device) {
  Bytes out(static_cast<size_t>(device.size()));
  lane.to_host(out.data(), device.data(), device.size());
  return out;
}

TEST_F(StagingOnGpu, BytesSurviveARoundTrip) {
  CudaStream& lane = CudaStream::local();
  // Inline copies, about one slot, and more than all slots.
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{8192}, int64_t{8193}, int64_t{100352}, kSlot - 1, kSlot,
                             kSlot + 1, 4 * kSlot, 4 * kSlot + 3, 8 * kSlot + 1, 19 * kSlot + 5}) {
    const Bytes bytes = noise(size, static_cast<uint32_t>(size));
    EXPECT_TRUE(download(lane, *upload(lane, bytes)) == bytes) << size;
  }
}

TEST_F(StagingOnGpu, HostMemoryCanBeReusedImmediately) {
  CudaStream& lane = CudaStream::local();
  Bytes bytes;
  std::vector<BufferPtr> device;
  for (uint32_t i = 0; i < 40; ++i) {
    bytes = noise(100000 + i, i);
    device.push_back(upload(lane, bytes));
    std::fill(bytes.begin(), bytes.end(), 0);
  }
  for (uint32_t i = 0; i < 40; ++i) EXPECT_TRUE(download(lane, *device[i]) == noise(100000 + i, i)) << i;
}

// Work enqueued before an upload reads the old bytes, work enqueued after it the new ones.
TEST_F(StagingOnGpu, CopiesRunInStreamOrder) {
  CudaStream& lane = CudaStream::local();
  const int64_t size = 3 * kSlot + 7;
  const BufferPtr device = lane.allocate(size), before = lane.allocate(size), after = lane.allocate(size);
  for (uint32_t i = 0; i < 10; ++i) {
    lane.to_device(device->data(), noise(size, 2 * i).data(), size);
    lane.copy(before->data(), device->data(), size);
    lane.to_device(device->data(), noise(size, 2 * i + 1).data(), size);
    lane.copy(after->data(), device->data(), size);
    lane.clear(device->data(), size);
    EXPECT_TRUE(download(lane, *before) == noise(size, 2 * i)) << i;
    EXPECT_TRUE(download(lane, *after) == noise(size, 2 * i + 1)) << i;
    EXPECT_TRUE(download(lane, *device) == Bytes(static_cast<size_t>(size), 0)) << i;
  }
}

TEST_F(StagingOnGpu, IsSafeFromSeveralThreads) {
  CudaStream& lane = CudaStream::local();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&lane, t] {
      for (uint32_t i = 0; i < 12; ++i) {
        const Bytes bytes = noise(i % 3 == 0 ? 100 : kSlot * (1 + i % 5) + t, 100 * t + i);
        EXPECT_TRUE(download(lane, *upload(lane, bytes)) == bytes) << t << " " << i;
      }
    });
  for (std::thread& each : threads) each.join();
}

// Uploads do not count as waits, so programs that use them can be captured.
TEST_F(StagingOnGpu, OnlyDownloadsCountAsWaits) {
  CudaStream& lane = CudaStream::local();
  const int64_t begin = CudaStream::wait_count();
  const BufferPtr device = upload(lane, noise(20 * kSlot, 1));
  EXPECT_EQ(CudaStream::wait_count(), begin);
  download(lane, *device);
  EXPECT_EQ(CudaStream::wait_count(), begin + 1);
}

// Expects that copy(lane, device_memory) times out on a GPU that hangs. Runs in a child process, which cannot use a GPU
// afterwards.
void expect_timeout(const std::function<void(CudaStream&, Buffer&)>& copy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const TempDir folder;
        const std::string sign = folder.path() + "/hangs";
        ::setenv("LOCKSTEP_EMULATED_HANGS_WITH", sign.c_str(), 1);
        ::setenv("LOCKSTEP_GPU_TIMEOUT", "0.2", 1);
        CudaStream& lane = CudaStream::local();
        const BufferPtr device = upload(lane, Bytes(20 * kSlot));
        FileSystem::real().write(sign, Bytes());
        try {
          copy(lane, *device);
        } catch (const DeviceLost& error) {
          std::fputs(error.what(), stderr);
          std::filesystem::remove_all(folder.path());
          std::_Exit(3);
        }
        std::_Exit(4);
      },
      testing::ExitedWithCode(3), "has not finished its work within 0.2 s");
}

TEST_F(StagingOnGpu, HangingGpuTimesOut) {
  // Makes no lane: that would read the environment, which the child process changes.
  const std::vector<Gpu> gpus = report_first_gpu().gpus;
  if (gpus.empty() || gpus[0].name != "emulated GPU") GTEST_SKIP() << "the GPU is a real one";
  expect_timeout([](CudaStream& lane, Buffer& device) { download(lane, device); });
  expect_timeout([](CudaStream& lane, Buffer& device) {
    const Bytes bytes(static_cast<size_t>(device.size()));
    lane.to_device(device.data(), bytes.data(), device.size());
  });
}

}  // namespace
}  // namespace lockstep
#endif
