// What is said of GPUs, where there need be none.
#include <gtest/gtest.h>

#include <thread>

#include "base/throws.h"
#include "lane/gpu_launch.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/cuda_lane.h"
#include "lane/cuda/probe.h"
#endif

namespace lockstep {
namespace {

TEST(GpuLaunch, NamesTheOpAndTheLaunch) {
  std::string number;
  {
    GpuLaunch launch(3, "iota", "fused");
    const std::string whole = GpuLaunch::where();
    number = whole.substr(11, whole.find(" (") - 11);
    EXPECT_EQ(whole, " in launch " + number + " (3 ops, from iota to fused)");
    launch.at(1, "scan");
    EXPECT_EQ(GpuLaunch::where(), " in op 2 of 3, scan, of launch " + number);
    {
      GpuLaunch body(2, "add", "einsum");
      EXPECT_EQ(GpuLaunch::where(), " in op 2 of 3, scan, of launch " + number);
      body.at(0, "add");
      EXPECT_EQ(GpuLaunch::where(), " in op 1 of 2, add, of op 2 of 3, scan, of launch " + number);
    }
    EXPECT_EQ(GpuLaunch::where(), " in op 2 of 3, scan, of launch " + number);
    std::string elsewhere;
    std::thread([&] { elsewhere = GpuLaunch::where(); }).join();
    EXPECT_EQ(elsewhere, " after launch " + number + " (3 ops, from iota to fused)");
  }
  EXPECT_EQ(GpuLaunch::where(), " after launch " + number + " (3 ops, from iota to fused)");
  { const GpuLaunch next(1, "copy", "copy"); }
  EXPECT_EQ(GpuLaunch::where(), " after launch " + std::to_string(std::stoi(number) + 1) + " (of copy)");
}

const Gpu kGpu{"NVIDIA H200", int64_t{140} << 30, int64_t{70} << 30, 9, 0, 132};

TEST(GpuReport, HasALineForEveryGpuAndLibrary) {
  EXPECT_EQ(to_string(kGpu),
            "NVIDIA H200, 140.0 GiB of memory, 70.0 GiB free, compute capability 9.0, 132 multiprocessors");
  Gpu taken = kGpu;
  taken.free = -1;
  EXPECT_EQ(to_string(taken),
            "NVIDIA H200, 140.0 GiB of memory, not to be used now, compute capability 9.0, 132 multiprocessors");
  GpuReport report;
  report.built_in = report.seen = true;
  report.driver = "13.0";
  report.libraries = {{"cudart", "libcudart.so.13", ""},
                      {"nvrtc", "", "cuda: libnvrtc.so.13 is not there; install it"},
                      {"cudnn", "", "cuda: libcudnn.so.9 is not there; install it", "convolutions are slow"}};
  report.gpus = {kGpu};
  using Lines = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(lines_of(report), (Lines{{"driver", "for CUDA 13.0"},
                                     {"libraries", "of unknown"},
                                     {"  cudart", "libcudart.so.13"},
                                     {"  nvrtc", "cuda: libnvrtc.so.13 is not there; install it"},
                                     {"  cudnn", "not there: convolutions are slow"},
                                     {"GPU 0", to_string(kGpu)}}));
  report = {};
  report.why_not = "cuda: this lockstep was built without CUDA";
  EXPECT_EQ(lines_of(report), (Lines{{"GPUs", report.why_not}}));
}

TEST(GpuReport, OpensNothingWhereThereIsNoHardware) {
  if (gpu_seen()) GTEST_SKIP() << "there is NVIDIA hardware";
  const GpuReport report = report_gpus();
  EXPECT_FALSE(report.seen);
  EXPECT_TRUE(report.gpus.empty());
  EXPECT_TRUE(report.libraries.empty());
  EXPECT_NE(report.why_not, "");
}

#ifdef LOCKSTEP_WITH_CUDA

constexpr const char* kElse = ", or use --platform cpu (LOCKSTEP_PLATFORM=cpu)";

// A machine where all is well.
CudaFacts well() {
  CudaFacts facts;
  facts.device_files = facts.driver_library = true;
  facts.count = 1;
  facts.driver = facts.runtime = 13000;
  return facts;
}

TEST(WhyNoGpu, IsEmptyWhereThereIsOne) { EXPECT_EQ(why_no_gpu(well()), ""); }

TEST(WhyNoGpu, NoDriver) {
  EXPECT_EQ(why_no_gpu({}),
            std::string("cuda: no NVIDIA driver is running here (there is no /dev/nvidiactl); install it, or start the "
                        "container with its GPUs (--gpus all, --nv)") +
                kElse);
  CudaFacts facts = well();
  facts.driver_library = false;
  EXPECT_EQ(why_no_gpu(facts), std::string("cuda: the driver's library libcuda.so.1 is not there; install the driver, "
                                           "or start the container with --gpus all or --nv") +
                                   kElse);
  // CUDA calls no driver at all one that is too old.
  facts = well();
  facts.error = cudaErrorInsufficientDriver;
  facts.count = facts.driver = 0;
  EXPECT_EQ(why_no_gpu(facts),
            std::string("cuda: no NVIDIA driver is running here; install it, or see what nvidia-smi says") + kElse);
}

TEST(WhyNoGpu, DriverThatIsTooOld) {
  CudaFacts facts = well();
  facts.error = cudaErrorInsufficientDriver;
  facts.count = 0;
  facts.driver = 12040;
  EXPECT_EQ(
      why_no_gpu(facts),
      std::string("cuda: the driver is for CUDA 12.4 and the libraries are of 13.0; install a newer driver") + kElse);
}

TEST(WhyNoGpu, NoneVisible) {
  CudaFacts facts = well();
  facts.error = cudaErrorNoDevice;
  facts.error_text = "no CUDA-capable device is detected";
  facts.count = 0;
  EXPECT_EQ(
      why_no_gpu(facts),
      std::string("cuda: no GPU can be used: no CUDA-capable device is detected; see what nvidia-smi says") + kElse);
  facts.visible = "";
  EXPECT_EQ(why_no_gpu(facts), std::string("cuda: no GPU is visible: CUDA_VISIBLE_DEVICES is \"\"; set it to the "
                                           "numbers of those to use, such as 0, or unset it") +
                                   kElse);
}

TEST(WhyNoGpu, LibraryThatIsMissing) {
  CudaFacts facts = well();
  facts.runtime_failure = "cuda: libcudart.so.13 is not there; install it";
  EXPECT_EQ(why_no_gpu(facts), facts.runtime_failure);
}

TEST(GpuMemory, ThatIsShortSaysWhatWasAskedForAndWhatThereIs) {
  EXPECT_EQ(
      gpu_memory_text(int64_t{3} << 29, "an array", int64_t{1} << 30, int64_t{140} << 30, int64_t{120} << 30,
                      "NVIDIA H200"),
      "cuda: 1.50 GiB are asked for, for an array, and 1.00 GiB of the 140.00 GiB of NVIDIA H200 are free; arrays "
      "and programs of this process hold 120.00 GiB: use a smaller batch, or see with nvidia-smi who has the rest");
}

class CudaFailure : public testing::Test {
  void SetUp() override {
    if (!cuda_failure().empty()) GTEST_SKIP() << cuda_failure();
  }
};

TEST_F(CudaFailure, OfAGpuThatIsOutOfOrderNamesTheOpAndAsksForAnotherStart) {
  GpuLaunch launch(2, "einsum", "fused");
  launch.at(0, "einsum");
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorDevicesUnavailable, cudaErrorLaunchFailure, cudaErrorNvlinkUncorrectable,
        cudaErrorHardwareStackError, cudaErrorNoDevice, cudaErrorUnknown})
    EXPECT_THROWS(check_cuda(error, "wait for the GPU"), DeviceLost,
                  std::string("(") + cuda().cudaGetErrorName(error) +
                      "); the GPU can compute no more for this process: start again, which goes on from the last "
                      "checkpoint, and see what nvidia-smi and the kernel's log (Xid) say of it");
  EXPECT_THROWS(check_cuda(cudaErrorECCUncorrectable, "wait for the GPU"), DeviceLost,
                "cuda: wait for the GPU in op 1 of 2, einsum, of launch ");
}

TEST_F(CudaFailure, OfAKernelIsADefect) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorIllegalInstruction})
    EXPECT_THROWS(check_cuda(error, "start a kernel"), Error,
                  "; this is a defect of lockstep: please report it, with what it says under CUDA_LAUNCH_BLOCKING=1");
}

TEST_F(CudaFailure, OfMemoryIsOutOfMemory) {
  EXPECT_THROWS(check_cuda(cudaErrorMemoryAllocation, "load a kernel"), OutOfMemory, "; use a smaller batch");
}

TEST_F(CudaFailure, OfAnotherKindIsAnError) {
  EXPECT_THROWS(check_cuda(cudaErrorInvalidValue, "copy to the GPU"), Error, "(cudaErrorInvalidValue)");
  check_cuda(cudaSuccess, "nothing");
}

#endif

}  // namespace
}  // namespace lockstep
