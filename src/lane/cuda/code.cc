#include "lane/cuda/code.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/runtime_settings.h"
#include "lane/memory.h"

namespace lockstep {
namespace {

std::vector<std::string> options_for(const std::string& architecture) {
  // No fused multiply-add: elementwise results then equal those of the CPU bit for bit.
  return {"--gpu-architecture=" + architecture, "--std=c++20", "--device-as-default-execution-space", "--fmad=false",
          "--diag-suppress=1097"};
}

std::string key_of(const std::string& source, const std::vector<CudaHeader>& headers, const std::string& architecture) {
  int major = 0, minor = 0;
  check_compiler(cuda_compiler().nvrtcVersion(&major, &minor), "query the compiler's version");
  std::string all = fmt::format("nvrtc {}.{}\n", major, minor);
  for (const std::string& option : options_for(architecture)) all += option + "\n";
  for (const CudaHeader& header : headers) all += std::string(header.name) + "\n" + header.text + "\n";
  all += source;
  return md5_hex(std::span(reinterpret_cast<const uint8_t*>(all.data()), all.size()));
}

std::vector<char> from_disk(const std::string& path) {
  try {
    FileSystem& files = FileSystem::real();
    if (!files.exists(path)) return {};
    std::vector<char> code(static_cast<size_t>(files.size(path)));
    const auto bytes = std::span(reinterpret_cast<uint8_t*>(code.data()), code.size());
    return files.read(path, 0, bytes) == code.size() ? code : std::vector<char>();
  } catch (const IoError&) {
    return {};
  }
}

void to_disk(const std::string& path, const std::vector<char>& code) {
  try {
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write_atomic(path, std::span(reinterpret_cast<const uint8_t*>(code.data()), code.size()));
  } catch (const IoError&) {  // the next run compiles again
  }
}

// Whether the compiler has the option --Ofast-compile.
bool has_quick_mode(const CudaCompiler& compiler) {
  int major = 0, minor = 0;
  check_compiler(compiler.nvrtcVersion(&major, &minor), "query the compiler's version");
  return major >= 13;
}

}  // namespace

std::string cuda_cache_folder() {
  const std::string root = detail::cache_root();
  return root.empty() ? "" : root + "/cuda";
}

std::vector<char> compile_cuda(const std::string& source, const std::vector<CudaHeader>& headers,
                               const std::string& architecture, CudaOptimization optimization) {
  const CudaCompiler& compiler = cuda_compiler();
  std::vector<const char*> texts, names, options;
  for (const CudaHeader& header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  std::vector<std::string> texts_of_options = options_for(architecture);
  if (optimization == CudaOptimization::least && has_quick_mode(compiler))
    texts_of_options.emplace_back("--Ofast-compile=max");
  for (const std::string& option : texts_of_options) options.push_back(option.c_str());
  nvrtcProgram program = nullptr;
  check_compiler(compiler.nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", static_cast<int>(texts.size()),
                                             texts.data(), names.data()),
                 "create a kernel program");
  const nvrtcResult result = compiler.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    compiler.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    compiler.nvrtcGetProgramLog(program, log.data());
    compiler.nvrtcDestroyProgram(&program);
    throw_error("cuda: a kernel does not compile, which is a bug in lockstep: {}\n{}\n{}",
                compiler.nvrtcGetErrorString(result), log, source);
  }
  size_t size = 0;
  check_compiler(compiler.nvrtcGetCUBINSize(program, &size), "query the size of a kernel");
  std::vector<char> code(size);
  check_compiler(compiler.nvrtcGetCUBIN(program, code.data()), "get a kernel's code");
  compiler.nvrtcDestroyProgram(&program);
  return code;
}

namespace {

// A source for an architecture, and the cache folder of its machine code; empty: not cached.
struct KernelSource {
  std::string text;
  std::vector<CudaHeader> headers;
  std::string architecture, folder;

  std::string path() const {
    return folder.empty() ? "" : fmt::format("{}/{}.cubin", folder, key_of(text, headers, architecture));
  }
  std::vector<char> compile_and_cache(const std::string& path) const {
    std::vector<char> code = compile_cuda(text, headers, architecture);
    if (!path.empty()) to_disk(path, code);
    return code;
  }
  // Returns the machine code: from the disk cache if possible, else compiled.
  std::vector<char> code() const {
    const std::string cached = path();
    std::vector<char> code;
    if (!cached.empty()) code = from_disk(cached);
    return code.empty() ? compile_and_cache(cached) : code;
  }
};

// The threads that compile in the background. Work that has not started when the process exits is dropped.
class CompilerThreads {
 public:
  static CompilerThreads& instance() {
    static auto* const threads = new CompilerThreads;
    static const int at_exit = std::atexit(stop_all);
    static_cast<void>(at_exit);
    return *threads;
  }

  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    waiting_.push_back(std::move(work));
    if (waiting_.size() > idle_ && threads_.size() < max_threads_) {
      try {
        threads_.emplace_back([this] { run(); });
      } catch (const std::system_error&) {  // the thread that needs the kernel compiles it
      }
    }
    more_.notify_one();
  }

 private:
  // Joins the threads before the compiler library's exit handlers destroy its state.
  static void stop_all() { instance().stop(); }

  void stop() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      threads.swap(threads_);
    }
    more_.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      more_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      --idle_;
      if (ended_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      // The library registers exit handlers when it first uses a part of itself; they run before those that were registered
      // earlier. So register again, ever more rarely.
      if (std::has_single_bit(++finished_)) static_cast<void>(std::atexit(stop_all));
    }
  }

  const size_t max_threads_ = static_cast<size_t>(std::clamp(available_cpus() - 1, 1, 8));
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
  uint64_t finished_ = 0;  // pieces of work
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

// A compilation that runs once: on a compiler thread, or on the thread that needs it, whichever comes first.
class PendingKernel {
 public:
  explicit PendingKernel(const KernelSource& source) : task_([source] { return source.code(); }) {}
  void run() {
    if (!taken_.exchange(true)) task_();
  }
  // REQUIRES: not called before.
  std::vector<char> wait() {
    run();
    return task_.get_future().get();
  }

 private:
  std::atomic<bool> taken_ = false;
  std::packaged_task<std::vector<char>()> task_;
};

// A source that was requested in this process.
struct KernelEntry {
  std::mutex mutex;                        // guards the other members
  std::shared_ptr<PendingKernel> pending;  // null if compilation was not started in the background, or was consumed
  std::optional<CudaFunction> function;
};

// With the instructions that only this architecture has, those of Hopper's warpgroups among them.
std::string architecture_of(const CudaStream& lane) {
  return fmt::format("sm_{}{}{}", lane.info().major, lane.info().minor, lane.info().major == 9 ? "a" : "");
}

std::shared_ptr<KernelEntry> entry_of(const KernelSource& source) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, std::map<std::string, std::shared_ptr<KernelEntry>>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<KernelEntry>& out = (*all)[source.architecture][source.text];
  if (!out) out = std::make_shared<KernelEntry>();
  return out;
}

}  // namespace

void CudaCode::compile_in_background(CudaStream& lane, const std::string& source,
                                     const std::vector<CudaHeader>& headers) {
  const KernelSource kernel_source{source, headers, architecture_of(lane), cuda_cache_folder()};
  const std::shared_ptr<KernelEntry> entry = entry_of(kernel_source);
  const std::unique_lock lock(entry->mutex, std::try_to_lock);
  if (!lock || entry->function || entry->pending) return;  // another thread is compiling it, or it is done
  entry->pending = std::make_shared<PendingKernel>(kernel_source);
  CompilerThreads::instance().add([pending = entry->pending] { pending->run(); });
}

CudaFunction CudaCode::get(CudaStream& lane, const std::string& source, const std::vector<CudaHeader>& headers) {
  const KernelSource kernel_source{source, headers, architecture_of(lane), cuda_cache_folder()};
  const std::shared_ptr<KernelEntry> entry = entry_of(kernel_source);
  const std::lock_guard lock(entry->mutex);
  if (entry->function) return *entry->function;
  const std::shared_ptr<PendingKernel> pending = std::exchange(entry->pending, nullptr);
  std::vector<char> code = pending ? pending->wait() : kernel_source.code();
  // Loading may synchronize with the GPU: one thread at a time.
  static std::mutex loading;
  const std::lock_guard load_lock(loading);
  cudaLibrary_t library = nullptr;
  const auto load = [&] {
    return cuda().cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  if (load() != cudaSuccess) {  // a damaged cache file is replaced
    code = kernel_source.compile_and_cache(kernel_source.path());
    check_cuda(load(), "load a kernel");
  }
  CudaFunction function;
  check_cuda(cuda().cudaLibraryEnumerateKernels(&function.kernel_, 1, library), "find a kernel");
  entry->function = function;
  return function;
}

void CudaFunction::reserve_shared(int64_t bytes) const {
  // Below the default limit of 48 KiB, less static shared memory that the kernel may declare.
  constexpr int64_t kDefaultShared = 40 << 10;
  if (bytes <= kDefaultShared) return;
  check_cuda(cuda().cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "reserve shared memory");
}

void CudaFunction::check_residency(const CudaStream& lane, int64_t blocks, int threads, int64_t shared_bytes) const {
  const auto* kernel = reinterpret_cast<const void*>(kernel_);
  cudaFuncAttributes attributes{};
  check_cuda(cuda().cudaFuncGetAttributes(&attributes, kernel), "query the resources of a kernel");
  const int64_t all_shared = shared_bytes + static_cast<int64_t>(attributes.sharedSizeBytes);
  int per_processor = 0;
  if (all_shared <= lane.info().shared) {
    reserve_shared(shared_bytes);
    check_cuda(cuda().cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, threads,
                                                                    static_cast<size_t>(shared_bytes)),
               "query how many thread blocks are resident");
  }
  const int64_t resident = int64_t{per_processor} * lane.info().processors;
  if (blocks <= resident) return;
  throw_error(
      "cuda: a persistent kernel needs {} resident thread blocks of {} threads, but only {} fit on the GPU ({} "
      "registers "
      "per thread, {} bytes of shared memory per thread block); set LOCKSTEP_PERSISTENT_KERNEL=0 or "
      "RuntimeOptions::persistent_kernel = false to launch kernels one by one",
      blocks, threads, resident, attributes.numRegs, all_shared);
}

void CudaFunction::launch(CudaStream& lane, int64_t blocks, int threads, void** arguments, int64_t shared_bytes,
                          bool co_resident) const {
  if (blocks == 0) return;
  LOCKSTEP_CHECK(blocks <= INT32_MAX, "{} blocks", blocks);
  const auto* kernel = reinterpret_cast<const void*>(kernel_);
  const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
  const auto shared = static_cast<size_t>(shared_bytes);
  reserve_shared(shared_bytes);
  const auto enqueue_lock = lane.enqueue_lock();
  if (!co_resident)
    return check_cuda(cuda().cudaLaunchKernel(kernel, grid, block, arguments, shared, lane.stream()), "start a kernel");
  cudaLaunchAttribute attribute{};
  if (uses_dependent_launch(lane.info()) && lane.is_exclusive()) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  } else {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = lane.stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_cuda(cuda().cudaLaunchKernelExC(&config, kernel, arguments), "start a kernel");
}

}  // namespace lockstep
