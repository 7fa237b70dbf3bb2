// Matrix products on a GPU with epilogues of cuBLASLt: a bias, relu, gelu.
#ifdef LOCKSTEP_WITH_CUDA
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/file.h"
#include "lane/cuda/gemm_cuda.h"
#include "ops/activations.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"
#include "plan/cuda/cuda_plan.h"
#include "rows/on_gpu.h"
#include "support/emulated.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using Function = Value (*)(Value);
Value same(Value x) { return x; }
Value largest(Value x) { return maximum(x, zeros_like(x)); }

struct Layer {
  const char* spec;
  Shape left, right;
  Shape bias;  // empty: none
  bool bias_first = false;
  bool is_odd = false;  // rows are not aligned
};

// The bias has the last dimensions of the result.
Program program_of(const Layer& p, DType dtype, Function then) {
  Builder b;
  const Value left = b.input({dtype, p.left}), right = b.input({dtype, p.right});
  Value x = einsum(p.spec, left, right);
  if (!p.bias.empty()) {
    std::vector<int64_t> dims;
    for (size_t d = x.shape().size() - p.bias.size(); d < x.shape().size(); ++d)
      dims.push_back(static_cast<int64_t>(d));
    const Value bias = broadcast(b.input({dtype, p.bias}), x.shape(), dims);
    x = p.bias_first ? bias + x : x + bias;
  }
  return fuse(b.take(Values{then(x)}));
}

// Sixteenths: products and sums are exact in f32.
HostArray sixteenths(Type type, uint32_t seed) {
  HostArray out(std::move(type));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, std::uniform_int_distribution<int>(-16, 16)(random) / 16.0);
  return out;
}
HostArray as_floats(const HostArray& x) { return {{DType::f32, x.type.shape}, x.values()}; }

class EpiloguesOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  }

  static void expect_taken(int epilogue) {
    if (const auto last = emulated("emulated_epilogue")) {
      EXPECT_EQ(*last, epilogue);
    }
  }
  // The result of the CPU in f32, rounded once at the end.
  static void expect_right(const Layer& p, DType dtype, Function then, double tolerance) {
    const Program program = program_of(p, dtype, then);
    HostArrays in, floats;
    for (const Type& type : program.input_types()) {
      in.push_back(sixteenths(type, static_cast<uint32_t>(in.size()) + 1));
      floats.push_back(as_floats(in.back()));
    }
    const HostArray got = planned_on_gpu(program, in)[0], wanted = eager(program_of(p, DType::f32, then), floats)[0];
    HostArray rounded(got.type);
    for (int64_t i = 0; i < wanted.size(); ++i) {
      rounded.set(i, wanted.get(i));
      ASSERT_NEAR(got.get(i), rounded.get(i), tolerance * (1 + std::abs(wanted.get(i)))) << "element " << i;
    }
  }
};

const std::vector<Layer> kLayers = {
    {"mk,kn->mn", {64, 32}, {32, 48}, {48}},
    {"mk,nk->mn", {37, 24}, {56, 24}, {56}, true},
    {"km,kn->mn", {23, 2}, {23, 129}, {129}, false, true},
    {"kn,mk->mn", {40, 24}, {36, 40}, {24}},
    {"abk,kn->abn", {3, 7, 40}, {40, 32}, {32}},
    {"mk,kcd->mcd", {19, 40}, {40, 3, 8}, {3, 8}},
    {"bmk,bkn->bmn", {3, 17, 40}, {3, 40, 24}, {24}},
    {"mk,kn->mn", {37, 23}, {23, 51}, {}, false, true},
    {"bmk,bkn->bmn", {3, 17, 40}, {3, 40, 24}, {}},
};

TEST_F(EpiloguesOnGpu, EqualThoseOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Layer& p : kLayers) {
      SCOPED_TRACE(fmt::format("{} of {}, {} columns of bias", p.spec, name(dtype), count(p.bias)));
      const bool bias = !p.bias.empty();
      // The others are rounded a second time, and are computed by a separate kernel.
      const double tolerance = !p.is_odd || dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 8e-3 : 1e-3;
      const auto expect = [&](int epilogue) { expect_taken(p.is_odd ? CUBLASLT_EPILOGUE_DEFAULT : epilogue); };
      if (bias) {
        expect_right(p, dtype, same, tolerance);
        expect(CUBLASLT_EPILOGUE_BIAS);
      }
      for (const Function then : {static_cast<Function>(relu), &largest}) {
        expect_right(p, dtype, then, tolerance);
        expect(bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
      }
      expect_right(p, dtype, gelu, dtype == DType::bf16 ? 8e-3 : 1e-3);
      if (p.is_odd || (dtype == DType::f32 && cuda_math() == CudaMath::full))
        expect_taken(CUBLASLT_EPILOGUE_DEFAULT);
      else
        expect_taken(bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
    }
}

// Epilogues that cuBLASLt does not have are computed by a separate kernel.
TEST_F(EpiloguesOnGpu, UnsupportedOnesAreASeparateKernel) {
  const Layer square{"mk,kn->mn", {32, 16}, {16, 32}, {32}};
  expect_right(square, DType::f64, relu, 0);
  expect_taken(CUBLASLT_EPILOGUE_DEFAULT);
  expect_right(square, DType::f32, gelu_exact, 1e-5);
  expect_taken(CUBLASLT_EPILOGUE_DEFAULT);
  expect_right(square, DType::f32, tanh, 1e-5);
  expect_taken(CUBLASLT_EPILOGUE_DEFAULT);
  // A bias per row, two biases, and a different second result.
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind);
    Builder b;
    const Value left = b.input({DType::f32, square.left}), right = b.input({DType::f32, square.right});
    const Value product = einsum(square.spec, left, right);
    const Value bias = broadcast(b.input({DType::f32, square.bias}), product.shape(), {kind == 0 ? 0 : 1});
    const Value x = kind == 1 ? product + bias + bias : product + bias;
    const Program program = fuse(b.take(kind == 2 ? Values{relu(x), x} : Values{relu(x)}));
    std::mt19937 random(7);
    expect_same_on_gpu(program, random);
    expect_taken(CUBLASLT_EPILOGUE_DEFAULT);
  }
}

// As in training: the gradient of relu needs to know where it returned 0.
TEST_F(EpiloguesOnGpu, ReturnWhereReluIsZero) {
  std::mt19937 random(11);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool mask_first : {false, true})
      for (const bool has_bias : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name(dtype), mask_first, has_bias));
        Builder b;
        const Value left = b.input({dtype, {37, 24}}), right = b.input({dtype, {24, 56}});
        Value x = einsum("mk,kn->mn", left, right);
        if (has_bias) x = x + broadcast(b.input({dtype, {56}}), x.shape(), {1});
        const Value y = relu(x), mask = le(x, zeros_like(x));
        expect_same_on_gpu(lower(b.take(mask_first ? Values{mask, y} : Values{y, mask})), random);
        expect_taken(has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
      }
}

// Two matrices, a bias, and a matrix like the product.
using Finish = Values (*)(Value product, Value bias, Value matrix);
Program program_with(Finish finish, DType dtype) {
  Builder b;
  const Value left = b.input({dtype, {37, 24}}), right = b.input({dtype, {24, 56}});
  const Value product = einsum("mk,kn->mn", left, right);
  const Value bias = broadcast(b.input({dtype, {56}}), product.shape(), {1});
  const Value matrix = b.input({dtype, {37, 56}});
  return fuse(b.take(finish(product, bias, matrix)));
}

// Compares with the CPU in f32, rounded once. `donated`: the last result is in the memory of the matrix.
void expect_finish(Finish finish, DType dtype, bool donated, double tolerance) {
  const Program program = program_with(finish, dtype);
  HostArrays in, floats;
  for (const Type& type : program.input_types()) {
    in.push_back(sixteenths(type, static_cast<uint32_t>(in.size()) + 1));
    floats.push_back(as_floats(in.back()));
  }
  const HostArrays got = planned_on_gpu(program, in, {false, false, false, donated}),
                   wanted = eager(program_with(finish, DType::f32), floats);
  for (size_t o = 0; o < got.size(); ++o) {
    const HostArray rounded(got[o].type, wanted[o].values());
    for (int64_t i = 0; i < rounded.size(); ++i)
      ASSERT_NEAR(got[o].get(i), rounded.get(i), tolerance * (1 + std::abs(rounded.get(i)))) << "element " << i;
  }
}

TEST_F(EpiloguesOnGpu, AddAResidual) {
  const std::vector<std::pair<Finish, int>> finishes = {
      {[](Value x, Value, Value r) { return Values{x + r}; }, CUBLASLT_EPILOGUE_DEFAULT},
      {[](Value x, Value, Value r) { return Values{r + x}; }, CUBLASLT_EPILOGUE_DEFAULT},
      {[](Value x, Value b, Value r) { return Values{r + (x + b)}; }, CUBLASLT_EPILOGUE_BIAS},
      {[](Value x, Value b, Value r) { return Values{(b + x) + r}; }, CUBLASLT_EPILOGUE_BIAS},
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [finish, epilogue] : finishes)
      for (const bool donated : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name(dtype), epilogue, donated));
        // In place, the product may be rounded before the residual is added.
        expect_finish(finish, dtype, donated, donated && dtype == DType::bf16 ? 8e-3 : donated ? 1e-3 : 0);
        expect_taken(epilogue);
        if (const auto adds = emulated("emulated_adds")) {
          EXPECT_EQ(*adds, 1);
        }
      }
}

TEST_F(EpiloguesOnGpu, KeepTheArgumentOfGelu) {
  const std::vector<std::pair<Finish, int>> finishes = {
      {[](Value x, Value, Value) {
         return Values{gelu(x), x};
       },
       CUBLASLT_EPILOGUE_GELU_AUX},
      {[](Value x, Value b, Value) {
         return Values{x + b, gelu(x + b)};
       },
       CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
  };
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const auto& [finish, epilogue] : finishes) {
      SCOPED_TRACE(fmt::format("{}, {}", name(dtype), epilogue));
      expect_finish(finish, dtype, false, dtype == DType::bf16 ? 8e-3 : 1e-3);
      expect_taken(epilogue);
    }
}

TEST_F(EpiloguesOnGpu, MultiplyByTheSlopeOfGelu) {
  const Finish finishes[] = {[](Value x, Value, Value a) { return Values{x * gelu_slope(a)}; },
                             [](Value x, Value, Value a) { return Values{gelu_slope(a) * x}; }};
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Finish finish : finishes)
      for (const bool donated : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}", name(dtype), donated));
        expect_finish(finish, dtype, donated, dtype == DType::bf16 ? 8e-3 : 1e-3);
        expect_taken(donated ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_DGELU);  // not in place
      }
}

// The product is computed in the memory of a result; a result that is the product itself is not written again.
TEST_F(EpiloguesOnGpu, SeparateKernelsReadTheProductFromAResult) {
  const Finish finishes[] = {[](Value x, Value b, Value r) { return Values{tanh(x + b) * r}; },
                             [](Value x, Value, Value r) {
                               return Values{x, gelu_exact(x) + r};
                             },
                             [](Value x, Value, Value r) {
                               return Values{x * r, lt(x, r), x - r};
                             }};
  for (const Finish finish : finishes)
    for (const bool donated : {false, true}) expect_finish(finish, DType::f32, donated, 1e-5);
}

// An unaligned bias is copied first.
TEST_F(EpiloguesOnGpu, AcceptAnUnalignedBias) {
  const Layer p{"mk,kn->mn", {20, 16}, {16, 40}, {40}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Program program = program_of(p, dtype, relu);
    CudaStream& lane = CudaStream::local();
    const std::shared_ptr<CudaPlan> plan = compile(program, test_pool(), lane);
    HostArrays in;
    std::vector<BufferPtr> held;
    std::vector<const void*> from;
    for (const Type& type : program.input_types()) {
      const int64_t offset = from.size() == 2 ? size_of(dtype) : 0;
      in.push_back(sixteenths(type, static_cast<uint32_t>(in.size()) + 1));
      held.push_back(lane.allocate(type.bytes() + offset));
      lane.to_device(held.back()->data() + offset, in.back().buffer->data(), type.bytes());
      from.push_back(held.back()->data() + offset);
    }
    HostArray got(program.output_types()[0]);
    const BufferPtr result = lane.allocate(got.type.bytes());
    void* to = result->data();
    plan->run(from.data(), &to);
    lane.to_host(got.buffer->data(), to, got.type.bytes());
    expect_taken(CUBLASLT_EPILOGUE_RELU_BIAS);
    HostArrays floats;
    for (const HostArray& each : in) floats.push_back(as_floats(each));
    const HostArray wanted = eager(program_of(p, DType::f32, relu), floats)[0];
    HostArray rounded(got.type, wanted.values());
    EXPECT_EQ(got.values(), rounded.values());
  }
}

class NanOnGpu : public EpiloguesOnGpu {
 protected:
  // Exactly the rows that had a NaN.
  static void expect_handed_on(DType dtype, int64_t size) {
    const Layer p{"mk,kn->mn", {size, size}, {size, size}, {size}};
    for (const Function then : {same, static_cast<Function>(relu), static_cast<Function>(gelu)}) {
      const Program program = program_of(p, dtype, then);
      HostArrays in;
      for (const Type& type : program.input_types()) in.push_back(sixteenths(type, 1));
      in[0].set(5 * size + 3, std::numeric_limits<double>::quiet_NaN());
      const HostArray got = planned_on_gpu(program, in)[0];
      for (int64_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isnan(got.get(i)), i / size == 5) << "element " << i;
    }
  }
};

TEST_F(NanOnGpu, IsPropagated) {
  // Also large products, which use other kernels, unless that is slow.
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : {40, 47, emulated("emulated_epilogue") ? 64 : 1024}) {
      SCOPED_TRACE(fmt::format("{} of {}", size, name(dtype)));
      expect_handed_on(dtype, size);
    }
}

TEST_F(NanOnGpu, IsPropagatedIfTheLibraryWouldLoseIt) {
  if (!emulated("emulated_epilogue")) GTEST_SKIP() << "needs the emulated GPU";
  const TempDir folder;  // an empty cache
  const ScopedVariable relu("LOCKSTEP_EMULATED_RELU", "lossy"), cache("LOCKSTEP_CACHE_DIR", folder.path());
  clear_gemm_autotune_cache();
  expect_handed_on(DType::f16, 40);
  clear_gemm_autotune_cache();
}

}  // namespace
}  // namespace lockstep
#endif
