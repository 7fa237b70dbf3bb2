// Matrices in 8-bit floats on the GPU. Products are computed by cuBLASLt where it supports them, else in bf16, with
// operands decoded by a kernel of their own.
#include <memory>
#include <optional>

#include "lane/cuda/code.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int kQuantizeThreads = 256;
constexpr int64_t kQuantizeTile = 128;

// The longest pack, a power of two, that divides n elements and has at most `most`.
int64_t pack_of(int64_t n, int64_t most) {
  while (n % most != 0) most /= 2;
  return most;
}

// An operand of a product as bf16, which represents every 8-bit float exactly.
class DecodedMatrix {
 public:
  DecodedMatrix(const KernelSpec& spec, const Type& type) : buffer_(spec.cuda->allocate(count(type.shape) * 2)) {
    Builder b;
    kernel_ = elementwise_program_cuda(b.take(Values{cast(b.input(type), DType::bf16)}), spec);
  }
  const void* decode(const void* codes) const {
    void* out = buffer_->data();
    kernel_(&codes, &out);
    return out;
  }

 private:
  BufferPtr buffer_;
  Kernel kernel_;
};

// Multiplies f32 sums by both scales and rounds them to the result.
Kernel scaling_kernel(const KernelSpec& spec) {
  Builder b;
  const Value sums = b.input({DType::f32, spec.out[0].shape}), scale_a = b.input({DType::f32, {}}),
              scale_b = b.input({DType::f32, {}});
  const Value scaled = sums * broadcast(scale_a, sums.shape(), {}) * broadcast(scale_b, sums.shape(), {});
  return elementwise_program_cuda(b.take(Values{cast(scaled, spec.out[0].dtype)}), spec);
}

GemmSpec product_of(const KernelSpec& spec, DType dtype, DType out) {
  const int64_t m = spec.in[0].shape[0], n = spec.in[1].shape[0], k = spec.in[0].shape[1];
  return {.dtype = dtype,
          .out = out,
          .m = m,
          .n = n,
          .k = k,
          .transpose_b = true,
          .lda = k,
          .ldb = k,
          .ldc = n,
          .stride_a = 0,
          .stride_b = 0,
          .stride_c = 0};
}

Kernel decoded_product(const KernelSpec& spec) {
  struct State {
    DecodedMatrix a, b;
    CudaGemm gemm;
    BufferPtr sums;
    Kernel scale;
  };
  auto state = std::make_shared<const State>(
      State{DecodedMatrix(spec, spec.in[0]), DecodedMatrix(spec, spec.in[1]),
            CudaGemm(*spec.cuda, product_of(spec, DType::bf16, DType::f32), cuda_math()),
            spec.cuda->allocate(count(spec.out[0].shape) * size_of(DType::f32)), scaling_kernel(spec)});
  return [state](const void* const* in, void* const* out) {
    const void* const a = state->a.decode(in[0]);
    state->gemm.run(a, state->b.decode(in[1]), state->sums->data());
    const void* operands[] = {state->sums->data(), in[2], in[3]};
    state->scale(operands, out);
  };
}

}  // namespace

std::string quantize_text(const KernelSpec& spec) {
  const int64_t rows = spec.in[0].shape[0], columns = spec.in[0].shape[1];
  return fmt::format(
      R"(#include "quantize.cuh"
using namespace lockstep;
struct Matrix {{
  using T = {memory};
  using E = {element};
  static constexpr uint64_t kRows = {rows}, kColumns = {columns};
  static constexpr uint32_t kVector = {vector}, kTurned = {turned};
}};
extern "C" __global__ void __launch_bounds__({threads}) {name}(const Matrix::T* x, const float* scale, uint8_t* y, uint8_t* transposed, uint32_t* largest) {{
  Quantize<Matrix>::run(x, scale, y, transposed, largest);
}}
)",
      fmt::arg("name", kernel_name("quantize")), fmt::arg("memory", memory_type(spec.in[0].dtype)),
      fmt::arg("element", memory_type(spec.out[0].dtype)), fmt::arg("rows", rows), fmt::arg("columns", columns),
      fmt::arg("vector", pack_of(columns, 16 / size_of(spec.in[0].dtype))), fmt::arg("turned", pack_of(rows, 16)),
      fmt::arg("threads", kQuantizeThreads));
}

Kernel quantize_cuda(const KernelSpec& spec) {
  CudaStream* const lane = spec.cuda;
  const int64_t rows = spec.in[0].shape[0], columns = spec.in[0].shape[1];
  if (rows == 0 || columns == 0)
    return [lane](const void* const*, void* const* out) { lane->clear(out[2], sizeof(float)); };
  const auto tiles = [](int64_t n) { return (n + kQuantizeTile - 1) / kQuantizeTile; };
  const int64_t blocks = tiles(rows) * tiles(columns);
  return [=, function = kernel_of(quantize_text(spec), *lane)](const void* const* in, void* const* out) {
    lane->clear(out[2], sizeof(float));
    void* arguments[] = {argument(in[0]), argument(in[1]), argument(out[0]), argument(out[1]), argument(out[2])};
    function.launch(*lane, blocks, kQuantizeThreads, arguments);
  };
}

Kernel scaled_product_cuda(const KernelSpec& spec) {
  const int64_t bytes = spec.out[0].bytes();
  CudaStream* const lane = spec.cuda;
  if (bytes == 0 || spec.in[0].shape[1] == 0)
    return [lane, bytes](const void* const*, void* const* out) { lane->clear(out[0], bytes); };
  std::optional<CudaGemm> gemm =
      CudaGemm::float8(*lane, product_of(spec, spec.in[0].dtype, spec.out[0].dtype), spec.in[1].dtype);
  if (!gemm) return decoded_product(spec);
  auto shared = std::make_shared<const CudaGemm>(std::move(*gemm));
  return [shared](const void* const* in, void* const* out) {
    shared->run(in[0], in[1], out[0],
                {.scale_a = static_cast<const float*>(in[2]), .scale_b = static_cast<const float*>(in[3])});
  };
}

}  // namespace lockstep
