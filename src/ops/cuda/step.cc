#include "ops/cuda/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lane/cuda/code.h"
#include "ops/cuda/text.h"

namespace lockstep {

std::string text_of(const CudaStep& step) {
  return fmt::format(
      "{}extern \"C\" __global__ void __launch_bounds__({}) f({}) {{\n"
      "  extern __shared__ __align__(16) char shared[];\n"
      "  const uint32_t block = blockIdx.x;\n{}{}}}\n",
      step.prelude, kStepThreads, step.parameters, step.early.empty() ? "" : "  constexpr uint32_t early = 0;\n",
      step.body);
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
  constexpr int64_t kProcessors = 132;  // multiprocessors of a large GPU
  const int64_t together = n <= kStepThreads * most ? kStepThreads : kStepThreads * kProcessors;
  const int64_t each = std::clamp<int64_t>((n + together - 1) / together, 1, most);
  return {n, each * kStepThreads, each};
}

CudaElements CudaElements::in_ranges(int64_t n, int64_t most, int64_t count, bool by_warp) {
  const int64_t own = n / count, threads = by_warp ? 32 : kStepThreads;
  return {n, own, std::clamp<int64_t>((own + threads - 1) / threads, 1, most), by_warp};
}

int64_t CudaElements::least_ranges(int64_t n) {
  constexpr int64_t kMost = 32;
  return (n + kStepThreads * kMost - 1) / (kStepThreads * kMost);
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

struct SteppedKernel::State {
  CudaStream* lane;
  std::vector<CudaStep> steps;
  std::vector<BufferPtr> own;
  SteppedWays ways;
  // Compiled on first use: not needed if the steps become part of a persistent kernel.
  std::vector<CudaFunction> functions;
  std::vector<const void*> pointers;
  std::vector<void*> arguments;
};

SteppedKernel::SteppedKernel(CudaStream* lane, std::vector<CudaStep> steps, std::vector<BufferPtr> own,
                             SteppedWays ways)
    : state_(std::make_shared<State>(State{lane, std::move(steps), std::move(own), std::move(ways), {}, {}, {}})) {
  size_t most = 0;
  for (const CudaStep& step : state_->steps) most = std::max(most, step.arguments.size());
  state_->pointers.resize(most);
  state_->arguments.resize(most);
}

SteppedKernel SteppedKernel::on(int processors) const {
  return state_->ways.remake ? state_->ways.remake(processors) : *this;
}

const std::vector<CudaStep>& SteppedKernel::steps() const { return state_->steps; }
const CudaRanges& SteppedKernel::ranges() const { return state_->ways.ranges; }
const CudaSpread& SteppedKernel::spread() const {
  static const auto* const none = new CudaSpread;
  return state_->ways.spread ? *state_->ways.spread : *none;
}
std::optional<SteppedKernel> SteppedKernel::with_exchange(int64_t exchanged) const {
  return state_->ways.with_exchange ? state_->ways.with_exchange(exchanged) : std::nullopt;
}
bool SteppedKernel::is_source() const { return state_->ways.source != nullptr; }
std::optional<CudaSource> SteppedKernel::source(const std::vector<CudaSourced>& operands) const {
  return state_->ways.source ? state_->ways.source(operands) : std::nullopt;
}
std::optional<SteppedKernel> SteppedKernel::sourced(const std::vector<CudaSourced>& operands) const {
  return state_->ways.sourced ? state_->ways.sourced(operands) : std::nullopt;
}
std::optional<SteppedKernel> SteppedKernel::adding(size_t result) const {
  return state_->ways.adding ? state_->ways.adding(result) : std::nullopt;
}
bool SteppedKernel::adds_up() const { return state_->ways.of_added_up != nullptr; }
SteppedKernel SteppedKernel::of_added_up() const { return state_->ways.of_added_up(); }
std::optional<Type> SteppedKernel::adds_columns() const { return state_->ways.adds_columns; }
std::optional<size_t> SteppedKernel::by_columns() const { return state_->ways.by_columns; }
std::optional<SteppedKernel> SteppedKernel::with_columns(const CudaColumns& columns) const {
  return state_->ways.with_columns ? state_->ways.with_columns(columns) : std::nullopt;
}
const void* SteppedKernel::own(size_t index) const { return state_->own[index]->data(); }
const std::vector<BufferPtr>& SteppedKernel::memory() const { return state_->own; }
CudaStream* SteppedKernel::lane() const { return state_->lane; }

void SteppedKernel::begin() const {
  if (state_->ways.apart) return;
  for (const CudaStep& step : state_->steps) begin_kernel(text_of(step), *state_->lane);
}

void SteppedKernel::operator()(const void* const* in, void* const* out) const {
  State& s = *state_;
  if (s.ways.apart) return s.ways.apart(in, out);
  while (s.functions.size() < s.steps.size())
    s.functions.push_back(kernel_of(text_of(s.steps[s.functions.size()]), *s.lane));
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const CudaStep& step = s.steps[i];
    for (size_t k = 0; k < step.arguments.size(); ++k) {
      const CudaStep::Argument& argument = step.arguments[k];
      s.pointers[k] = argument.kind == CudaStep::Argument::operand  ? in[argument.index]
                      : argument.kind == CudaStep::Argument::result ? out[argument.index]
                                                                    : own(argument.index);
      s.arguments[k] = &s.pointers[k];
    }
    s.functions[i].launch(*s.lane, step.blocks, kStepThreads, s.arguments.data(), step.shared_bytes);
  }
}

}  // namespace lockstep
