#include "lane/cuda/conv_cuda.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "hardware/cuda/dnn.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_CUDNN
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
namespace {

constexpr int64_t kMaxWorkspace = int64_t{256} << 20;

bool is_out_of_memory(cudnnStatus_t status) {
#if CUDNN_MAJOR >= 9
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) return true;
#endif
  return status == CUDNN_STATUS_ALLOC_FAILED;
}

void check_dnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_library_error(is_out_of_memory(status), what, cuda_dnn()->cudnnGetErrorString(status));
}

// The cuDNN handle of a lane, and the workspace that its convolutions share: they run one after another.
struct LaneDnn {
  cudnnHandle_t handle = nullptr;
  BufferPtr space;
};

// Calls f(LaneDnn&) under a lock.
template <class F>
auto with_dnn(CudaStream& lane, F f) {
  static std::mutex mutex;
  static auto* const all = new std::map<CudaStream*, LaneDnn>;
  const std::lock_guard lock(mutex);
  return f((*all)[&lane]);
}

cudnnHandle_t context(CudaStream& lane) {
  return with_dnn(lane, [&](LaneDnn& own) {
    if (own.handle) return own.handle;
    lane.enter();
    cudnnHandle_t handle = nullptr;
    check_dnn(cuda_dnn()->cudnnCreate(&handle), "create the cuDNN handle");
    check_dnn(cuda_dnn()->cudnnSetStream(handle, lane.stream()), "create the cuDNN handle");
    return own.handle = handle;
  });
}

BufferPtr shared_workspace(CudaStream& lane, int64_t bytes) {
  return with_dnn(lane, [&](LaneDnn& own) {
    if (!own.space || own.space->size() < bytes) own.space = lane.allocate(bytes);
    return own.space;
  });
}

cudnnDataType_t cudnn_type(DType dtype) {
  return dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// The extents of the result; nullopt if cuDNN does not support the convolution. cuDNN pads symmetrically, so pad_hi
// must give the same result as pad_lo.
std::optional<ConvSpec::Pair> supported_result(const ConvSpec& s) {
  ConvSpec::Pair out{};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t window = (s.kernel[d] - 1) * s.kernel_dilation[d] + 1;
    out[d] = (s.in[d] + s.pad_lo[d] + s.pad_hi[d] - window) / s.stride[d] + 1;
    const int64_t symmetric = s.in[d] + 2 * s.pad_lo[d] - window;
    if (s.in_dilation[d] != 1 || s.pad_lo[d] < 0 || symmetric < 0 || symmetric / s.stride[d] + 1 != out[d]) return {};
  }
  const int64_t in_size = s.batch * s.in[0] * s.in[1] * s.in_channels;
  const int64_t out_size = s.batch * out[0] * out[1] * s.out_channels;
  const int64_t filter_size = s.kernel[0] * s.kernel[1] * s.in_channels / s.groups * s.out_channels;
  if (s.dtype == DType::f64 || std::max({in_size, out_size, filter_size}) > INT32_MAX) return {};
  return out;
}

struct Descriptors {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;

  Descriptors(const ConvSpec& s, const ConvSpec::Pair& out, CudaMath math) {
    const CudaDnn& dnn = *cuda_dnn();
    const auto n = [](int64_t value) { return static_cast<int>(value); };
    check_dnn(dnn.cudnnCreateTensorDescriptor(&x), "describe images");
    check_dnn(dnn.cudnnCreateTensorDescriptor(&y), "describe images");
    check_dnn(dnn.cudnnCreateFilterDescriptor(&w), "describe a filter");
    check_dnn(dnn.cudnnCreateConvolutionDescriptor(&conv), "describe a convolution");
    const cudnnDataType_t type = cudnn_type(s.dtype);
    check_dnn(dnn.cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, type, n(s.batch), n(s.in_channels), n(s.in[0]),
                                             n(s.in[1])),
              "describe images");
    check_dnn(
        dnn.cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NHWC, type, n(s.batch), n(s.out_channels), n(out[0]), n(out[1])),
        "describe images");
    check_dnn(dnn.cudnnSetFilter4dDescriptor(w, type, CUDNN_TENSOR_NHWC, n(s.out_channels), n(s.in_channels / s.groups),
                                             n(s.kernel[0]), n(s.kernel[1])),
              "describe a filter");
    check_dnn(dnn.cudnnSetConvolution2dDescriptor(conv, n(s.pad_lo[0]), n(s.pad_lo[1]), n(s.stride[0]), n(s.stride[1]),
                                                  n(s.kernel_dilation[0]), n(s.kernel_dilation[1]),
                                                  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              "describe a convolution");
    check_dnn(dnn.cudnnSetConvolutionGroupCount(conv, n(s.groups)), "describe a convolution");
    set_math(s.dtype != DType::f32    ? CUDNN_TENSOR_OP_MATH
             : math == CudaMath::tf32 ? CUDNN_DEFAULT_MATH
                                      : CUDNN_FMA_MATH);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    const CudaDnn& dnn = *cuda_dnn();
    if (x) dnn.cudnnDestroyTensorDescriptor(x);
    if (y) dnn.cudnnDestroyTensorDescriptor(y);
    if (w) dnn.cudnnDestroyFilterDescriptor(w);
    if (conv) dnn.cudnnDestroyConvolutionDescriptor(conv);
  }

  void set_math(cudnnMathType_t math) const {
    check_dnn(cuda_dnn()->cudnnSetConvolutionMathType(conv, math), "describe a convolution");
  }
};

// The fastest deterministic algorithm among the results of search(max_results, found, results).
template <class Perf, class Search>
std::optional<CudaConv::Algorithm> fastest(int64_t space, Search search) {
  constexpr int kMax = 16;
  Perf results[kMax] = {};
  int found = 0;
  if (search(kMax, &found, results) != CUDNN_STATUS_SUCCESS) return {};
  for (int i = 0; i < found; ++i) {
    const Perf& r = results[i];
    if (r.status == CUDNN_STATUS_SUCCESS && r.determinism == CUDNN_DETERMINISTIC &&
        static_cast<int64_t>(r.memory) <= space)
      return CudaConv::Algorithm{static_cast<int>(r.algo), static_cast<int>(r.mathType),
                                 static_cast<int64_t>(r.memory)};
  }
  return {};
}

}  // namespace

int64_t CudaConv::version() { return cuda_dnn() ? static_cast<int64_t>(cuda_dnn()->cudnnGetVersion()) : 0; }

std::optional<CudaConv::Algorithm> CudaConv::find(CudaStream& lane, ConvPass pass, const ConvSpec& spec, CudaMath math,
                                                  const void* a, const void* b, void* out) {
  const auto result = supported_result(spec);
  if (!cuda_dnn() || !result) return {};
  const CudaDnn& dnn = *cuda_dnn();
  const Descriptors d(spec, *result, math);
  const int64_t bytes = std::min(kMaxWorkspace, lane.info().memory / 32);
  const BufferPtr space = lane.allocate(bytes);
  const auto size = static_cast<size_t>(bytes);
  const cudnnHandle_t handle = context(lane);
  // cuDNN waits for the GPU without a deadline, so first wait for all earlier work with one.
  const CudaStream::UncountedWaits uncounted;
  lane.wait_for_all();
  const auto enqueue_lock = lane.enqueue_lock();
  lane.mark_last_launch(nullptr);
  switch (pass) {
    case ConvPass::forward:
      return fastest<cudnnConvolutionFwdAlgoPerf_t>(
          bytes, [&](int most, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
            return dnn.cudnnFindConvolutionForwardAlgorithmEx(handle, d.x, a, d.w, b, d.conv, d.y, out, most, found,
                                                              results, space->data(), size);
          });
    case ConvPass::input_grad:
      return fastest<cudnnConvolutionBwdDataAlgoPerf_t>(
          bytes, [&](int most, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
            return dnn.cudnnFindConvolutionBackwardDataAlgorithmEx(handle, d.w, b, d.y, a, d.conv, d.x, out, most,
                                                                   found, results, space->data(), size);
          });
    case ConvPass::filter_grad:
      break;
  }
  return fastest<cudnnConvolutionBwdFilterAlgoPerf_t>(
      bytes, [&](int most, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
        return dnn.cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, d.x, a, d.y, b, d.conv, d.w, out, most, found,
                                                                 results, space->data(), size);
      });
}

struct CudaConv::State {
  CudaStream& lane;
  ConvPass pass;
  Descriptors d;
  Algorithm algorithm;
  cudnnHandle_t handle;
  BufferPtr space;
};

CudaConv::CudaConv(CudaStream& lane, ConvPass pass, const ConvSpec& spec, CudaMath math, const Algorithm& algorithm) {
  const auto result = supported_result(spec);
  LOCKSTEP_CHECK(cuda_dnn() && result, "cuDNN does not support this convolution");
  state_ = std::shared_ptr<const State>(new State{lane,
                                                  pass,
                                                  {spec, *result, math},
                                                  algorithm,
                                                  context(lane),
                                                  shared_workspace(lane, std::max<int64_t>(algorithm.space, 1))});
  // Full-precision f32 keeps its math type, whatever the autotuner proposes.
  if (spec.dtype != DType::f32 || math == CudaMath::tf32)
    state_->d.set_math(static_cast<cudnnMathType_t>(algorithm.math));
}

void CudaConv::run(const void* a, const void* b, void* out) const {
  const CudaDnn& dnn = *cuda_dnn();
  const State& s = *state_;
  const auto enqueue_lock = s.lane.enqueue_lock();
  s.lane.mark_last_launch(nullptr);  // cuDNN enqueues on the stream directly
  const float one = 1, zero = 0;
  void* const space = s.space->data();
  const auto size = static_cast<size_t>(s.algorithm.space);
  switch (s.pass) {
    case ConvPass::forward:
      return check_dnn(dnn.cudnnConvolutionForward(s.handle, &one, s.d.x, a, s.d.w, b, s.d.conv,
                                                   static_cast<cudnnConvolutionFwdAlgo_t>(s.algorithm.number), space,
                                                   size, &zero, s.d.y, out),
                       "convolve");
    case ConvPass::input_grad:
      return check_dnn(dnn.cudnnConvolutionBackwardData(s.handle, &one, s.d.w, b, s.d.y, a, s.d.conv,
                                                        static_cast<cudnnConvolutionBwdDataAlgo_t>(s.algorithm.number),
                                                        space, size, &zero, s.d.x, out),
                       "convolve");
    case ConvPass::filter_grad:
      break;
  }
  check_dnn(dnn.cudnnConvolutionBackwardFilter(s.handle, &one, s.d.x, a, s.d.y, b, s.d.conv,
                                               static_cast<cudnnConvolutionBwdFilterAlgo_t>(s.algorithm.number), space,
                                               size, &zero, s.d.w, out),
            "convolve");
}
#else
struct CudaConv::State {};
int64_t CudaConv::version() { return 0; }
std::optional<CudaConv::Algorithm> CudaConv::find(CudaStream&, ConvPass, const ConvSpec&, CudaMath, const void*,
                                                  const void*, void*) {
  return {};
}
CudaConv::CudaConv(CudaStream&, ConvPass, const ConvSpec&, CudaMath, const Algorithm&) {
  LOCKSTEP_CHECK(false, "built without cuDNN");
}
void CudaConv::run(const void*, const void*, void*) const {}
#endif

}  // namespace lockstep
