#include "plan/cuda/kernel_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/text.h"
#include "plan/cuda/rewrites/overlap_rounds.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

// Bytes to which the dynamic shared memory behind the copied pointers is aligned: rows that begin in the middle of what
// is read at once take longer.
constexpr int64_t kSharedAlignment = 128;

// Copies all pointers to shared memory, before the kernel has to wait for anything.
constexpr const char* kNearText = R"(  __shared__ All near;
  for (uint32_t k = threadIdx.x; k < sizeof(All) / sizeof(void*); k += blockDim.x)
    reinterpret_cast<void**>(&near)[k] = reinterpret_cast<void* const*>(&all)[k];
)";

// A pointer in a round.
constexpr const char* kAtRoundText = R"(
inline char* at_round(void* even, void* odd, int64_t step, uint32_t round) {
  return static_cast<char*>(round % 2u ? odd : even) + step * int64_t(round);
}
)";

// Whether another round follows. The previous round wrote it: an even one to `even`, an odd one to `odd`.
constexpr const char* kContinuesText = R"(
inline bool continues(void* even, void* odd, uint32_t round) {
  return *static_cast<volatile bool*>(round % 2u ? even : odd);
}
)";

// The tasks that have steps, members of composite tasks among them, in the order before phases were assigned.
std::vector<const GpuTask*> stepped_tasks(const KernelSchedule& kernel) {
  std::vector<const GpuTask*> out;
  for (const GpuTask& task : kernel.tasks) {
    if (!is_composite(task)) out.push_back(&task);
    for (size_t m = 0; is_composite(task) && m < task.members.size(); ++m) out.push_back(&task.members[m]);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const GpuTask* a, const GpuTask* b) { return a->position < b->position; });
  return out;
}

std::optional<int64_t> stride_of(const KernelPointer& pointer, const RoundStrides* rounds) {
  return rounds && pointer.kind != KernelPointer::workspace ? rounds->of(pointer.value) : std::nullopt;
}

class KernelWriter {
 public:
  KernelWriter(const KernelSchedule& kernel, const KernelTextOptions& options)
      : kernel_(kernel),
        options_(options),
        steps_(stepped_tasks(kernel)),
        pointers_(pointers_of(kernel)),
        overlaps_(options.rounds && overlaps_next_round(kernel, *options.rounds)) {
    size_t pointer = 0;
    for (size_t s = 0; s < steps_.size(); ++s) {
      number_[steps_[s]] = s;
      first_pointer_.push_back(pointer);
      pointer += steps_[s]->step->arguments.size();
    }
    for (size_t p = 0; p < pointers_.size(); ++p)
      if (stride_of(pointers_[p], options.rounds)) odd_.push_back(p);
  }

  KernelText write();

 private:
  // A task of a phase: thread blocks [first, end) of the phase run it.
  struct Placed {
    size_t task;
    int64_t first, end;
  };
  std::vector<Placed> placed(size_t phase) const;

  std::string definitions() const;
  std::string arguments(const GpuTask& task) const;
  std::string call(const GpuTask& task, const std::string& block, const std::string& prefetched) const;
  // The work of thread block `t` of a task whose thread blocks begin at `first`.
  std::string work(const GpuTask& task, int64_t first, const std::string& prefetched) const;
  std::string chain_work(const GpuTask& chain) const;

  // Bitmask of the operands of a task that are prefetched before the phase begins.
  uint32_t prefetched(size_t phase, size_t task) const;
  std::string prefetch(size_t phase) const;

  // Selects the work of `t`: a thread block's first task, its further tasks, or both.
  std::string select(size_t phase, const std::vector<Placed>& all, bool first, bool further) const;
  std::string tasks(size_t phase) const;
  std::string overlapped_tasks() const;
  std::string start_of_round() const;
  std::string phase_text(size_t phase) const;
  std::string body() const;
  std::string ahead_text() const;
  std::string function() const;

  bool conditional() const { return options_.rounds && options_.rounds->condition; }
  std::string condition() const;
  bool counts_ahead() const { return options_.ahead && !options_.rounds && kernel_.phases.size() > 1; }

  const KernelSchedule& kernel_;
  const KernelTextOptions& options_;
  const std::vector<const GpuTask*> steps_;
  const std::vector<KernelPointer> pointers_;
  const bool overlaps_;  // the last phase runs beside the first phase of the next round
  std::map<const GpuTask*, size_t> number_;
  std::vector<size_t> first_pointer_;  // by step
  std::vector<size_t> odd_;            // the pointers that move, ascending
};

std::vector<KernelWriter::Placed> KernelWriter::placed(size_t phase) const {
  std::vector<Placed> out;
  int64_t end = 0;
  for (const size_t task : kernel_.phases[phase]) {
    const int64_t first = end;
    end += thread_blocks_of(kernel_.tasks[task]);
    out.push_back({task, first, end});
  }
  return out;
}

std::string KernelWriter::definitions() const {
  std::vector<std::string> preludes;
  std::string functions;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const CudaStep& step = *steps_[s]->step;
    if (std::find(preludes.begin(), preludes.end(), step.prelude) == preludes.end()) preludes.push_back(step.prelude);
    const auto define = [&](const std::string& name, const std::string& more, const std::string& text) {
      functions += fmt::format(
          "inline void {}(const uint32_t block, {}{}) {{\n  extern __shared__ __align__({}) char shared[];\n{}}}\n",
          name, more, step.parameters, kSharedAlignment, text);
    };
    define(fmt::format("step_{}", s),
           fmt::format("{}{}", step.prefetches.empty() ? "" : "const uint32_t prefetched, ",
                       step.counted ? "const uint32_t now, " : ""),
           step.body);
    for (size_t e = 0; e < step.prefetches.size(); ++e)
      define(fmt::format("prefetch_{}_{}", s, e), "", step.prefetches[e].body);
  }
  std::string out;
  for (const std::string& prelude : preludes) out += prelude;
  return out + "#include \"grid_barrier.cuh\"\nusing namespace lockstep;\n" + (options_.rounds ? kAtRoundText : "") +
         (conditional() ? kContinuesText : "") + functions;
}

std::string KernelWriter::arguments(const GpuTask& task) const {
  const auto types = parameters_of(*task.step);
  LOCKSTEP_CHECK(types.size() == task.step->arguments.size(), "{} parameters for {} arguments", types.size(),
                 task.step->arguments.size());
  const char* from = options_.near ? "near" : "all";
  std::string out;
  for (size_t i = 0; i < types.size(); ++i) {
    const size_t number = first_pointer_[number_.at(&task)] + i;
    const std::optional<int64_t> stride = stride_of(pointers_[number], options_.rounds);
    out += stride ? fmt::format(", ({})at_round({}.p[{}], {}.odd[{}], {}ll, round)", types[i].first, from, number, from,
                                std::lower_bound(odd_.begin(), odd_.end(), number) - odd_.begin(), *stride)
                  : fmt::format(", ({}){}.p[{}]", types[i].first, from, number);
  }
  return out;
}

std::string KernelWriter::call(const GpuTask& task, const std::string& block, const std::string& prefetched) const {
  return fmt::format("step_{}({}{}{}{});", number_.at(&task), block,
                     task.step->prefetches.empty() ? "" : ", " + prefetched,
                     task.step->counted ? ", uint32_t(arrivals) + 1u" : "", arguments(task));
}

std::string KernelWriter::chain_work(const GpuTask& chain) const {
  std::string out;
  for (const GpuTask& member : chain.members) {
    const bool shares = member.step->shared_bytes > 0;
    out += fmt::format("      for (uint32_t b = 0; b < {}u; ++b) {{\n        {}\n{}      }}\n", member.step->blocks,
                       call(member, "b", "0u"), shares ? "        __syncthreads();\n" : "");
    if (!shares) out += "      __syncthreads();\n";
  }
  return out + "      __syncthreads();\n";
}

std::string KernelWriter::work(const GpuTask& task, int64_t first, const std::string& prefetched) const {
  if (task.form == TaskForm::chain) return chain_work(task);
  std::string out;
  bool shares = false;
  const auto add = [&](const GpuTask& each) {
    shares |= each.step->shared_bytes > 0;
    out += "      " + call(each, fmt::format("t - {}u", first), prefetched) + "\n";
  };
  if (task.form == TaskForm::elements)
    for (const GpuTask& member : task.members) add(member);
  else
    add(task);
  return out + (shares ? "      __syncthreads();\n" : "");
}

uint32_t KernelWriter::prefetched(size_t phase, size_t task) const {
  if (phase > 0) return kernel_.tasks[task].prefetched;
  return options_.ahead ? options_.ahead->prefetched(task) : 0;
}

std::string KernelWriter::prefetch(size_t phase) const {
  std::string out;
  for (const Placed& each : placed(phase)) {
    const GpuTask& task = kernel_.tasks[each.task];
    const uint32_t bits = prefetched(phase, each.task);
    for (size_t k = 0; bits != 0 && k < task.step->prefetches.size(); ++k)
      if (bits & 1u << k)
        out += fmt::format("  if (blockIdx.x >= {}u && blockIdx.x < {}u) prefetch_{}_{}(blockIdx.x - {}u{});\n",
                           each.first, each.end, number_.at(&task), k, each.first, arguments(task));
  }
  return out;
}

std::string KernelWriter::select(size_t phase, const std::vector<Placed>& all, bool first, bool further) const {
  std::string out;
  for (const Placed& each : all) {
    if ((!first && each.end <= options_.processors) || (!further && each.first >= options_.processors)) continue;
    const uint32_t bits = first ? prefetched(phase, each.task) : 0;
    std::string when = further ? "t == blockIdx.x" : "";
    if (phase == 0) when += fmt::format("{}{}", when.empty() ? "" : " && ", options_.rounds ? "round > 0" : "ahead");
    const std::string prefetched = fmt::format("{}u", bits);
    const std::string known = bits == 0 || when.empty() ? prefetched : fmt::format("{} ? {} : 0u", when, prefetched);
    out += fmt::format("{}if (t < {}u) {{\n{}    }}", out.empty() ? "    " : " else ", each.end,
                       work(kernel_.tasks[each.task], each.first, known));
  }
  return out;
}

// All tasks of a phase. For the first task of a thread block it is known what was prefetched, and that there is one, so
// it is not in the loop over the further ones: the compiler would hoist out of a loop what is the same each time.
std::string KernelWriter::tasks(size_t phase) const {
  const std::vector<Placed> all = placed(phase);
  const int64_t processors = options_.processors, end = all.empty() ? 0 : all.back().end;
  const bool apart = std::none_of(all.begin(), all.end(), [&](const Placed& each) {
    return each.first < processors && each.end > processors && first_step(kernel_.tasks[each.task]).operations > 0;
  });
  if (!apart)
    return fmt::format("  for (uint32_t t = blockIdx.x; t < {}u; t += gridDim.x) {{\n{}\n  }}\n", end,
                       select(phase, all, true, true));
  std::string out =
      fmt::format("  {{\n    const uint32_t t = blockIdx.x;\n{}\n  }}\n", select(phase, all, true, false));
  if (end > processors)
    out += fmt::format("  for (uint32_t t = blockIdx.x + {0}u; t < {1}u; t += {0}u) {{\n{2}\n  }}\n", processors, end,
                       select(phase, all, false, true));
  return out;
}

// The last thread blocks run the last phase of the previous round: the first phase may leave them idle.
std::string KernelWriter::overlapped_tasks() const {
  std::string out;
  const std::vector<size_t>& last = kernel_.phases.back();
  for (size_t k = 0; k < last.size(); ++k) {
    const GpuTask& task = kernel_.tasks[last[k]];
    const size_t from_end = k % static_cast<size_t>(options_.processors);  // a thread block may run several
    out += fmt::format(
        "  if (before < rounds && blockIdx.x == gridDim.x - {}u) {{\n    const uint32_t round = before;\n"
        "    for (uint32_t t = 0; t < {}u; ++t) {{\n{}    }}\n  }}\n",
        from_end + 1, thread_blocks_of(task), work(task, 0, "0u"));
  }
  return out;
}

std::string KernelWriter::start_of_round() const {
  const std::string prefetches = options_.ahead ? prefetch(0) : "";
  return fmt::format("  if (round > 0) {{\n  arrive(word, arrivals);\n{}  wait_for_all(word, arrivals);\n  }}\n",
                     overlaps_ ? "  if (round < rounds) {\n" + prefetches + "  }\n" : prefetches);
}

// REQUIRES: conditional().
std::string KernelWriter::condition() const {
  for (size_t k = 0; k < odd_.size(); ++k)
    if (pointers_[odd_[k]].value.memory == *options_.rounds->condition)
      return fmt::format("continues(all.p[{}], all.odd[{}], round)", odd_[k], k);
  LOCKSTEP_CHECK(false, "no task of the kernel writes its condition");
}

std::string KernelWriter::phase_text(size_t phase) const {
  std::string out;
  // Prefetches run while other thread blocks have not arrived.
  if (phase > 0) out += "  arrive(word, arrivals);\n" + prefetch(phase) + "  wait_for_all(word, arrivals);\n";
  if (phase == 0 && options_.rounds) out += start_of_round();
  if (phase == 0 && conditional()) out += fmt::format("  if (!{}) break;\n", condition());
  if (overlaps_ && phase == 0) out += "  if (round == rounds) allow_next_kernel();\n  if (round < rounds) {\n";
  if (!overlaps_ && !conditional() && phase + 1 == kernel_.phases.size())
    out += options_.rounds ? "  if (round + 1 == rounds) allow_next_kernel();\n" : "  allow_next_kernel();\n";
  out += tasks(phase);
  if (overlaps_ && phase == 0) out += "  }\n" + overlapped_tasks() + "  if (round == rounds) break;\n";
  return out;
}

std::string KernelWriter::body() const {
  std::string out;
  // If rounds overlap, an additional round runs the last phase of the last one.
  if (conditional())  // also after 2^32 rounds, only round 0 is the first, and even and odd ones alternate
    out += "  uint32_t round = 0;\n  for (;; round = round == 0xffffffffu ? 2u : round + 1u) {\n";
  else if (options_.rounds)
    out += overlaps_ ? "  for (uint32_t round = 0;; ++round) {\n  const uint32_t before = round - 1u;\n"
                     : "  for (uint32_t round = 0; round < rounds; ++round) {\n";
  for (size_t i = 0; i < kernel_.phases.size() - (overlaps_ ? 1 : 0); ++i) out += phase_text(i);
  if (options_.rounds) out += "  }\n";
  if (conditional()) out += "  if (blockIdx.x == 0 && threadIdx.x == 0) *executed = round;\n";
  // The barrier counter must differ at the next launch. It does not advance in each round: a thread block that arrives
  // twice before it waits would be counted twice by one that has not read the counter yet.
  if (kernel_.phases.size() == 1) out += "  arrive(word, arrivals);\n";
  return out;
}

// What precedes the wait for the previous kernel. All threads wrote the copied pointers. If the previous kernel is the
// same, all of its thread blocks have arrived at its last barrier, so the counter is final.
std::string KernelWriter::ahead_text() const {
  if (!options_.ahead || options_.rounds) return "";
  return fmt::format("  if (ahead) {{\n{}{}{}  }}\n", options_.near ? "  __syncthreads();\n" : "",
                     counts_ahead() ? "  arrivals = load_relaxed(word);\n" : "", prefetch(0));
}

std::string KernelWriter::function() const {
  return fmt::format(
      R"(struct All {{
  void* p[{pointers}];
{odd}}};
extern "C" __global__ void __launch_bounds__({threads}, 1) {name}(const __grid_constant__ All all, uint64_t* word{more}) {{
{near}  uint64_t arrivals;
{first}  wait_for_previous_kernel();
  // As long as this block has not come.
  {unless}arrivals = load_relaxed(word);
  arrivals = arrivals / {blocks} * {blocks};
  __syncthreads();
{body}}}
)",
      fmt::arg("name", kernel_name("persistent")), fmt::arg("pointers", std::max<size_t>(pointers_.size(), 1)),
      fmt::arg("odd", options_.rounds ? fmt::format("  void* odd[{}];\n", std::max<size_t>(odd_.size(), 1)) : ""),
      fmt::arg("unless", counts_ahead() ? "if (!ahead) " : ""), fmt::arg("near", options_.near ? kNearText : ""),
      fmt::arg("threads", kStepThreads),
      fmt::arg("more", conditional()     ? ", uint32_t* executed"
                       : options_.rounds ? ", uint32_t rounds"
                       : options_.ahead  ? ", uint32_t ahead"
                                         : ""),
      fmt::arg("first", ahead_text()), fmt::arg("body", body()),
      fmt::arg("blocks", fmt::format("{}u", options_.processors)));
}

KernelText KernelWriter::write() {
  KernelText out{.text = definitions() + function(), .pointers = pointers_};
  for (const GpuTask* task : steps_) {
    out.shared_bytes = std::max(out.shared_bytes, task->step->shared_bytes);
    out.register_bound |= task->step->register_bound;
  }
  return out;
}

}  // namespace

std::vector<KernelPointer> pointers_of(const KernelSchedule& kernel) {
  std::vector<KernelPointer> out;
  const std::vector<const GpuTask*> steps = stepped_tasks(kernel);
  for (size_t s = 0; s < steps.size(); ++s) {
    const std::vector<TaskValue> in = operands(*steps[s]), to = results(*steps[s]);
    for (const CudaStep::Argument& each : steps[s]->step->arguments) {
      if (each.kind == CudaStep::Argument::workspace)
        out.push_back({KernelPointer::workspace, {}, s, each.index, steps[s]->step->workspaces[each.index]});
      else if (each.kind == CudaStep::Argument::operand)
        out.push_back({KernelPointer::operand, in[each.index]});
      else
        out.push_back({KernelPointer::result, to[each.index]});
    }
  }
  return out;
}

size_t pointer_count(const KernelSchedule& kernel) {
  size_t out = 0;
  for (const GpuTask* task : stepped_tasks(kernel)) {
    out += task->step->arguments.size();
    // The second task reads the partial results, and writes the result.
    if (task->stage == TaskStage::whole && task->step->partial) out += 2;
  }
  return out;
}

std::vector<TaskValue> values_of(const std::vector<KernelPointer>& pointers) {
  std::vector<TaskValue> out;
  std::set<ValueId> seen;
  for (const KernelPointer& pointer : pointers)
    if (pointer.kind != KernelPointer::workspace && seen.insert(pointer.value.id).second) out.push_back(pointer.value);
  return out;
}

KernelText kernel_text(const KernelSchedule& kernel, const KernelTextOptions& options) {
  return KernelWriter(kernel, options).write();
}

bool has_room_for_pointers(const KernelSchedule& kernel, int64_t shared_bytes) {
  int64_t used = static_cast<int64_t>((pointer_count(kernel) + 2) * sizeof(void*)) + kSharedAlignment, most = 0;
  for (const GpuTask* task : stepped_tasks(kernel)) {
    if (task->step->register_bound) return false;
    most = std::max(most, task->step->shared_bytes);
  }
  return most + used <= shared_bytes;
}

}  // namespace lockstep::detail
