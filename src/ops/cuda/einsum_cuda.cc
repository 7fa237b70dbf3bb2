// Contractions as kernels of their own: a matrix product by cuBLASLt, with copies before and after if axes must be
// permuted. An elementwise program of the result is the product's epilogue, or a second kernel.
#include <memory>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/contraction.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/gemm_epilogue.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/product_cuda.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// A copy that permutes the axes of an array.
struct CudaReorder {
  Kernel kernel;
  BufferPtr buffer;

  CudaReorder(const KernelSpec& spec, const Type& type, const std::vector<int64_t>& order) {
    Builder b;
    const Program copy = b.take(Values{transpose(b.input(type), order)});
    kernel = elementwise_program_cuda(copy, spec);
    buffer = spec.cuda->allocate(type.bytes());
  }
};

Contraction contraction_of(const KernelSpec& spec) {
  return contraction(spec.attrs.get<std::string>("spec"), spec.in[0], spec.in[1]);
}

class CudaProduct {
 public:
  // `by`: the matrix product to use, if already prepared.
  CudaProduct(const KernelSpec& spec, const Type& result, std::optional<CudaGemm> by = {})
      : plan_(contraction_of(spec)), lane_(spec.cuda), gemm_(std::move(by)) {
    const Type& a = spec.in[plan_.swapped ? 1 : 0];
    const Type& b = spec.in[plan_.swapped ? 0 : 1];
    bytes_ = result.bytes();
    const GemmSpec& g = plan_.gemm;
    if (!gemm_ && bytes_ > 0 && g.k > 0) gemm_.emplace(*spec.cuda, g, cuda_math());
    if (plan_.copy_a) a_.emplace(spec, a, *plan_.copy_a);
    if (plan_.copy_b) b_.emplace(spec, b, *plan_.copy_b);
    if (plan_.copy_c) c_.emplace(spec, Type{result.dtype, plan_.product}, *plan_.copy_c);
  }

  void run(const void* const* in, void* out, const CudaGemm::Extras& extras = {}) const {
    if (!gemm_) return lane_->clear(out, bytes_);
    const void* a = in[plan_.swapped ? 1 : 0];
    const void* b = in[plan_.swapped ? 0 : 1];
    const auto reordered = [](const std::optional<CudaReorder>& how, const void* from) {
      if (!how) return from;
      void* to = how->buffer->data();
      how->kernel(&from, &to);
      return static_cast<const void*>(to);
    };
    gemm_->run(reordered(a_, a), reordered(b_, b), c_ ? static_cast<void*>(c_->buffer->data()) : out, extras);
    if (!c_) return;
    const void* from = c_->buffer->data();
    c_->kernel(&from, &out);
  }

 private:
  Contraction plan_;
  CudaStream* lane_;
  int64_t bytes_ = 0;
  std::optional<CudaGemm> gemm_;
  std::optional<CudaReorder> a_, b_, c_;
};

// The product and its epilogue by cuBLASLt, if supported. The mask of relu takes a second kernel.
Kernel by_epilogue(const KernelSpec& spec, const Program& body) {
  const Contraction plan = contraction_of(spec);
  const GemmSpec& g = plan.gemm;
  const Type& type = body.types[body.inputs[0]];
  if (plan.copy_c || type.bytes() == 0 || g.k == 0) return {};
  const std::optional<MatchedEpilogue> matched = epilogue_of(body, g.n);
  if (!matched) return {};
  // cuBLASLt may store the product in the memory of the result before it reads the argument of gelu_slope.
  if (matched->argument && matched->result < spec.alias.size() &&
      spec.alias[matched->result] == static_cast<int>(1 + *matched->argument))
    return {};
  std::optional<CudaGemm> gemm = CudaGemm::with_epilogue(*spec.cuda, g, cuda_math(), matched->epilogue);
  if (!gemm) return {};
  struct State {
    CudaProduct product;
    CudaStream& lane;
    MatchedEpilogue matched;
    BufferPtr bias;  // an aligned copy of a small bias, which may be less aligned
    Kernel mask_kernel;
  };
  auto state = std::make_shared<State>(State{CudaProduct(spec, type, std::move(gemm)), *spec.cuda, *matched, {}, {}});
  // The inputs of the body after the product are the operands after the matrices.
  if (matched->bias) state->bias = spec.cuda->allocate(spec.in[1 + *matched->bias].bytes());
  if (matched->relu_mask) {
    Builder b;
    const Value x = b.input(type);
    state->mask_kernel = elementwise_program_cuda(b.take(Values{relu_mask(x)}), spec);
  }
  return [state](const void* const* in, void* const* out) {
    const State& s = *state;
    const MatchedEpilogue& m = s.matched;
    CudaGemm::Extras extras;
    if (m.bias) extras.bias = in[1 + *m.bias];
    if (reinterpret_cast<uintptr_t>(extras.bias) % CudaGemm::kBiasAlignment != 0) {
      s.lane.copy(s.bias->data(), extras.bias, s.bias->size());
      extras.bias = s.bias->data();
    }
    if (m.residual) extras.residual = in[1 + *m.residual];
    if (m.argument) extras.argument = const_cast<void*>(in[1 + *m.argument]);  // only read
    if (m.kept_argument) extras.argument = out[*m.kept_argument];
    s.product.run(in, out[m.result], extras);
    const void* const made = out[m.result];
    if (m.relu_mask) s.mask_kernel(&made, &out[*m.relu_mask]);
  };
}

}  // namespace

std::function<void(const void* const* in, void* out)> product_cuda(const KernelSpec& spec, const Type& result) {
  return [product = std::make_shared<const CudaProduct>(spec, result)](const void* const* in, void* out) {
    product->run(in, out);
  };
}

Kernel einsum_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  return [product = product_cuda(spec, spec.out[0])](const void* const* in, void* const* out) { product(in, out[0]); };
}

Kernel einsum_fused_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  const Program& body = spec.attrs.program("body");
  if (Kernel kernel = by_epilogue(spec, body)) return kernel;
  return then_body(product_cuda(spec, body.types[body.inputs[0]]), 2, body, spec);
}

}  // namespace lockstep
