#include "plan/cuda/whole_ahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "lane/cuda/code.h"
#include "ops/cuda/text.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMostPointers = 480;  // 4 KiB of parameters, and kReservedSharedBytes
// Of the block's memory behind the pointers: rows that begin in the middle of what is read at once take longer.
constexpr int64_t kSharedAlignment = 128;

thread_local int64_t went_ahead_here = 0, made_late_here = 0;

size_t pointers_of(const SteppedKernel& kernel) {
  size_t out = 0;
  for (const CudaStep& step : kernel.steps()) out += step.arguments.size();
  return out;
}

// All pointers, before anything has to be waited for.
constexpr const char* kNear = R"(  __shared__ All near;
  for (uint32_t k = threadIdx.x; k < sizeof(All) / sizeof(void*); k += blockDim.x)
    reinterpret_cast<void**>(&near)[k] = reinterpret_cast<void* const*>(&all)[k];
)";

// Where a pointer is in a round.
constexpr const char* kAtRound = R"(
inline char* at_round(void* even, void* odd, int64_t step, uint32_t round) {
  return static_cast<char*>(round % 2u ? odd : even) + step * int64_t(round);
}
)";

std::optional<int64_t> step_of(const KernelPart& part, const CudaStep::Argument& argument, const RoundStrides* steps) {
  if (!steps || argument.kind == CudaStep::Argument::own) return {};
  return argument.kind == CudaStep::Argument::operand ? steps->in[part.operands[argument.index]]
                                                      : steps->out[part.results[argument.index]];
}

// The numbers of the pointers of each step.
std::vector<std::vector<size_t>> first_pointers(std::span<const KernelPart> parts) {
  std::vector<std::vector<size_t>> out;
  size_t at = 0;
  for (const KernelPart& part : parts) {
    out.emplace_back();
    for (const CudaStep& step : part.kernel->steps()) {
      out.back().push_back(at);
      at += step.arguments.size();
    }
  }
  return out;
}

}  // namespace

bool fits_in_one_kernel(std::span<const KernelPart> parts) {
  size_t pointers = 0;
  for (const KernelPart& part : parts) pointers += pointers_of(*part.kernel);
  return pointers <= kMostPointers;
}

std::string persistent_kernel_text(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                   const RoundStrides* steps, bool near, const AheadPrefetch* ahead,
                                   int64_t processors) {
  const std::vector<std::vector<size_t>> pointers = first_pointers(parts);
  std::vector<std::string> preludes;
  std::string functions;
  size_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p)
    for (size_t k = 0; k < parts[p].kernel->steps().size(); ++k) {
      const CudaStep& step = parts[p].kernel->steps()[k];
      if (std::find(preludes.begin(), preludes.end(), step.prelude) == preludes.end()) preludes.push_back(step.prelude);
      const auto define = [&](const std::string& name, const std::string& more, const std::string& text) {
        functions += fmt::format(
            "inline void {}(const uint32_t block, {}{}) {{\n  extern __shared__ __align__({}) char shared[];\n{}}}\n",
            name, more, step.parameters, kSharedAlignment, text);
      };
      define(fmt::format("step_{}_{}", p, k),
             fmt::format("{}{}", step.early.empty() ? "" : "const uint32_t early, ",
                         step.counted ? "const uint32_t now, " : ""),
             step.body);
      for (size_t e = 0; e < step.early.size(); ++e)
        define(fmt::format("early_{}_{}_{}", p, k, e), "", step.early[e].body);
      count += step.arguments.size();
    }
  std::vector<size_t> odd;  // the pointers that move, in the order of their numbers
  if (steps)
    for (size_t p = 0; p < parts.size(); ++p)
      for (size_t k = 0; k < parts[p].kernel->steps().size(); ++k)
        for (size_t i = 0; i < parts[p].kernel->steps()[k].arguments.size(); ++i)
          if (step_of(parts[p], parts[p].kernel->steps()[k].arguments[i], steps)) odd.push_back(pointers[p][k] + i);
  const auto odd_of = [&](size_t number) { return std::lower_bound(odd.begin(), odd.end(), number) - odd.begin(); };
  const auto arguments_of = [&](const PartStep& at) {
    const CudaStep& step = parts[at.part].kernel->steps()[at.step];
    const auto types = parameters_of(step);
    LOCKSTEP_CHECK(types.size() == step.arguments.size(), "{} parameters for {} arguments", types.size(),
                   step.arguments.size());
    const char* from = near ? "near" : "all";
    std::string arguments;
    for (size_t i = 0; i < types.size(); ++i) {
      const size_t number = pointers[at.part][at.step] + i;
      const std::optional<int64_t> moves = step_of(parts[at.part], step.arguments[i], steps);
      arguments += moves ? fmt::format(", ({})at_round({}.p[{}], {}.odd[{}], {}ll, round)", types[i].first, from,
                                       number, from, odd_of(number), *moves)
                         : fmt::format(", ({}){}.p[{}]", types[i].first, from, number);
    }
    return arguments;
  };
  // The phases that all blocks wait for in each round.
  const bool late = steps && processors > 0 && overlaps_next_round(parts, phases, *steps);
  const size_t all_wait = phases.size() - (late ? 1 : 0);
  // What is brought to a block's first task of a phase before that begins, by bits.
  const auto early_in = [&](size_t i, const Task& task) -> uint32_t {
    if (i == 0) return ahead ? ahead->early(task) : 0;
    std::vector<MemoryRange> written;
    const auto writes = [&](const Phase& phase) {
      for (const Task& before : phase)
        for (const PartStep& each : before)
          written.insert(written.end(), parts[each.part].out.begin(), parts[each.part].out.end());
    };
    writes(phases[i - 1]);
    if (late && i == 1) writes(phases.back());
    return early_operands(parts, task, written);
  };
  const auto bring_early = [&](size_t i) {
    std::string out;
    int64_t tasks = 0;
    for (const Task& task : phases[i]) {
      const CudaStep& step = parts[task[0].part].kernel->steps()[task[0].step];
      const int64_t blocks = is_chain(parts, task) ? 1 : step.blocks;
      const uint32_t early = early_in(i, task);
      for (size_t k = 0; k < step.early.size(); ++k)
        if (early & 1u << k)
          out += fmt::format("  if (blockIdx.x >= {}u && blockIdx.x < {}u) early_{}_{}_{}(blockIdx.x - {}u{});\n",
                             tasks, tasks + blocks, task[0].part, task[0].step, k, tasks, arguments_of(task[0]));
      tasks += blocks;
    }
    return out;
  };
  const auto call = [&](const PartStep& at, const std::string& block, const std::string& early) {
    const CudaStep& step = parts[at.part].kernel->steps()[at.step];
    return fmt::format("step_{}_{}({}{}{}{});", at.part, at.step, block, step.early.empty() ? "" : ", " + early,
                       step.counted ? ", uint32_t(all_came) + 1u" : "", arguments_of(at));
  };
  // What the block `t` of a task does, whose blocks begin with `first`.
  const auto done_by = [&](const Task& task, int64_t first, const std::string& early) {
    std::string done;
    bool shares = is_chain(parts, task);
    if (!shares) {
      for (const PartStep& each : task) {
        shares |= parts[each.part].kernel->steps()[each.step].shared_bytes > 0;
        done += "      " + call(each, fmt::format("t - {}u", first), early) + "\n";
      }
    } else {
      for (const PartStep& each : task) {
        const CudaStep& step = parts[each.part].kernel->steps()[each.step];
        done += fmt::format("      for (uint32_t b = 0; b < {}u; ++b) {{\n        {}\n{}      }}\n", step.blocks,
                            call(each, "b", "0u"), step.shared_bytes > 0 ? "        __syncthreads();\n" : "");
        if (step.shared_bytes == 0) done += "      __syncthreads();\n";
      }
    }
    return done + (shares ? "      __syncthreads();\n" : "");
  };
  // All tasks of a phase, one after the other of a block's. Of those that each block begins with, it is known what was
  // brought, and that there is one: a loop would compute beforehand what is the same each time.
  const auto tasks_of = [&](size_t i) {
    struct Placed {
      const Task* task;
      int64_t first, end;
    };
    std::vector<Placed> all;
    int64_t end = 0;
    for (const Task& task : phases[i]) {
      const int64_t first = end;
      end += is_chain(parts, task) ? 1 : parts[task.back().part].kernel->steps()[task.back().step].blocks;
      all.push_back({&task, first, end});
    }
    const auto first_step = [&](const Task& task) -> const CudaStep& {
      return parts[task[0].part].kernel->steps()[task[0].step];
    };
    const auto is_between = [&](const Placed& each) { return each.first < processors && each.end > processors; };
    const bool apart = processors > 0 && std::none_of(all.begin(), all.end(), [&](const Placed& each) {
                         return is_between(each) && first_step(*each.task).operations > 0;
                       });
    const auto choose = [&](bool first, bool others) {
      std::string chosen;
      for (const Placed& each : all) {
        if ((!first && each.end <= processors) || (!others && each.first >= processors)) continue;
        const uint32_t bits = first && !is_chain(parts, *each.task) ? early_in(i, *each.task) : 0;
        std::string when = others ? "t == blockIdx.x" : "";
        if (i == 0) when += fmt::format("{}{}", when.empty() ? "" : " && ", steps ? "round > 0" : "ahead");
        const std::string early = fmt::format("{}u", bits);
        const std::string prefetched = bits == 0 || when.empty() ? early : fmt::format("{} ? {} : 0u", when, early);
        chosen += fmt::format("{}if (t < {}u) {{\n{}    }}", chosen.empty() ? "    " : " else ", each.end,
                              done_by(*each.task, each.first, prefetched));
      }
      return chosen;
    };
    if (!apart)
      return fmt::format("  for (uint32_t t = blockIdx.x; t < {}u; t += gridDim.x) {{\n{}\n  }}\n", end,
                         choose(true, true));
    std::string out = fmt::format("  {{\n    const uint32_t t = blockIdx.x;\n{}\n  }}\n", choose(true, false));
    if (end > processors)
      out += fmt::format("  for (uint32_t t = blockIdx.x + {0}u; t < {1}u; t += {0}u) {{\n{2}\n  }}\n", processors, end,
                         choose(false, true));
    return out;
  };
  // What the last blocks do of the round before: the first phase may leave them free.
  const auto late_tasks = [&] {
    std::string out;
    for (size_t k = 0; k < phases.back().size(); ++k) {
      const Task& task = phases.back()[k];
      const int64_t blocks = is_chain(parts, task) ? 1 : parts[task[0].part].kernel->steps()[task[0].step].blocks;
      const size_t last = processors > 0 ? k % static_cast<size_t>(processors) : k;  // one block may do several
      out += fmt::format(
          "  if (before < rounds && blockIdx.x == gridDim.x - {}u) {{\n    const uint32_t round = before;\n"
          "    for (uint32_t t = 0; t < {}u; ++t) {{\n{}    }}\n  }}\n",
          last + 1, blocks, done_by(task, 0, "0u"));
    }
    return out;
  };
  // One more round than there are does what is left of the last one.
  std::string body = !steps ? ""
                     : late ? "  for (uint32_t round = 0;; ++round) {\n  const uint32_t before = round - 1u;\n"
                            : "  for (uint32_t round = 0; round < rounds; ++round) {\n";
  for (size_t i = 0; i < all_wait; ++i) {
    // What is brought is on its way while others have not come.
    if (i > 0) body += "  arrive(word, all_came);\n" + bring_early(i) + "  wait_for_all(word, all_came);\n";
    if (i == 0 && steps) {
      const std::string brought = ahead ? bring_early(0) : "";
      body += fmt::format("  if (round > 0) {{\n  arrive(word, all_came);\n{}  wait_for_all(word, all_came);\n  }}\n",
                          late ? "  if (round < rounds) {\n" + brought + "  }\n" : brought);
    }
    if (late && i == 0) body += "  if (round == rounds) before_the_next();\n  if (round < rounds) {\n";
    if (!late && i + 1 == phases.size())
      body += steps ? "  if (round + 1 == rounds) before_the_next();\n" : "  before_the_next();\n";
    body += tasks_of(i);
    if (late && i == 0) body += "  }\n" + late_tasks() + "  if (round == rounds) break;\n";
  }
  if (steps) body += "  }\n";
  // The barrier counter must differ at the next launch. It does not advance in each round: a block that arrives twice
  // before it waits would be counted twice by a block that has not read the counter yet.
  if (phases.size() == 1) body += "  arrive(word, all_came);\n";
  // Pointers that are near were written by all threads. Where the kernel before is the same, all of its blocks have
  // come to where they meet last, and what they counted is there.
  const bool counts_ahead = ahead && !steps && phases.size() > 1;
  const std::string first = ahead && !steps
                                ? fmt::format("  if (ahead) {{\n{}{}{}  }}\n", near ? "  __syncthreads();\n" : "",
                                              counts_ahead ? "  all_came = look_at(word);\n" : "", bring_early(0))
                                : "";
  std::string out;
  for (const std::string& prelude : preludes) out += prelude;
  return out + "#include \"grid_barrier.cuh\"\nusing namespace lockstep;\n" + (steps ? kAtRound : "") + functions +
         fmt::format(
             R"(struct All {{
  void* p[{pointers}];
{odd}}};
extern "C" __global__ void __launch_bounds__({threads}, 1) f(const __grid_constant__ All all, uint64_t* word{more}) {{
{near}  uint64_t all_came;
{first}  after_the_last();
  // As long as this block has not come.
  {unless}all_came = look_at(word);
  all_came = all_came / {blocks} * {blocks};
  __syncthreads();
{body}}}
)",
             fmt::arg("pointers", std::max<size_t>(count, 1)),
             fmt::arg("odd", steps ? fmt::format("  void* odd[{}];\n", std::max<size_t>(odd.size(), 1)) : ""),
             fmt::arg("unless", counts_ahead ? "if (!ahead) " : ""), fmt::arg("near", near ? kNear : ""),
             fmt::arg("threads", kStepThreads),
             fmt::arg("more", steps   ? ", uint32_t rounds"
                              : ahead ? ", uint32_t ahead"
                                      : ""),
             fmt::arg("first", first), fmt::arg("body", body),
             fmt::arg("blocks", processors > 0 ? fmt::format("{}u", processors) : "gridDim.x"));
}

struct PersistentKernel::State {
  struct Source {
    CudaStep::Argument::Kind kind;
    size_t index;
    const void* own;

    const void* find(const void* const* from, void* const* to) const {
      return kind == CudaStep::Argument::operand ? from[index] : kind == CudaStep::Argument::result ? to[index] : own;
    }
  };

  CudaStream& lane;
  std::vector<KernelPart> parts;
  std::vector<Phase> phases;
  std::deque<SteppedKernel> kernels = {};     // of the parts, whose memory is used
  std::optional<CudaFunction> function = {};  // made on first use
  std::vector<Source> sources = {};
  int64_t shared_bytes = 0;
  bool register_bound = false;  // as one of its steps is
  BufferPtr word = {};          // in which blocks count each other, one launch after the other
  std::vector<const void*> pointers = {};
  std::optional<AheadPrefetch> ahead = {};
  bool launched = false;  // was the lane's last itself: another may have had this address before
  std::vector<AheadPrefetch::Bytes> written = {};  // by the last launch

  // Are pointers in the blocks' memory? That makes for less code, but takes registers; and there has to be room.
  bool brings_near() const {
    const auto bytes = static_cast<int64_t>((sources.size() + 2) * sizeof(void*)) + kSharedAlignment;
    return !register_bound && shared_bytes + bytes <= lane.info().shared;
  }
  std::string text() const {
    return persistent_kernel_text(parts, phases, nullptr, brings_near(), ahead ? &*ahead : nullptr,
                                  lane.info().processors);
  }
  // May a launch begin before what was queued last is done?
  bool goes_ahead(const void* const* in) const {
    return ahead && launched && !lane.capturing() && lane.is_last_launch(this) && ahead->may_start_early(in, written);
  }
  void launch(const CudaFunction& f, void** arguments) const {
    f.launch(lane, lane.info().processors, kStepThreads, arguments, shared_bytes, true);
  }
};

PersistentKernel::PersistentKernel(CudaStream& lane, std::span<const KernelPart> parts, std::span<const Phase> phases)
    : state_(std::make_shared<State>(State{lane, {parts.begin(), parts.end()}, {phases.begin(), phases.end()}})) {
  LOCKSTEP_CHECK(fits_in_one_kernel(parts), "too many pointers for a kernel");
  State& s = *state_;
  if (CudaFunction::uses_dependent_launch(lane.info())) s.ahead = AheadPrefetch::of(parts, phases);
  for (KernelPart& part : s.parts) {
    part.kernel = &s.kernels.emplace_back(*part.kernel);
    for (const CudaStep& step : part.kernel->steps()) {
      s.shared_bytes = std::max(s.shared_bytes, step.shared_bytes);
      s.register_bound |= step.register_bound;
      for (const CudaStep::Argument& argument : step.arguments) {
        if (argument.kind == CudaStep::Argument::own)
          s.sources.push_back({argument.kind, 0, part.kernel->own(argument.index)});
        else
          s.sources.push_back(
              {argument.kind,
               (argument.kind == CudaStep::Argument::operand ? part.operands : part.results)[argument.index], nullptr});
      }
    }
  }
  s.pointers.resize(s.sources.size());
  s.word = lane.allocate(sizeof(uint64_t));
  lane.clear(s.word->data(), sizeof(uint64_t));
}

int64_t PersistentKernel::ahead_launch_count() { return went_ahead_here; }
int64_t PersistentKernel::late_phase_count() { return made_late_here; }

void PersistentKernel::compile_in_background() const { begin_kernel(state_->text(), state_->lane); }

void PersistentKernel::operator()(const void* const* in, void* const* out) const {
  State& s = *state_;
  if (!s.function) s.function = kernel_of(s.text(), s.lane);
  for (size_t i = 0; i < s.sources.size(); ++i) s.pointers[i] = s.sources[i].find(in, out);
  uint32_t ahead = s.goes_ahead(in) ? 1 : 0;
  went_ahead_here += ahead;
  void* word = s.word->data();
  void* arguments[] = {s.pointers.data(), &word, &ahead};
  s.launch(*s.function, arguments);
  if (!s.ahead || s.lane.capturing()) return;
  s.ahead->written(out, s.written);
  s.launched = true;
  s.lane.mark_last_launch(&s);
}

PersistentKernel::Rounds PersistentKernel::rounds(const RoundStrides& steps) const {
  std::vector<size_t> odd;  // of the pointers, which move
  for (size_t i = 0; i < state_->sources.size(); ++i)
    if (const State::Source& source = state_->sources[i];
        source.kind != CudaStep::Argument::own &&
        (source.kind == CudaStep::Argument::operand ? steps.in : steps.out)[source.index])
      odd.push_back(i);
  if (state_->sources.size() + odd.size() > kMostPointers) return {};
  const int processors = state_->lane.info().processors;
  const std::vector<Phase> phases = round_phases(state_->parts, state_->phases, steps, processors);
  made_late_here += overlaps_next_round(state_->parts, phases, steps) ? 1 : 0;
  const std::optional<AheadPrefetch> ahead = AheadPrefetch::of(state_->parts, phases, &steps);
  const CudaFunction function =
      kernel_of(persistent_kernel_text(state_->parts, phases, &steps, false, ahead ? &*ahead : nullptr, processors),
                state_->lane);
  std::vector<const void*> pointers(state_->sources.size() + std::max<size_t>(odd.size(), 1));
  return [state = state_, odd = std::move(odd), function, pointers = std::move(pointers)](
             const void* const* in, void* const* out, const void* const* odd_in, void* const* odd_out,
             int64_t count) mutable {
    const size_t first = state->sources.size();
    for (size_t i = 0; i < first; ++i) pointers[i] = state->sources[i].find(in, out);
    for (size_t k = 0; k < odd.size(); ++k) pointers[first + k] = state->sources[odd[k]].find(odd_in, odd_out);
    void* word = state->word->data();
    auto rounds = static_cast<uint32_t>(count);
    void* arguments[] = {pointers.data(), &word, &rounds};
    state->launch(function, arguments);
  };
}

}  // namespace lockstep::detail
