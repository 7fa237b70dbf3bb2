// Cross-entropy on the GPU: a warp computes a row of few classes, a thread block one of many.
#include <fmt/format.h>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

// The step for arrays that are aligned to 16 bytes, or not.
CudaStep loss_step(bool gradient, const KernelSpec& spec, bool aligned) {
  const DType dtype = spec.in[0].dtype;
  const int64_t classes = spec.in[0].shape.back(), rows = count(spec.in[1].shape);
  const int64_t width = classes <= cost_model::kWarpClasses ? 32 : kStepThreads;
  CudaStep step;
  step.name = gradient ? "cross_entropy_grad" : "cross_entropy";
  step.prelude = fmt::format(
      R"(#include "cross_entropy.cuh"
using namespace lockstep;
struct Rows {{
  using T = {memory};
  using Label = {label};
  using R = {number};
  static constexpr uint64_t kRows = {rows}u;
  static constexpr uint32_t kClasses = {classes}u, kWidth = {width}, kThreads = {threads};
  static constexpr double kSmoothing = {smoothing:.17g};
  static constexpr bool kAligned = {aligned};
}};
using T = Rows::T;
using Label = Rows::Label;
using R = Rows::R;
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("label", memory_type(spec.in[1].dtype)),
      fmt::arg("number", register_name(dtype)), fmt::arg("rows", rows), fmt::arg("classes", classes),
      fmt::arg("width", width), fmt::arg("threads", kStepThreads),
      fmt::arg("smoothing", spec.attrs.get<double>("smoothing")), fmt::arg("aligned", aligned));
  step.blocks = (rows * width + kStepThreads - 1) / kStepThreads;
  for (size_t i = 0; i < spec.in.size(); ++i) step.arguments.push_back({CudaStep::Argument::operand, i});
  for (size_t o = 0; o < spec.out.size(); ++o) step.arguments.push_back({CudaStep::Argument::result, o});
  step.parameters = gradient ? "const T* in0, const Label* in1, const R* in2, const R* in3, T* out0"
                             : "const T* in0, const Label* in1, R* out0, R* out1";
  step.body = fmt::format("  CrossEntropy<Rows>::{};\n",
                          gradient ? "gradient(in0, in1, in2, in3, out0)" : "loss(in0, in1, out0, out1)");
  return step;
}

Kernel loss_kernel(bool gradient, const KernelSpec& spec) {
  if (count(spec.in[1].shape) == 0) return [](const void* const*, void* const*) {};
  // `other` is made by the first call with other arrays.
  return [wide = LaunchedSteps(*spec.cuda, {loss_step(gradient, spec, true)}), other = Kernel(),
          step = loss_step(gradient, spec, false), gradient,
          lane = spec.cuda](const void* const* in, void* const* out) mutable {
    const uintptr_t result = gradient ? reinterpret_cast<uintptr_t>(out[0]) : 0;
    if ((reinterpret_cast<uintptr_t>(in[0]) | result) % 16 == 0) return wide(in, out);
    if (!other) other = LaunchedSteps(*lane, {step});
    other(in, out);
  };
}

}  // namespace

std::string cross_entropy_text(bool gradient, const KernelSpec& spec) {
  return text_of(loss_step(gradient, spec, true));
}

Kernel cross_entropy_cuda(const KernelSpec& spec) { return loss_kernel(false, spec); }
Kernel cross_entropy_grad_cuda(const KernelSpec& spec) { return loss_kernel(true, spec); }

}  // namespace lockstep
