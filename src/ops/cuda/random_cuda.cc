// Random bits on the GPU, the same as on the CPU.
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kThreads = 256;

// Threefry-2x32, 20 rounds.
constexpr const char* kCipher = R"(#include "elements.h"
using namespace lockstep;
inline void encrypt(const uint32_t* words, uint32_t& x0, uint32_t& x1) {
  const uint32_t key[3] = {words[0], words[1], words[0] ^ words[1] ^ 0x1bd11bdau};
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 += key[0];
  x1 += key[1];
#pragma unroll
  for (uint32_t group = 0; group < 5; ++group) {
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      x0 += x1;
      x1 = __funnelshift_l(x1, x1, kRotations[group % 2][round]) ^ x0;
    }
    x0 += key[(group + 1) % 3];
    x1 += key[(group + 2) % 3] + (group + 1);
  }
}
)";

}  // namespace

Kernel random_bits_cuda(const KernelSpec& spec) {
  const int64_t n = count(spec.out[0].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const Shape& shape = spec.attrs.ints("shape");
  const Shape whole = spec.attrs.get_or("whole", shape);
  const Dims starts = spec.attrs.get_or("starts", Dims(shape.size(), 0));
  const Dims strides = dense_strides(shape), whole_strides = dense_strides(whole);
  std::string at = "0";
  for (size_t d = 0; d < shape.size(); ++d)
    at += fmt::format(" + (r / {}ull % {}ull + {}ull) * {}ull", strides[d], shape[d], starts[d], whole_strides[d]);
  const std::string text = fmt::format(
      "{}extern \"C\" __global__ void __launch_bounds__({}) f(const uint32_t* keys, uint32_t* out) {{\n"
      "  const uint64_t i = uint64_t(blockIdx.x) * {}u + threadIdx.x;\n  if (i >= {}ull) return;\n"
      "  const uint64_t r = i % {}ull, counter = {};\n"
      "  uint32_t x0 = uint32_t(counter >> 32), x1 = uint32_t(counter);\n"
      "  encrypt(keys + 2 * (i / {}ull), x0, x1);\n  out[i] = x0 ^ x1;\n}}\n",
      kCipher, kThreads, kThreads, n, count(shape), at, count(shape));
  CudaLane* const lane = spec.cuda;
  const CudaFunction function = kernel_of(text, *lane);
  return [=](const void* const* in, void* const* out) {
    void* arguments[] = {argument(in[0]), argument(out[0])};
    function.launch(*lane, (n + kThreads - 1) / kThreads, kThreads, arguments);
  };
}

Kernel threefry_cuda(const KernelSpec& spec) {
  const int64_t n = count(spec.in[1].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const int64_t per_key = extent(spec.in[1].shape, spec.in[0].rank() - 1, spec.in[1].rank());
  const std::string text = fmt::format(
      "{}extern \"C\" __global__ void __launch_bounds__({}) f(const uint32_t* keys, const uint32_t* hi, const "
      "uint32_t* lo, "
      "uint32_t* out0, uint32_t* out1) {{\n"
      "  const uint64_t i = uint64_t(blockIdx.x) * {}u + threadIdx.x;\n  if (i >= {}ull) return;\n"
      "  uint32_t x0 = hi[i], x1 = lo[i];\n  encrypt(keys + 2 * (i / {}ull), x0, x1);\n"
      "  out0[i] = x0;\n  out1[i] = x1;\n}}\n",
      kCipher, kThreads, kThreads, n, per_key);
  CudaLane* const lane = spec.cuda;
  const CudaFunction function = kernel_of(text, *lane);
  return [=](const void* const* in, void* const* out) {
    void* arguments[] = {argument(in[0]), argument(in[1]), argument(in[2]), argument(out[0]), argument(out[1])};
    function.launch(*lane, (n + kThreads - 1) / kThreads, kThreads, arguments);
  };
}

}  // namespace lockstep
