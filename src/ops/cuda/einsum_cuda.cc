// Contractions on the GPU: a matrix product by cuBLASLt, with copies before and after where axes have to change places,
// and an elementwise program on its result.
#include <memory>
#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/contraction.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/text.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// An array whose axes change places.
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

class CudaProduct {
 public:
  CudaProduct(const KernelSpec& spec, const Type& result)
      : plan_(contraction(spec.attrs.get<std::string>("spec"), spec.in[0], spec.in[1])), lane_(spec.cuda) {
    const Type& a = spec.in[plan_.swapped ? 1 : 0];
    const Type& b = spec.in[plan_.swapped ? 0 : 1];
    bytes_ = result.bytes();
    const GemmSpec& g = plan_.gemm;
    if (bytes_ > 0 && g.k > 0) gemm_.emplace(*spec.cuda, g, cuda_math());
    if (plan_.copy_a) a_.emplace(spec, a, *plan_.copy_a);
    if (plan_.copy_b) b_.emplace(spec, b, *plan_.copy_b);
    if (plan_.copy_c) c_.emplace(spec, Type{result.dtype, plan_.product}, *plan_.copy_c);
  }

  void run(const void* const* in, void* out) const {
    if (!gemm_) return lane_->clear(out, bytes_);
    const void* a = in[plan_.swapped ? 1 : 0];
    const void* b = in[plan_.swapped ? 0 : 1];
    const auto reordered = [](const std::optional<CudaReorder>& how, const void* from) {
      if (!how) return from;
      void* to = how->buffer->data();
      how->kernel(&from, &to);
      return static_cast<const void*>(to);
    };
    gemm_->run(reordered(a_, a), reordered(b_, b), c_ ? static_cast<void*>(c_->buffer->data()) : out);
    if (!c_) return;
    const void* from = c_->buffer->data();
    c_->kernel(&from, &out);
  }

 private:
  Contraction plan_;
  CudaLane* lane_;
  int64_t bytes_ = 0;
  std::optional<CudaGemm> gemm_;
  std::optional<CudaReorder> a_, b_, c_;
};

// A product and what is made of each of its elements, by a step of our own.
struct StepSpec {
  CudaLane* lane;
  GemmSpec gemm;
  bool swapped;
  DType dtype;
  Program body;
};

// By that text of a product. Nothing where other elements are wanted.
std::optional<CudaStep> finished(const StepSpec& spec, const GemmStep& product) {
  const char* type = memory_type(spec.dtype);
  CudaStep step;
  step.name = "einsum";
  step.parameters = fmt::format("const {}* a, const {}* b", type, type);
  step.arguments = {{CudaStep::Argument::operand, spec.swapped ? size_t{1} : 0},
                    {CudaStep::Argument::operand, spec.swapped ? size_t{0} : 1}};
  const GemmSpec& g = spec.gemm;
  step.operations = 2.0 * static_cast<double>(g.batch * g.m * g.n) * static_cast<double>(g.k);
  if (!add_finish(step, product, spec.body, 2)) return {};
  return step;
}

// On so many processors. Nothing where the tensor cores are not for it.
std::optional<SteppedKernel> stepped(const StepSpec& spec, int processors, Kernel apart,
                                     SteppedKernel::Remake remake = {}, CudaRanges ranges = {}) {
  const std::optional<GemmStep> product = gemm_step(spec.gemm, processors, spec.lane->info().shared - kStepReserved);
  if (!product) return {};
  std::optional<CudaStep> step = finished(spec, *product);
  if (!step) return {};
  std::vector<BufferPtr> own;
  if (product->partial_bytes > 0) {
    own.push_back(spec.lane->allocate(product->partial_bytes));
    spec.lane->clear(own[0]->data(), product->partial_bytes);
  }
  return SteppedKernel(spec.lane, {*std::move(step)}, std::move(own), std::move(apart), std::move(remake),
                       std::move(ranges));
}

// Row by row, where the second matrix is small.
CudaRanges ranges_of(const StepSpec& spec) {
  const std::optional<RowProduct> rows = row_product(spec.gemm);
  const Shape& shape = spec.body.types[spec.body.outputs[0]].shape;
  if (!rows || shape.empty() || shape[0] == 0 || rows->most % shape[0] != 0) return {};
  CudaRanges out{.most = shape[0], .least = rows->least, .own = {spec.swapped ? size_t{1} : 0}, .step = {}};
  for (size_t i : own_inputs(spec.body))
    if (i > 0) out.own.push_back(i + 1);
  out.step = [spec](int64_t count) { return *finished(spec, row_product_step(spec.gemm, count)); };
  return out;
}

// With a step, where it is a product of matrices that are read as they lie.
Kernel with_step(const KernelSpec& spec, const Program& body, Kernel apart) {
  const Contraction plan = contraction(spec.attrs.get<std::string>("spec"), spec.in[0], spec.in[1]);
  if (plan.copy_a || plan.copy_b || plan.copy_c) return apart;
  if (plan.gemm.dtype == DType::f32 && cuda_math() != CudaMath::tf32) return apart;
  if (spec.cuda->info().major < 8) return apart;
  const StepSpec step{spec.cuda, plan.gemm, plan.swapped, spec.in[0].dtype, body};
  std::optional<SteppedKernel> kernel = stepped(
      step, spec.cuda->info().processors, apart, [step](int processors) { return *stepped(step, processors, {}); },
      ranges_of(step));
  return kernel ? Kernel(*std::move(kernel)) : apart;
}

}  // namespace

Kernel einsum_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  auto product = std::make_shared<const CudaProduct>(spec, spec.out[0]);
  Builder b;
  const Program as_it_is = b.take(Values{b.input(spec.out[0])});
  return with_step(spec, as_it_is, [product](const void* const* in, void* const* out) { product->run(in, out[0]); });
}

Kernel einsum_fused_cuda(const KernelSpec& spec) {
  if (!CudaGemm::supports(spec.in[0].dtype)) return {};
  const Program& body = spec.attrs.program("body");
  auto product = std::make_shared<const CudaProduct>(spec, body.types[body.inputs[0]]);
  return with_step(spec, body,
                   then_body([product](const void* const* in, void* out) { product->run(in, out); }, 2, body, spec));
}

}  // namespace lockstep
