#include "plan/cuda/persistent_kernel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "lane/cuda/code.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/text.h"
#include "plan/cuda/rewrites/overlap_rounds.h"

namespace lockstep::detail {
namespace {

thread_local int64_t ahead_launches = 0, late_phases = 0;

}  // namespace

struct PersistentKernel::State {
  // Where a pointer comes from: one of the values, or a workspace.
  struct Source {
    size_t value = 0;
    void* workspace = nullptr;

    void* find(void* const* of) const { return workspace ? workspace : of[value]; }
  };

  CudaStream& stream;
  const GpuTarget target;
  const KernelSchedule kernel;
  const std::vector<KernelPointer> from = pointers_of(kernel);
  const std::vector<TaskValue> values = values_of(from);
  std::vector<Source> sources = {};
  std::vector<BufferPtr> workspaces = {};
  BufferPtr barrier_counter = {};
  std::optional<AheadPrefetch> ahead = {};
  std::optional<CudaFunction> function = {};  // loaded by the first run
  int64_t shared_bytes = 0;
  std::vector<void*> pointers = {};
  bool launched = false;  // the stream's last launch is of this kernel, not of another that had the same address
  std::vector<AheadPrefetch::Bytes> written = {};  // by the last launch

  State(CudaStream& s, KernelSchedule k) : stream(s), target(GpuTarget::of(s.info())), kernel(std::move(k)) {}

  BufferPtr zeros(int64_t bytes) {
    BufferPtr out = stream.allocate(bytes);
    stream.clear(out->data(), bytes);
    return out;
  }
  void find_sources() {
    std::map<std::pair<size_t, size_t>, void*> known;  // by step and index
    for (const KernelPointer& pointer : from) {
      Source& source = sources.emplace_back();
      if (pointer.kind != KernelPointer::workspace) {
        const auto same = [&](const TaskValue& value) { return value.id == pointer.value.id; };
        source.value = static_cast<size_t>(std::find_if(values.begin(), values.end(), same) - values.begin());
        continue;
      }
      void*& workspace = known[{pointer.step, pointer.index}];
      if (!workspace) workspace = workspaces.emplace_back(zeros(pointer.bytes))->data();
      source.workspace = workspace;
    }
  }
  KernelText text() const {
    return kernel_text(kernel, {.processors = target.processors,
                                .near = has_room_for_pointers(kernel, target.shared_bytes),
                                .ahead = ahead ? &*ahead : nullptr});
  }
  // May a launch begin before the last one has ended?
  bool goes_ahead(void* const* to) const {
    return ahead && launched && stream.is_exclusive() && !stream.capturing() && stream.is_last_launch(this) &&
           ahead->may_start_early(to, written);
  }
  CudaFunction load(const KernelText& text) const {
    const CudaFunction out = kernel_of(text.text, stream);
    out.check_residency(stream, target.processors, kStepThreads, text.shared_bytes);
    return out;
  }
  void launch(const CudaFunction& f, int64_t shared, void** arguments) const {
    f.launch(stream, target.processors, kStepThreads, arguments, shared, true);
  }
};

PersistentKernel::PersistentKernel(CudaStream& stream, KernelSchedule kernel)
    : state_(std::make_shared<State>(stream, std::move(kernel))) {
  State& s = *state_;
  LOCKSTEP_CHECK(s.from.size() <= cost_model::kMostPointers, "a kernel of {} pointers", s.from.size());
  if (s.target.dependent_launch) s.ahead = AheadPrefetch::of(s.kernel, s.values);
  s.find_sources();
  s.pointers.resize(std::max<size_t>(s.sources.size(), 1));
  s.barrier_counter = s.zeros(sizeof(uint64_t));
}

const KernelSchedule& PersistentKernel::schedule() const { return state_->kernel; }
const std::vector<TaskValue>& PersistentKernel::values() const { return state_->values; }
bool PersistentKernel::prefetches_ahead() const { return state_->ahead.has_value(); }
int64_t PersistentKernel::ahead_launch_count() { return ahead_launches; }
int64_t PersistentKernel::late_phase_count() { return late_phases; }

void PersistentKernel::compile_in_background() const { begin_kernel(state_->text().text, state_->stream); }

void PersistentKernel::run(void* const* values) const {
  State& s = *state_;
  if (!s.function) {
    const KernelText text = s.text();
    s.function = s.load(text);
    s.shared_bytes = text.shared_bytes;
  }
  for (size_t i = 0; i < s.sources.size(); ++i) s.pointers[i] = s.sources[i].find(values);
  uint32_t ahead = s.goes_ahead(values) ? 1 : 0;
  ahead_launches += ahead;
  void* counter = s.barrier_counter->data();
  void* arguments[] = {s.pointers.data(), &counter, &ahead};
  s.launch(*s.function, s.shared_bytes, arguments);
  if (!s.ahead || s.stream.capturing()) return;
  s.ahead->written(values, s.written);
  s.launched = true;
  s.stream.mark_last_launch(&s);
}

std::optional<PersistentKernel::Rounds> PersistentKernel::rounds(const RoundStrides& strides) const {
  const State& s = *state_;
  std::vector<size_t> moving;  // pointers
  for (size_t i = 0; i < s.from.size(); ++i)
    if (s.from[i].kind != KernelPointer::workspace && strides.of(s.from[i].value)) moving.push_back(i);
  if (s.from.size() + moving.size() > cost_model::kMostPointers) return {};
  KernelSchedule kernel = s.kernel;
  kernel.repeated = true;
  overlap_rounds(kernel, strides, s.target);
  late_phases += overlaps_next_round(kernel, strides) ? 1 : 0;
  // What is prefetched for a round that does not follow would arrive after the end of the kernel.
  const std::optional<AheadPrefetch> ahead =
      strides.condition ? std::nullopt : AheadPrefetch::of(kernel, s.values, &strides);
  const KernelText text = kernel_text(
      kernel,
      {.processors = s.target.processors, .near = false, .rounds = &strides, .ahead = ahead ? &*ahead : nullptr});
  const size_t first = std::max<size_t>(s.sources.size(), 1);
  std::vector<void*> pointers(first + std::max<size_t>(moving.size(), 1));
  auto run = [state = state_, moving = std::move(moving), function = s.load(text), shared = text.shared_bytes,
              pointers = std::move(pointers), first, conditional = strides.condition.has_value()](
                 void* const* even, void* const* odd, int64_t count, uint32_t* executed) mutable {
    for (size_t i = 0; i < state->sources.size(); ++i) pointers[i] = state->sources[i].find(even);
    for (size_t k = 0; k < moving.size(); ++k) pointers[first + k] = state->sources[moving[k]].find(odd);
    void* counter = state->barrier_counter->data();
    auto rounds = static_cast<uint32_t>(count);
    void* arguments[] = {pointers.data(), &counter,
                         conditional ? static_cast<void*>(&executed) : static_cast<void*>(&rounds)};
    state->launch(function, shared, arguments);
  };
  return Rounds{std::move(kernel), std::move(run)};
}

}  // namespace lockstep::detail
