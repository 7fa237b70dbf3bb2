// Reports and error messages about GPUs. Needs no GPU.
#include <gtest/gtest.h>

#include <thread>

#include "base/throws.h"
#include "hardware/gpu_launch.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "hardware/cuda/probe.h"
#include "lane/cuda/cuda_stream.h"
#endif

namespace lockstep {
namespace {

TEST(GpuLaunch, NamesTheOpAndTheLaunch) {
  std::string number;
  {
    GpuLaunch launch(3, "iota", "fused");
    const std::string text = GpuLaunch::where();
    number = text.substr(11, text.find(" (") - 11);
    EXPECT_EQ(text, " in launch " + number + " (3 ops, from iota to fused)");
    launch.set_current_op(1, "scan");
    EXPECT_EQ(GpuLaunch::where(), " in op 2 of 3, scan, of launch " + number);
    {
      GpuLaunch body(2, "add", "einsum");
      EXPECT_EQ(GpuLaunch::where(), " in op 2 of 3, scan, of launch " + number);
      body.set_current_op(0, "add");
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
  Gpu in_use = kGpu;
  in_use.free = -1;
  EXPECT_EQ(to_string(in_use),
            "NVIDIA H200, 140.0 GiB of memory, not usable now, compute capability 9.0, 132 multiprocessors");
  GpuReport report;
  report.built_in = report.seen = true;
  report.driver = "13.0";
  report.libraries = {{"cudart", "libcudart.so.13", ""},
                      {"nvrtc", "", "cuda: cannot load libnvrtc.so.13; install it"},
                      {"cudnn", "", "cuda: cannot load libcudnn.so.9; install it", "convolutions are slow"}};
  report.gpus = {kGpu};
  using Lines = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(report_lines(report), (Lines{{"driver", "supports CUDA 13.0"},
                                         {"libraries", "unknown"},
                                         {"  cudart", "libcudart.so.13"},
                                         {"  nvrtc", "cuda: cannot load libnvrtc.so.13; install it"},
                                         {"  cudnn", "missing: convolutions are slow"},
                                         {"GPU 0", to_string(kGpu)}}));
  report = {};
  report.why_not = "cuda: this lockstep was built without CUDA";
  EXPECT_EQ(report_lines(report), (Lines{{"GPUs", report.why_not}}));
}

TEST(GpuReport, LoadsNoLibrariesWithoutHardware) {
  if (nvidia_hardware_present()) GTEST_SKIP() << "the machine has NVIDIA hardware";
  const GpuReport report = report_gpus();
  EXPECT_FALSE(report.seen);
  EXPECT_TRUE(report.gpus.empty());
  EXPECT_TRUE(report.libraries.empty());
  EXPECT_NE(report.why_not, "");
}

#ifdef LOCKSTEP_WITH_CUDA

constexpr const char* kUseCpu = ", or use --platform cpu (LOCKSTEP_PLATFORM=cpu)";

// A machine with a usable GPU.
CudaFacts usable() {
  CudaFacts facts;
  facts.device_files = facts.driver_library = true;
  facts.count = 1;
  facts.driver = facts.runtime = 13000;
  return facts;
}

TEST(WhyNoGpu, IsEmptyIfOneIsUsable) { EXPECT_EQ(why_no_gpu(usable()), ""); }

TEST(WhyNoGpu, NoDriver) {
  EXPECT_EQ(why_no_gpu({}),
            std::string("cuda: no NVIDIA driver is running (/dev/nvidiactl does not exist); install it, or start the "
                        "container with GPUs (--gpus all, --nv)") +
                kUseCpu);
  CudaFacts facts = usable();
  facts.driver_library = false;
  EXPECT_EQ(why_no_gpu(facts), std::string("cuda: cannot load the driver's library libcuda.so.1; install the driver, "
                                           "or start the container with --gpus all or --nv") +
                                   kUseCpu);
  // Without any driver CUDA reports that it is too old.
  facts = usable();
  facts.error = cudaErrorInsufficientDriver;
  facts.count = facts.driver = 0;
  EXPECT_EQ(why_no_gpu(facts),
            std::string("cuda: no NVIDIA driver is running; install it, or check nvidia-smi") + kUseCpu);
}

TEST(WhyNoGpu, DriverTooOld) {
  CudaFacts facts = usable();
  facts.error = cudaErrorInsufficientDriver;
  facts.count = 0;
  facts.driver = 12040;
  EXPECT_EQ(
      why_no_gpu(facts),
      std::string("cuda: the driver supports CUDA 12.4, but the libraries are CUDA 13.0; install a newer driver") +
          kUseCpu);
}

TEST(WhyNoGpu, NoneVisible) {
  CudaFacts facts = usable();
  facts.error = cudaErrorNoDevice;
  facts.error_text = "no CUDA-capable device is detected";
  facts.count = 0;
  EXPECT_EQ(why_no_gpu(facts),
            std::string("cuda: no GPU is usable: no CUDA-capable device is detected; check nvidia-smi") + kUseCpu);
  facts.visible = "";
  EXPECT_EQ(why_no_gpu(facts), std::string("cuda: no GPU is visible: CUDA_VISIBLE_DEVICES is \"\"; set it to the "
                                           "numbers of the GPUs to use, such as 0, or unset it") +
                                   kUseCpu);
}

TEST(WhyNoGpu, LibraryMissing) {
  CudaFacts facts = usable();
  facts.runtime_failure = "cuda: cannot load libcudart.so.13; install it";
  EXPECT_EQ(why_no_gpu(facts), facts.runtime_failure);
}

TEST(GpuMemory, OutOfMemoryNamesTheRequestAndTheFreeMemory) {
  EXPECT_EQ(gpu_out_of_memory_text(int64_t{3} << 29, "an array", int64_t{1} << 30, int64_t{140} << 30,
                                   int64_t{120} << 30, "NVIDIA H200"),
            "cuda: 1.50 GiB requested for an array, but 1.00 GiB of the 140.00 GiB of NVIDIA H200 are free; this "
            "process holds "
            "120.00 GiB; use a smaller batch, or see with nvidia-smi which processes use the rest");
}

class CudaFailure : public testing::Test {
  void SetUp() override {
    if (!cuda_load_failure().empty()) GTEST_SKIP() << cuda_load_failure();
  }
};

TEST_F(CudaFailure, LostGpuNamesTheOpAndAdvisesARestart) {
  GpuLaunch launch(2, "einsum", "fused");
  launch.set_current_op(0, "einsum");
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorDevicesUnavailable, cudaErrorLaunchFailure, cudaErrorNvlinkUncorrectable,
        cudaErrorHardwareStackError, cudaErrorNoDevice, cudaErrorUnknown})
    EXPECT_THROWS(
        check_cuda(error, "wait for the GPU"), DeviceLost,
        std::string("(") + cuda().cudaGetErrorName(error) +
            "); this process can no longer use the GPU: restart to resume from the last checkpoint, and check "
            "nvidia-smi and the kernel log (Xid)");
  EXPECT_THROWS(check_cuda(cudaErrorECCUncorrectable, "wait for the GPU"), DeviceLost,
                "cuda: wait for the GPU in op 1 of 2, einsum, of launch ");
}

TEST_F(CudaFailure, KernelFaultIsABug) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorIllegalInstruction})
    EXPECT_THROWS(check_cuda(error, "start a kernel"), Error,
                  "; this is a bug in lockstep: please report it with the message under CUDA_LAUNCH_BLOCKING=1");
}

TEST_F(CudaFailure, FailedAllocationIsOutOfMemory) {
  EXPECT_THROWS(check_cuda(cudaErrorMemoryAllocation, "load a kernel"), OutOfMemory, "; use a smaller batch");
}

TEST_F(CudaFailure, OtherFailureIsAnError) {
  EXPECT_THROWS(check_cuda(cudaErrorInvalidValue, "copy to the GPU"), Error, "(cudaErrorInvalidValue)");
  check_cuda(cudaSuccess, "nothing");
}

#endif

}  // namespace
}  // namespace lockstep
