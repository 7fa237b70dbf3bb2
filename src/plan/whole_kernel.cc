#include "plan/whole_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "lane/cuda/code.h"
#include "ops/cuda/text.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kRounds = 8;             // that a processor's block takes part in a step, at most
constexpr double kMostOperations = 1.5e9;  // of one product
constexpr size_t kMostPointers = 480;      // 4 KiB of parameters

size_t pointers_of(const SteppedKernel& kernel) {
  size_t out = 0;
  for (const CudaStep& step : kernel.steps()) out += step.arguments.size();
  return out;
}

// A kernel is started before the one before it is done (CudaFunction::launch), and that one says from when on: then
// nothing is lost between the two.
constexpr const char* kOneAfterAnother = R"(
inline void after_the_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
inline void before_the_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
)";

// Blocks wait here for each other: the word counts all that have come, on and on from kernel to kernel.
constexpr const char* kMeet = R"(
inline void meet(uint64_t* word, uint64_t& all) {
  all += gridDim.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint64_t now;
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(word) : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
    } while (now < all);
  }
  __syncthreads();
}
)";

// The numbers of the pointers of each step.
std::vector<std::vector<size_t>> first_pointers(std::span<const WholePart> parts) {
  std::vector<std::vector<size_t>> out;
  size_t at = 0;
  for (const WholePart& part : parts) {
    out.emplace_back();
    for (const CudaStep& step : part.kernel->steps()) {
      out.back().push_back(at);
      at += step.arguments.size();
    }
  }
  return out;
}

// "const float* in0, float* out0" -> its types.
std::vector<std::string> types_of(const std::string& parameters) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < parameters.size();) {
    size_t end = parameters.find(", ", begin);
    if (end == std::string::npos) end = parameters.size();
    const std::string one = parameters.substr(begin, end - begin);
    out.push_back(one.substr(0, one.find('*') + 1));
    begin = end + 2;
  }
  return out;
}

}  // namespace

bool may_join(const SteppedKernel& kernel, int processors) {
  return std::all_of(kernel.steps().begin(), kernel.steps().end(), [&](const CudaStep& step) {
    return step.blocks <= processors * kRounds && step.operations <= kMostOperations;
  });
}

bool fits_whole(std::span<const WholePart> parts) {
  size_t pointers = 0;
  for (const WholePart& part : parts) pointers += pointers_of(*part.kernel);
  return pointers <= kMostPointers;
}

std::string whole_text(std::span<const WholePart> parts, std::span<const Phase> phases) {
  const std::vector<std::vector<size_t>> pointers = first_pointers(parts);
  std::vector<std::string> preludes;
  std::string functions;
  size_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p)
    for (size_t k = 0; k < parts[p].kernel->steps().size(); ++k) {
      const CudaStep& step = parts[p].kernel->steps()[k];
      if (std::find(preludes.begin(), preludes.end(), step.prelude) == preludes.end()) preludes.push_back(step.prelude);
      functions += fmt::format(
          "inline void step_{}_{}(const uint32_t block, {}) {{\n  extern __shared__ __align__(16) char "
          "shared[];\n{}}}\n",
          p, k, step.parameters, step.body);
      count += step.arguments.size();
    }
  const auto call = [&](const WholeStep& at, const std::string& block) {
    const CudaStep& step = parts[at.part].kernel->steps()[at.step];
    const std::vector<std::string> types = types_of(step.parameters);
    LOCKSTEP_CHECK(types.size() == step.arguments.size(), "{} parameters for {} arguments", types.size(),
                   step.arguments.size());
    std::string arguments;
    for (size_t i = 0; i < types.size(); ++i)
      arguments += fmt::format(", ({})all.p[{}]", types[i], pointers[at.part][at.step] + i);
    return fmt::format("step_{}_{}({}{});", at.part, at.step, block, arguments);
  };
  std::string body;
  for (size_t i = 0; i < phases.size(); ++i) {
    if (i > 0) body += "  meet(word, all_came);\n";
    if (i + 1 == phases.size()) body += "  before_the_next();\n";
    int64_t tasks = 0;
    std::string chosen;
    for (const Task& task : phases[i]) {
      std::string done;
      int64_t blocks = 1;
      bool shares = is_chain(parts, task);
      if (!shares) {
        for (const WholeStep& each : task) {
          const CudaStep& step = parts[each.part].kernel->steps()[each.step];
          blocks = step.blocks;
          shares |= step.shared_bytes > 0;
          done += "      " + call(each, fmt::format("t - {}u", tasks)) + "\n";
        }
      } else {
        for (const WholeStep& each : task) {
          const CudaStep& step = parts[each.part].kernel->steps()[each.step];
          done += fmt::format("      for (uint32_t b = 0; b < {}u; ++b) {{\n        {}\n{}      }}\n", step.blocks,
                              call(each, "b"), step.shared_bytes > 0 ? "        __syncthreads();\n" : "");
          if (step.shared_bytes == 0) done += "      __syncthreads();\n";
        }
      }
      if (shares) done += "      __syncthreads();\n";
      tasks += blocks;
      chosen += fmt::format("{}if (t < {}u) {{\n{}    }}", chosen.empty() ? "    " : " else ", tasks, done);
    }
    body += fmt::format("  for (uint32_t t = blockIdx.x; t < {}u; t += gridDim.x) {{\n{}\n  }}\n", tasks, chosen);
  }
  std::string out;
  for (const std::string& prelude : preludes) out += prelude;
  return out + kOneAfterAnother + kMeet + functions +
         fmt::format(
             "struct All {{\n  void* p[{}];\n}};\nextern \"C\" __global__ void __launch_bounds__({}, 1) f(const "
             "__grid_constant__ All all, uint64_t* word) {{\n  after_the_last();\n  uint64_t all_came = *word / "
             "gridDim.x * gridDim.x;  // "
             "as long "
             "as this block has not\n{}}}\n",
             std::max<size_t>(count, 1), kStepThreads, body);
}

Kernel whole_kernel(CudaLane& lane, std::span<const WholePart> parts, std::span<const Phase> phases) {
  struct Source {
    CudaStep::Argument::Kind kind;
    size_t index;
    const void* own;
  };
  struct State {
    CudaLane& lane;
    CudaFunction function;
    std::vector<Kernel> kernels;  // whose memory is used
    std::vector<Source> sources;
    int64_t shared_bytes = 0;
    BufferPtr word;
    std::vector<const void*> pointers;
  };
  LOCKSTEP_CHECK(fits_whole(parts), "too many pointers for a kernel");
  auto state = std::make_shared<State>(State{lane, kernel_of(whole_text(parts, phases), lane), {}, {}, 0, {}, {}});
  for (const WholePart& part : parts) {
    state->kernels.emplace_back(*part.kernel);
    for (const CudaStep& step : part.kernel->steps()) {
      state->shared_bytes = std::max(state->shared_bytes, step.shared_bytes);
      for (const CudaStep::Argument& argument : step.arguments) {
        if (argument.kind == CudaStep::Argument::own)
          state->sources.push_back({argument.kind, 0, part.kernel->own(argument.index)});
        else
          state->sources.push_back(
              {argument.kind,
               (argument.kind == CudaStep::Argument::operand ? part.operands : part.results)[argument.index], nullptr});
      }
    }
  }
  state->pointers.resize(state->sources.size());
  state->word = lane.allocate(sizeof(uint64_t));
  lane.clear(state->word->data(), sizeof(uint64_t));
  return [state](const void* const* from, void* const* to) {
    for (size_t i = 0; i < state->sources.size(); ++i) {
      const Source& source = state->sources[i];
      state->pointers[i] = source.kind == CudaStep::Argument::operand  ? from[source.index]
                           : source.kind == CudaStep::Argument::result ? to[source.index]
                                                                       : source.own;
    }
    void* word = state->word->data();
    void* arguments[] = {state->pointers.data(), &word};
    state->function.launch(state->lane, state->lane.info().processors, kStepThreads, arguments, state->shared_bytes,
                           true);
  };
}

std::vector<Joined> joined(CudaLane& lane, const std::vector<GpuInstruction>& instructions) {
  std::vector<Joined> out;
  const char* set = std::getenv("LOCKSTEP_CUDA_KERNELS");
  const std::string_view wanted = set ? set : "";
  if (wanted == "apart") return out;
  if (!wanted.empty() && wanted != "whole")
    throw_error("cuda: LOCKSTEP_CUDA_KERNELS is \"{}\"; give apart or whole", wanted);
  std::vector<WholePart> parts;
  const auto finish = [&](size_t end) {
    if (parts.size() > 1) {
      std::deque<SteppedKernel> made;
      std::vector<WholePart> all = in_ranges(parts, lane.info().processors, made);
      // Products of one phase are made anew, each for its share of the GPU.
      for (const auto& [part, processors] : shares_of(all, phases_of(all), lane.info().processors))
        all[part].kernel = &made.emplace_back(all[part].kernel->on(processors));
      const std::vector<Phase> phases = phases_of(all);
      out.push_back({end - parts.size(), parts.size(), whole_kernel(lane, all, phases),
                     fmt::format("one kernel of {} instructions in {} phases", parts.size(), phases.size())});
    }
    parts.clear();
  };
  // Operands are numbered one instruction after the other, and so are results.
  size_t operands = 0, results = 0;
  const auto add = [&](const SteppedKernel* kernel, const GpuInstruction& each) {
    if (parts.empty()) operands = results = 0;
    WholePart part{kernel, each.in, each.out, {}, {}};
    for (size_t i = 0; i < each.in.size(); ++i) part.operands.push_back(operands++);
    for (size_t i = 0; i < each.out.size(); ++i) part.results.push_back(results++);
    parts.push_back(std::move(part));
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const GpuInstruction& each = instructions[i];
    const auto* kernel = each.kernel->target<SteppedKernel>();
    if (!kernel || !may_join(*kernel, lane.info().processors)) {
      finish(i);
      continue;
    }
    add(kernel, each);
    if (fits_whole(parts)) continue;
    parts.pop_back();
    finish(i);
    add(kernel, each);
  }
  finish(instructions.size());
  return out;
}

}  // namespace lockstep::detail
