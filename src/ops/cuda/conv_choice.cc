#include "ops/cuda/conv_choice.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

#include "lane/cuda/autotune.h"
#include "lane/cuda/conv_cuda.h"
#include "ops/cuda/conv_direct_text.h"
#include "ops/cuda/conv_image_text.h"
#include "ops/cuda/conv_text.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// Computes out, the convolution of a and b, the operands in the order of the pass.
using ConvWork = std::function<void(const void* a, const void* b, void* out)>;

std::atomic<ConvBackend> selected_backend = ConvBackend::fastest;

ConvMath math_of(DType dtype, const CudaInfo& gpu) {
  if (dtype == DType::f64 || gpu.major < 8) return ConvMath::fma;
  if (dtype == DType::f32) return cuda_math() == CudaMath::tf32 ? ConvMath::tf32 : ConvMath::fma;
  return ConvMath::half;
}

// A kernel of this library: its text, and the function that prepares it.
struct OwnConv {
  std::string text;
  std::function<Kernel()> kernel;
};

int64_t results_of(ConvPass pass, const ConvSpec& conv) { return conv_layout(pass, conv, ConvMath::fma).results; }

// The convolution, then `body` in a second kernel.
Kernel conv_then_body(ConvWork conv, const KernelSpec& spec, const Program* body) {
  if (!body) return [conv = std::move(conv)](const void* const* in, void* const* out) { conv(in[0], in[1], out[0]); };
  return then_body([conv = std::move(conv)](const void* const* in, void* out) { conv(in[0], in[1], out); }, 2, *body,
                   spec);
}

// Adds up partial sums [splits, results] after the kernel that computes them.
ConvWork then_summed(CudaStream& lane, const ConvLayout& layout, DType dtype,
                     const std::function<void(const void* a, const void* b, const void* parts)>& products) {
  const CudaFunction sums = kernel_of(conv_sum_text(layout, dtype), lane);
  const BufferPtr parts = lane.allocate(layout.splits * layout.results * (dtype == DType::f64 ? 8 : 4));
  return [=, &lane](const void* a, const void* b, void* out) {
    const void* const middle = parts->data();
    products(a, b, middle);
    void* more[] = {argument(middle), argument(out)};
    sums.launch(lane, conv_sum_blocks(layout), kConvSumThreads, more);
  };
}

// The kernels of conv_image_text.h. Returns nullopt if they do not support the case, or if `body` needs other elements
// of the result than its own.
std::optional<OwnConv> by_image(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec, const Program* body) {
  CudaStream& lane = *spec.cuda;
  if (math_of(conv.dtype, lane.info()) == ConvMath::fma) return {};
  const char* type = memory_type(conv.dtype);
  CudaStep step;
  step.name = "conv";
  step.parameters = fmt::format("const {}* a, const {}* b", type, type);
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 1}};
  if (pass == ConvPass::filter_grad) {
    const auto made = conv_filter_step(conv, lane.info().processors, lane.info().shared);
    if (!made || body) return {};
    step.prelude = made->prelude;
    step.parameters += ", float* parts";
    step.body = fmt::format("  {}(block, a, b, parts, shared);\n", made->call);
    ConvLayout layout;
    layout.splits = made->splits;
    layout.results = results_of(pass, conv);
    const std::string text = text_of(step);
    return OwnConv{text, [=, &lane, &spec] {
                     const CudaFunction products = kernel_of(text, lane);
                     const auto multiply = [=, &lane](const void* a, const void* b, const void* parts) {
                       void* arguments[] = {argument(a), argument(b), argument(parts)};
                       products.launch(lane, made->blocks, kStepThreads, arguments, made->shared_bytes);
                     };
                     return conv_then_body(then_summed(lane, layout, conv.dtype, multiply), spec, nullptr);
                   }};
  }
  const auto made = conv_image_step(pass, conv, lane.info().shared);
  if (!made) return {};
  Builder b;
  const Program as_it_is = b.take(Values{b.input(spec.out[0])});
  if (!add_finish(step, *made, body ? *body : as_it_is, 2)) return {};
  // Launched by itself, not a task of a persistent kernel: then several thread blocks share a multiprocessor.
  return OwnConv{text_of(step), [step, &lane] { return LaunchedSteps(lane, {step}); }};
}

OwnConv by_own_kernel(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec, const Program* body) {
  if (auto image = by_image(pass, conv, spec, body)) return *std::move(image);
  CudaStream& lane = *spec.cuda;
  const ConvMath math = math_of(conv.dtype, lane.info());
  const bool direct = has_direct_conv(conv);
  if (direct && body)
    if (const auto step = conv_direct_step(conv, *body))
      return {text_of(*step), [step = *step, &lane] { return LaunchedSteps(lane, {step}); }};
  const std::string text = direct ? conv_direct_text(pass, conv) : conv_text(pass, conv, math);
  return {text, [=, &lane, &spec] {
            const ConvLayout layout = direct ? conv_direct_layout(pass, conv) : conv_layout(pass, conv, math);
            const CudaFunction products = kernel_of(text, lane);
            const auto multiply = [=, &lane](const void* a, const void* b, const void* out) {
              void* arguments[] = {argument(a), argument(b), argument(out)};
              products.launch(lane, layout.blocks, layout.threads, arguments);
            };
            ConvWork work = multiply;
            if (layout.splits > 1) work = then_summed(lane, layout, conv.dtype, multiply);
            return conv_then_body(std::move(work), spec, body);
          }};
}

// In cuDNN's filters the output channels come first.
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
  // Tools that report reads of uninitialized memory do not see all writes of cuDNN.
  spec.cuda->clear(filter->data(), Type{conv.dtype, ours}.bytes());
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

// "own", or "cudnn 1 0 4096": algorithm, math type, bytes of workspace.
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

bool is_choice(const std::string& text) { return text.starts_with("own") || from_text(text); }

// The fastest algorithm of cuDNN, or nullopt if it is not clearly faster than this library's kernel.
std::optional<CudaConv::Algorithm> measure(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec,
                                           const Program* body, ConvBackend by, const OwnConv& own) {
  CudaStream& lane = *spec.cuda;
  std::vector<BufferPtr> held;
  const auto memory = [&](int64_t bytes) {
    held.push_back(lane.allocate(bytes));
    lane.clear(held.back()->data(), bytes);
    return held.back()->data();
  };
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Type& type : spec.in) in.push_back(memory(type.bytes()));
  for (const Type& type : spec.out) out.push_back(memory(type.bytes()));
  const auto found =
      CudaConv::find(lane, pass, conv, cuda_math(), in[0], in[1], memory(results_of(pass, conv) * size_of(conv.dtype)));
  if (!found || by == ConvBackend::cudnn) return found;
  const Kernel theirs = conv_then_body(by_dnn(pass, conv, spec, *found), spec, body), ours = own.kernel();
  try {
    const TimedGraph time_theirs(lane, [&] { theirs(in.data(), out.data()); });
    const TimedGraph time_ours(lane, [&] { ours(in.data(), out.data()); });
    return is_clearly_faster(time_theirs, time_ours) ? found : std::nullopt;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {  // an algorithm that cannot be captured is not used
    return {};
  }
}

std::optional<CudaConv::Algorithm> choice_of(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec,
                                             const Program* body, const OwnConv& own) {
  const ConvBackend by = selected_backend.load();
  if (by == ConvBackend::own || CudaConv::version() == 0 || spec.cuda->capturing()) return {};
  if (by == ConvBackend::cudnn) return measure(pass, conv, spec, body, by, own);
  static std::mutex mutex;
  static auto* const choices = new AutotuneCache("conv");
  const std::lock_guard lock(mutex);  // each convolution is timed once
  const std::string what = fmt::format("{} cudnn {} {}\n{}", spec.cuda->info().name, CudaConv::version(),
                                       cuda_math() == CudaMath::tf32, own.text);
  std::string text = choices->find(what, is_choice);
  if (text.empty()) {
    try {
      text = choices->store(what, to_text(measure(pass, conv, spec, body, by, own)));
    } catch (const OutOfMemory&) {
      return {};  // memory may suffice for the convolution without timing; the next run times again
    }
  }
  return from_text(text);
}

}  // namespace

void set_conv_backend(ConvBackend to) { selected_backend = to; }

Kernel prepare_conv(ConvPass pass, const ConvSpec& conv, const KernelSpec& spec, const Program* body) {
  const OwnConv own = by_own_kernel(pass, conv, spec, body);
  if (const auto algorithm = choice_of(pass, conv, spec, body, own))
    return conv_then_body(by_dnn(pass, conv, spec, *algorithm), spec, body);
  return own.kernel();
}

}  // namespace lockstep
