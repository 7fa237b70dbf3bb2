// Producer fusion. A producer is inlined if its readers compute its result instead of reading it.
//
// Worked example. Rows of images are gathered at computed indices, then scaled, and multiplied with weights. The product
// computes the indices and the scaled rows itself, so that neither is written. The same indices also select labels: they
// are small, so a task of its own writes them for that reader, and the product does not wait for it.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/rewrites.h"

namespace lockstep::detail {
namespace {

// Every reader of a tile computes it again. That must be less work than to read it, or nothing but another position in
// memory, or the value must be small. Products decide themselves whether they round operands.
bool is_worth_inlining(const CudaSource& source, const TaskValue& result) {
  if (source.rounded) return true;
  if (result.bytes() > cost_model::kRecomputedBytes && source.equations > 0 &&
      source.bytes * cost_model::kInlinedBytesRatio > source.result_bytes)
    return false;
  return source.equations <= cost_model::kMostInlinedEquations;
}

class ProducerInliner {
 public:
  ProducerInliner(const KernelSchedule& kernel, const GpuTarget& target)
      : kernel_(kernel), tasks_(kernel.tasks), target_(target), states_(kernel.tasks.size()) {
    for (size_t t = 0; t < tasks_.size(); ++t)
      for (const TaskValue& result : tasks_[t].out) writers_[result.id] = t;
    for (size_t t = tasks_.size(); t-- > 0;) {
      states_[t].inlined = may_be_inlined(t) && traits_of(tasks_[t], target).can_be_inlined;
      states_[t].takes.assign(tasks_[t].in.size(), true);
    }
    do lower_all();
    while (!settled());
  }

  std::vector<GpuTask> result() {
    std::vector<GpuTask> out;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      if (!states_[t].written) continue;
      out.push_back(states_[t].lowered ? *std::move(states_[t].lowered) : tasks_[t]);
    }
    return out;
  }

 private:
  // What has been decided about a task.
  struct State {
    bool inlined = false;                   // readers that can compute its result do so
    std::vector<bool> takes = {};           // by operand: if its producer is inlined, the task computes it
    bool written = true;                    // the task itself computes and writes its results
    std::optional<size_t> writer = {};      // of an inlined task: the reader that writes its result
    std::optional<CudaSource> source = {};  // of an inlined task
    std::optional<GpuTask> lowered = {};    // with producers
  };
  // An operand of a task, and the task that computes it.
  struct Inlined {
    size_t operand, producer;
  };

  bool is_small(size_t t) const { return tasks_[t].out[0].bytes() <= cost_model::kRecomputedBytes; }
  bool is_needed(size_t t) const { return kernel_.needed.contains(tasks_[t].out[0].id); }

  bool reads(size_t t, size_t producer) const {
    return std::any_of(tasks_[t].in.begin(), tasks_[t].in.end(),
                       [&](const TaskValue& in) { return in.id == tasks_[producer].out[0].id; });
  }

  // Whether readers can compute the result: nothing else uses its memory, and nothing overwrites the operands until the
  // last reader is done.
  bool may_be_inlined(size_t p) const {
    const GpuTask& own = tasks_[p];
    if (own.out.size() != 1) return false;
    const auto shares = [&](const TaskValue& value) {
      return value.id != own.out[0].id && same_memory(value, own.out[0]);
    };
    for (const GpuTask& task : tasks_)
      if (std::any_of(task.in.begin(), task.in.end(), shares) || std::any_of(task.out.begin(), task.out.end(), shares))
        return false;
    const size_t last = last_reader(p);
    for (size_t t = p + 1; t <= last; ++t)
      for (const TaskValue& written : tasks_[t].out)
        if (contains_memory(own.in, written)) return false;
    return last > p;
  }

  // The last task that reads the result or may compute it. REQUIRES: it is known which later tasks may be inlined.
  size_t last_reader(size_t p) const {
    size_t last = p;
    for (size_t t = p + 1; t < tasks_.size(); ++t)
      if (reads(t, p)) last = std::max(last, states_[t].inlined ? last_reader(t) : t);
    return last;
  }

  // The operands that the task computes itself.
  std::vector<Inlined> computed_by(size_t t) const {
    std::vector<Inlined> out;
    for (size_t i = 0; i < tasks_[t].in.size(); ++i) {
      const auto writer = writers_.find(tasks_[t].in[i].id);
      if (states_[t].takes[i] && writer != writers_.end() && states_[writer->second].inlined)
        out.push_back({i, writer->second});
    }
    return out;
  }

  GpuTask with_producers(size_t t) const {
    GpuTask out = tasks_[t];
    for (const Inlined& each : computed_by(t))
      out.producers.push_back({each.operand, with_producers(each.producer), states_[each.producer].writer == t});
    return out;
  }

  // Whether all operands that the task reads were written before the kernel.
  bool is_ready(size_t t) const {
    const std::vector<Inlined> computed = computed_by(t);
    for (size_t i = 0; i < tasks_[t].in.size(); ++i)
      if (writers_.contains(tasks_[t].in[i].id) &&
          std::none_of(computed.begin(), computed.end(), [&](const Inlined& each) { return each.operand == i; }))
        return false;
    return true;
  }

  // Sets State::lowered, unless the task cannot compute these operands.
  bool lower_with_producers(size_t t) {
    GpuTask task = with_producers(t);
    task.ready = is_ready(t);
    if (!lower_row(task, target_)) return false;
    states_[t].lowered = std::move(task);
    return true;
  }

  void take(size_t t, bool all) { states_[t].takes.assign(tasks_[t].in.size(), all); }

  // From the first task to the last: what a task computes itself has been decided before.
  void lower_all() {
    for (size_t t = 0; t < tasks_.size(); ++t) {
      State& state = states_[t];
      const auto becomes_source = [&] {
        state.source = source_of(with_producers(t), target_);
        return state.source && is_worth_inlining(*state.source, tasks_[t].out[0]);
      };
      if (state.inlined && !becomes_source()) {
        // Reading all operands, or not at all.
        const bool tried = computed_by(t).empty();
        take(t, false);
        state.inlined = !tried && becomes_source();
        if (!state.inlined) take(t, true);
      }
      state.lowered.reset();
      if (!state.inlined) lower_reader(t);
    }
  }

  // With all operands that can be computed, or as many as are possible: first those that are only rounded, of which a
  // thread block holds no more at a time than of operands that it reads.
  void lower_reader(size_t t) {
    std::vector<Inlined> all = computed_by(t);
    if (all.empty() || lower_with_producers(t)) return;
    take(t, false);
    std::stable_sort(all.begin(), all.end(), [&](const Inlined& x, const Inlined& y) {
      return states_[x.producer].source->rounded > states_[y.producer].source->rounded;
    });
    for (const Inlined& each : all) {
      states_[t].takes[each.operand] = true;
      if (!lower_with_producers(t)) states_[t].takes[each.operand] = false;
    }
  }

  // Whether a task must write the result, because it is read.
  bool is_read(size_t p) const {
    if (is_needed(p)) return true;
    for (size_t t = p + 1; t < tasks_.size(); ++t)
      for (size_t i = 0; i < tasks_[t].in.size(); ++i)
        if (tasks_[t].in[i].id == tasks_[p].out[0].id &&
            (!states_[t].takes[i] || (states_[t].inlined && states_[t].written)))
          return true;
    return false;
  }

  // Decides which results are written. Returns false if a task is no longer inlined, so that its readers must be
  // lowered again.
  bool settled() {
    bool out = true;
    for (size_t p = tasks_.size(); p-- > 0;) {
      State& state = states_[p];
      state.written = !state.inlined || is_read(p);
      // A result that is written anyway is written by its first reader, or else all readers read it unless it is small.
      if (!state.inlined || !state.written || is_small(p)) continue;
      state.written = !is_written_by_reader(p);
      if (state.written) state.inlined = out = false;
    }
    return out;
  }

  // By the first reader, if that waits for nothing else: all other readers come later. Not if the value is read after
  // the kernel: the elements that a reader computes may differ in the last bit from those of the task itself.
  bool is_written_by_reader(size_t p) {
    size_t t = p + 1;
    while (!reads(t, p)) ++t;
    const std::vector<Inlined> computed = computed_by(t);
    const auto times =
        std::count_if(computed.begin(), computed.end(), [&](const Inlined& each) { return each.producer == p; });
    State& state = states_[p];
    state.writer.reset();
    if (is_needed(p) || state.source->rounded || states_[t].inlined || times != 1 || !is_ready(t)) return false;
    state.writer = t;
    if (lower_with_producers(t)) return true;
    state.writer.reset();
    return false;
  }

  const KernelSchedule& kernel_;
  const std::vector<GpuTask>& tasks_;
  const GpuTarget& target_;
  std::map<ValueId, size_t> writers_;  // the task that computes a value
  std::vector<State> states_;          // by task
};

}  // namespace

void inline_producers(KernelSchedule& kernel, const GpuTarget& target) {
  kernel.tasks = ProducerInliner(kernel, target).result();
}

}  // namespace lockstep::detail
