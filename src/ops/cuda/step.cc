#include "ops/cuda/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "lane/cuda/code.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/text.h"

namespace lockstep {

std::string text_of(const CudaStep& step) {
  return fmt::format(
      "{}extern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n"
      "  extern __shared__ __align__(16) char shared[];\n"
      "  const uint32_t block = blockIdx.x;\n{}{}}}\n",
      step.prelude, kStepThreads, kernel_name(step.name), step.parameters,
      step.prefetches.empty() ? "" : "  constexpr uint32_t prefetched = 0;\n", step.body);
}

std::vector<std::pair<std::string, std::string>> parameters_of(const CudaStep& step) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::string& all = step.parameters;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(", ", begin), all.size()), star = all.find('*', begin) + 1;
    out.emplace_back(all.substr(begin, star - begin), all.substr(star + 1, end - star - 1));
    begin = end + 2;
  }
  return out;
}

std::string CudaSource::text(bool only_one) const {
  std::string parameters;
  for (size_t k = 0; k < types.size(); ++k)
    parameters += fmt::format("{}{} in{}", k > 0 ? ", " : "", types[k], operands[k]);
  return fmt::format("[]({}) {{\n  return [=](const uint32_t i, {} {}) {{\n{}  }};\n  }}", parameters, type,
                     only_one ? "&x" : "(&x)[4]", only_one ? one : body);
}

std::string CudaSource::applied(const std::function<std::string(size_t operand)>& name) const {
  std::string out;
  for (const size_t operand : operands) out += (out.empty() ? "" : ", ") + name(operand);
  return "(" + out + ")";
}

CudaElements CudaElements::flat(int64_t n, int64_t most) {
  using cost_model::kElementProcessors;
  const int64_t together = n <= kStepThreads * most ? kStepThreads : kStepThreads * kElementProcessors;
  const int64_t each = std::clamp<int64_t>((n + together - 1) / together, 1, most);
  return {n, each * kStepThreads, each};
}

CudaElements CudaElements::in_ranges(int64_t n, int64_t most, int64_t count, bool by_warp) {
  const int64_t own = n / count, threads = by_warp ? 32 : kStepThreads;
  return {n, own, std::clamp<int64_t>((own + threads - 1) / threads, 1, most), by_warp};
}

int64_t CudaElements::least_ranges(int64_t n) {
  constexpr int64_t kMost = kStepThreads * cost_model::kRangeElementsPerThread;
  return (n + kMost - 1) / kMost;
}

std::string CudaElements::text(const std::string& state, const std::string& read, const std::string& finish) const {
  const char* index = index_type(n);
  const int threads = by_warp ? 32 : kStepThreads;
  const std::string each_of = fmt::format(
      "#pragma unroll\n  for (int e = 0; e < {}; ++e)\n    if (const {} i = first + e * {}u; i < end) {{\n      ",
      of_thread, index, threads);
  const bool once = of_block <= of_thread * threads;
  return fmt::format(
      "  {index} end = {index}(block + 1) * {own}u;\n  end = end < {n}u ? end : {n}u;\n"
      "  {index} first = {index}(block) * {own}u + threadIdx.x{lane};\n"
      "{loop}  {state} all[{each}] = {{}};\n{each_of}{state}& r = all[e];\n{read}    }}\n{each_of}const {state}& r = "
      "all[e];\n{finish}    }}\n{rest}",
      fmt::arg("index", index), fmt::arg("own", of_block), fmt::arg("n", n), fmt::arg("state", state),
      fmt::arg("each", of_thread), fmt::arg("each_of", each_of), fmt::arg("read", read), fmt::arg("finish", finish),
      fmt::arg("lane", by_warp ? " % 32u" : ""),
      fmt::arg("loop", once ? "" : fmt::format("  for (; first < end; first += {}u) {{\n", of_thread * threads)),
      fmt::arg("rest", once ? "" : "  }\n"));
}

struct LaunchedSteps::State {
  CudaStream& stream;
  std::vector<CudaStep> steps;
  std::vector<std::string> texts;
  std::vector<std::vector<BufferPtr>> workspaces;  // by step
  std::vector<CudaFunction> functions;             // loaded by the first call
  std::vector<const void*> pointers;
  std::vector<void*> arguments;
};

LaunchedSteps::LaunchedSteps(CudaStream& stream, std::vector<CudaStep> steps, std::vector<BufferPtr> workspaces)
    : state_(std::make_shared<State>(State{stream, std::move(steps), {}, {}, {}, {}, {}})) {
  size_t most = 0;
  for (const CudaStep& step : state_->steps) {
    most = std::max(most, step.arguments.size());
    begin_kernel(state_->texts.emplace_back(text_of(step)), stream);
    std::vector<BufferPtr>& own = state_->workspaces.emplace_back(workspaces);
    if (!own.empty()) continue;
    for (const int64_t bytes : step.workspaces) {
      own.push_back(stream.allocate(bytes));
      stream.clear(own.back()->data(), bytes);
    }
  }
  state_->pointers.resize(most);
  state_->arguments.resize(most);
}

void LaunchedSteps::operator()(const void* const* in, void* const* out) const {
  using Argument = CudaStep::Argument;
  State& s = *state_;
  while (s.functions.size() < s.steps.size()) s.functions.push_back(kernel_of(s.texts[s.functions.size()], s.stream));
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const CudaStep& step = s.steps[i];
    for (size_t k = 0; k < step.arguments.size(); ++k) {
      const Argument& argument = step.arguments[k];
      s.pointers[k] = argument.kind == Argument::operand  ? in[argument.index]
                      : argument.kind == Argument::result ? out[argument.index]
                                                          : s.workspaces[i][argument.index]->data();
      s.arguments[k] = &s.pointers[k];
    }
    s.functions[i].launch(s.stream, step.blocks, kStepThreads, s.arguments.data(), step.shared_bytes);
  }
}

}  // namespace lockstep
