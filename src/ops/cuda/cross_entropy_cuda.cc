// Cross-entropy on the GPU: a warp computes a row of few classes, a thread block one of many. If the cotangent of the
// loss does not depend on the loss, as that of a mean, one kernel computes both the loss and its gradient.
#include <fmt/format.h>

#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "ops/cuda/combined.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// The rows as the type C of cross_entropy.cuh, for arrays that are aligned to 16 bytes, or not.
CudaStep rows_step(const char* name, const Type& logits, const Type& labels, double smoothing, bool aligned) {
  const DType dtype = logits.dtype;
  const int64_t classes = logits.shape.back(), rows = count(labels.shape);
  const int64_t width = classes <= cost_model::kWarpClasses ? 32 : kStepThreads;
  const int64_t row_bytes = classes * size_of(dtype);
  const bool held =
      aligned && width == kStepThreads && row_bytes % 16 == 0 && row_bytes <= cost_model::kHeldLogitsBytes;
  CudaStep step;
  step.name = name;
  step.prelude = fmt::format(
      R"(#include "cross_entropy.cuh"
using namespace lockstep;
struct Rows {{
  using T = {memory};
  using Label = {label};
  using Index = {index};
  using R = {number};
  static constexpr uint64_t kRows = {rows}u;
  static constexpr Index kClasses = {classes}u;
  static constexpr uint32_t kWidth = {width}, kThreads = {threads};
  static constexpr double kSmoothing = {smoothing:.17g};
  static constexpr bool kAligned = {aligned}, kApproximate = {approximate}, kHeld = {held};
}};
using T = Rows::T;
using Label = Rows::Label;
using R = Rows::R;
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("label", memory_type(labels.dtype)),
      fmt::arg("number", register_name(dtype)), fmt::arg("rows", rows), fmt::arg("classes", classes),
      fmt::arg("index", index_type(classes)), fmt::arg("width", width), fmt::arg("threads", kStepThreads),
      fmt::arg("smoothing", smoothing), fmt::arg("aligned", aligned),
      fmt::arg("approximate", is_16_bit(dtype) && cuda_math() != CudaMath::full), fmt::arg("held", held));
  step.blocks = (rows * width + kStepThreads - 1) / kStepThreads;
  step.shared_bytes = held ? row_bytes : 0;
  return step;
}

CudaStep loss_step(bool gradient, const KernelSpec& spec, bool aligned) {
  CudaStep step = rows_step(gradient ? "cross_entropy_grad" : "cross_entropy", spec.in[0], spec.in[1],
                            spec.attrs.get<double>("smoothing"), aligned);
  step.shared_bytes = 0;
  for (size_t i = 0; i < spec.in.size(); ++i) step.arguments.push_back({CudaStep::Argument::operand, i});
  for (size_t o = 0; o < spec.out.size(); ++o) step.arguments.push_back({CudaStep::Argument::result, o});
  step.parameters = gradient ? "const T* in0, const Label* in1, const R* in2, const R* in3, T* out0"
                             : "const T* in0, const Label* in1, R* out0, R* out1";
  step.body = fmt::format("  CrossEntropy<Rows>::{};\n",
                          gradient ? "gradient(in0, in1, in2, in3, out0)" : "loss(in0, in1, out0, out1)");
  return step;
}

// The kernel of a step, for arrays that are aligned to 16 bytes or not; the latter is made by the first call with such
// arrays. `result`: the one that has the type of the logits, if there is one.
template <class MakeStep>
Kernel for_any_alignment(CudaStream& stream, size_t logits, std::optional<size_t> result, const MakeStep& step) {
  return [wide = LaunchedSteps(stream, {step(true)}), other = Kernel(), narrow = step(false), logits, result, &stream](
             const void* const* in, void* const* out) mutable {
    const uintptr_t to = result ? reinterpret_cast<uintptr_t>(out[*result]) : 0;
    if ((reinterpret_cast<uintptr_t>(in[logits]) | to) % 16 == 0) return wide(in, out);
    if (!other) other = LaunchedSteps(stream, {narrow});
    other(in, out);
  };
}

Kernel loss_kernel(bool gradient, const KernelSpec& spec) {
  if (count(spec.in[1].shape) == 0) return [](const void* const*, void* const*) {};
  return for_any_alignment(*spec.cuda, 0, gradient ? std::optional<size_t>(0) : std::nullopt,
                           [&](bool aligned) { return loss_step(gradient, spec, aligned); });
}

// Where the kernel of both finds its operands and results.
struct BothRows {
  size_t logits, labels, dloss, gradient;
  std::optional<size_t> loss, lse;
  double smoothing;

  explicit BothRows(const CombinedBody& body) {
    const Eqn &forward = *body.find(cross_entropy_op), &backward = *body.find(cross_entropy_grad_op);
    logits = body.operand(forward.in[0]);
    labels = body.operand(forward.in[1]);
    dloss = body.operand(backward.in[3]);
    gradient = *body.result(backward.out[0]);
    loss = body.result(forward.out[0]);
    lse = body.result(forward.out[1]);
    smoothing = forward.attrs.get<double>("smoothing");
  }
};

CudaStep both_step(const KernelSpec& spec, bool aligned) {
  using Argument = CudaStep::Argument;
  const BothRows rows{CombinedBody(spec)};
  CudaStep step =
      rows_step("cross_entropy_and_grad", spec.in[rows.logits], spec.in[rows.labels], rows.smoothing, aligned);
  step.parameters = "const T* logits, const Label* labels, const R* dloss, T* gradient";
  step.arguments = {{Argument::operand, rows.logits},
                    {Argument::operand, rows.labels},
                    {Argument::operand, rows.dloss},
                    {Argument::result, rows.gradient}};
  const auto optional = [&](const char* name, std::optional<size_t> result) {
    if (!result) return "nullptr";
    step.parameters += fmt::format(", R* {}", name);
    step.arguments.push_back({Argument::result, *result});
    return name;
  };
  const char *const loss = optional("loss", rows.loss), *const lse = optional("lse", rows.lse);
  step.body = fmt::format("  CrossEntropy<Rows>::loss_and_gradient(logits, labels, dloss, {}, {}, gradient, shared);\n",
                          loss, lse);
  return step;
}

CombinedEqns find_both(const ValueUses& uses, size_t first) {
  const Eqn& forward = uses.eqn(first);
  if (forward.op != &cross_entropy_op || count(uses.type(forward.in[1]).shape) == 0) return {};
  CombinedEqns out{{first}};
  for (const size_t i : uses.users(forward.out[1])) {
    const Eqn& eqn = uses.eqn(i);
    if (eqn.op == &cross_entropy_grad_op && eqn.in[0] == forward.in[0] && eqn.in[1] == forward.in[1] &&
        eqn.in[2] == forward.out[1] && eqn.in[3] != forward.out[0] && eqn.attrs == forward.attrs)
      out.eqns.push_back(i);
  }
  return out.eqns.size() == 2 ? out : CombinedEqns();
}

}  // namespace

std::string cross_entropy_text(bool gradient, const KernelSpec& spec) {
  return text_of(loss_step(gradient, spec, true));
}

constinit const CombinedKernel combined_cross_entropy = {
    .name = "cross_entropy_and_grad",
    .find = find_both,
    .alias =
        [](const Program& body, size_t in, size_t out) {
          const BothRows rows{CombinedBody(body)};
          return in == rows.logits && out == rows.gradient;
        },
    .cuda =
        [](const KernelSpec& spec) {
          const BothRows rows{CombinedBody(spec)};
          return for_any_alignment(*spec.cuda, rows.logits, rows.gradient,
                                   [&](bool aligned) { return both_step(spec, aligned); });
        },
};

Kernel cross_entropy_cuda(const KernelSpec& spec) { return loss_kernel(false, spec); }
Kernel cross_entropy_grad_cuda(const KernelSpec& spec) { return loss_kernel(true, spec); }

}  // namespace lockstep
