#include "ops/cuda/conv_choice.h"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "base/md5.h"
#include "lane/cuda/conv_cuda.h"
#include "ops/cuda/conv_text.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

std::atomic<ConvWay> way = ConvWay::fastest;

ConvMath math_of(DType dtype, const CudaInfo& gpu) {
  if (dtype == DType::f64 || gpu.major < 8) return ConvMath::fma;
  if (dtype == DType::f32) return cuda_math() == CudaMath::tf32 ? ConvMath::tf32 : ConvMath::fma;
  return ConvMath::half;
}

ConvWork by_own_kernel(ConvPass pass, const ConvSpec& conv, CudaLane& lane) {
  const ConvMath math = math_of(conv.dtype, lane.info());
  const ConvLayout layout = conv_layout(pass, conv, math);
  const CudaFunction products = kernel_of(conv_text(pass, conv, math), lane);
  if (layout.splits == 1)
    return [=, &lane](const void* a, const void* b, void* out) {
      void* arguments[] = {argument(a), argument(b), argument(out)};
      products.launch(lane, layout.blocks, layout.threads, arguments);
    };
  const CudaFunction sums = kernel_of(conv_sum_text(layout, conv.dtype), lane);
  const BufferPtr parts = lane.allocate(layout.splits * layout.results * (conv.dtype == DType::f64 ? 8 : 4));
  return [=, &lane](const void* a, const void* b, void* out) {
    const void* const middle = parts->data();
    void* arguments[] = {argument(a), argument(b), argument(middle)};
    products.launch(lane, layout.blocks, layout.threads, arguments);
    void* more[] = {argument(middle), argument(out)};
    sums.launch(lane, conv_sum_blocks(layout), 1024, more);
  };
}

// cuDNN's filters have their results' channels in front.
ConvWork by_dnn(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec, const CudaConv::Algorithm& algorithm) {
  const CudaConv dnn(*spec.cuda, pass, conv, cuda_math(), algorithm);
  const Shape ours{conv.kernel[0], conv.kernel[1], conv.in_channels / conv.groups, conv.out_channels};
  const Shape theirs{ours[3], ours[0], ours[1], ours[2]};
  const bool back = pass == ConvPass::filter_grad;
  Builder b;
  const Value from = b.input({conv.dtype, back ? theirs : ours});
  const Program copy = b.take(Values{transpose(from, back ? Dims{1, 2, 3, 0} : Dims{3, 0, 1, 2})});
  const Kernel reorder = elementwise_program_cuda(copy, spec);
  const BufferPtr filter = spec.cuda->allocate(Type{conv.dtype, ours}.bytes());
  if (back)
    return [=](const void* x, const void* dy, void* dw) {
      dnn.run(x, dy, filter->data());
      const void* made = filter->data();
      reorder(&made, &dw);
    };
  return [=](const void* a, const void* w, void* out) {
    void* to = filter->data();
    reorder(&w, &to);
    dnn.run(a, to, out);
  };
}

// Of work that is queued many times over; nothing when it cannot be recorded.
std::optional<double> seconds(CudaLane& lane, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTimes = 10, kRounds = 4;
  std::optional<double> best;
  try {
    work();  // also what is prepared on first use
    const cudaGraphExec_t graph = lane.record([&] {
      for (int i = 0; i < kTimes; ++i) work();
    });
    for (int round = 0; round < kRounds; ++round) {
      check_cuda(cuda().cudaStreamSynchronize(lane.stream()), "measure a convolution");
      const Clock::time_point start = Clock::now();
      lane.replay(graph);
      check_cuda(cuda().cudaStreamSynchronize(lane.stream()), "measure a convolution");
      const std::chrono::duration<double> took = Clock::now() - start;
      if (round > 0 && (!best || took.count() < *best)) best = took.count();
    }
    lane.forget(graph);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {
    return {};
  }
  return best;
}

// "own", or "cudnn 1 0 4096": algorithm, kind of products, bytes of work space.
std::string to_text(const std::optional<CudaConv::Algorithm>& choice) {
  return choice ? fmt::format("cudnn {} {} {}", choice->number, choice->math, choice->space) : "own";
}
std::optional<CudaConv::Algorithm> from_text(const std::string& text) {
  std::istringstream words(text);
  std::string by;
  CudaConv::Algorithm a;
  if (words >> by >> a.number >> a.math >> a.space && by == "cudnn" && a.space >= 0) return a;
  return {};
}

std::string key_of(ConvPass pass, const ConvSpec& conv, CudaLane& lane) {
  const std::string all =
      fmt::format("{} cudnn {} {}\n{}", lane.info().name, CudaConv::version(), cuda_math() == CudaMath::tf32,
                  conv_text(pass, conv, math_of(conv.dtype, lane.info())));
  return md5_hex(std::span(reinterpret_cast<const uint8_t*>(all.data()), all.size()));
}

std::string file_of(const std::string& key) {
  const std::string folder = cuda_cache_folder();
  return folder.empty() ? "" : fmt::format("{}/{}.conv", folder, key);
}

// Empty when nothing was chosen, or it cannot be read.
std::string remembered(const std::string& key) {
  const std::string path = file_of(key);
  try {
    FileSystem& files = FileSystem::real();
    if (path.empty() || !files.exists(path)) return "";
    std::string text(static_cast<size_t>(files.size(path)), '\0');
    files.read(path, 0, std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()));
    return text.starts_with("own") || from_text(text) ? text : "";
  } catch (const IoError&) {
    return "";
  }
}

void remember(const std::string& key, const std::string& text) {
  const std::string path = file_of(key);
  if (path.empty()) return;
  try {
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write_atomic(path, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  } catch (const IoError&) {  // the next run measures again
  }
}

// What cuDNN takes, or nothing where our own kernel is faster.
std::optional<CudaConv::Algorithm> measure(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec, ConvWay by) {
  CudaLane& lane = *spec.cuda;
  const Type& a = spec.in[0];
  const Type& b = spec.in[1];
  const ConvLayout layout = conv_layout(pass, conv, ConvMath::fma);
  const int64_t out_bytes = layout.results * size_of(conv.dtype);
  const BufferPtr x = lane.allocate(a.bytes()), y = lane.allocate(b.bytes()), out = lane.allocate(out_bytes);
  lane.clear(x->data(), a.bytes());
  lane.clear(y->data(), b.bytes());
  const auto found = CudaConv::find(lane, pass, conv, cuda_math(), x->data(), y->data(), out->data());
  if (!found || by == ConvWay::dnn) return found;
  const auto time_of = [&](const ConvWork& run) {
    return seconds(lane, [&] { run(x->data(), y->data(), out->data()); });
  };
  const auto dnn = time_of(by_dnn(pass, conv, spec, *found));
  const auto own = time_of(by_own_kernel(pass, conv, lane));
  return dnn && own && *dnn < *own ? found : std::nullopt;
}

std::optional<CudaConv::Algorithm> choice_of(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec) {
  const ConvWay by = way.load();
  if (by == ConvWay::own || CudaConv::version() == 0 || spec.cuda->recording()) return {};
  if (by == ConvWay::dnn) return measure(pass, conv, spec, by);
  static std::mutex mutex;
  static auto* const chosen = new std::map<std::string, std::string>;
  const std::lock_guard lock(mutex);
  const std::string key = key_of(pass, conv, *spec.cuda);
  std::string& text = (*chosen)[key];
  if (text.empty()) text = remembered(key);
  if (text.empty()) {
    text = to_text(measure(pass, conv, spec, by));
    remember(key, text);
  }
  return from_text(text);
}

}  // namespace

void set_conv_way(ConvWay to) { way = to; }

ConvWork prepare_conv(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec) {
  if (const auto algorithm = choice_of(pass, conv, spec)) return by_dnn(pass, conv, spec, *algorithm);
  return by_own_kernel(pass, conv, *spec.cuda);
}

}  // namespace lockstep
