#include "ops/cuda/graph_control.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "lane/cuda/graph_cache.h"
#include "ops/control.h"
#include "ops/cuda/text.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using Condition = CudaStream::GraphCondition;
using Pointers = const void* const*;
using Results = void* const*;

// As in graph_condition.cuh.
constexpr size_t kMostConditions = 32;
struct GraphConditions {
  std::array<uint64_t, kMostConditions> all{};
  uint32_t count = 0;

  explicit GraphConditions(std::span<const Condition> conditions) : count(static_cast<uint32_t>(conditions.size())) {
    std::copy(conditions.begin(), conditions.end(), all.begin());
  }
};

// A kernel of graph_condition.cuh, which one thread runs.
class ConditionKernel {
 public:
  ConditionKernel(CudaStream& lane, const char* parameters, const char* call)
      : lane_(lane),
        function_(kernel_of(fmt::format(R"(#include "graph_condition.cuh"
using namespace lockstep;
extern "C" __global__ void lockstep_condition({}) {{
  {};
}}
)",
                                        parameters, call),
                            lane)) {}

  template <class... Arguments>
  void operator()(const Arguments&... arguments) const {
    void* all[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    function_.launch(lane_, 1, 1, all);
  }

 private:
  CudaStream& lane_;
  CudaFunction function_;
};

// Waits for the GPU.
template <class T>
T read_scalar(CudaStream& lane, const void* from) {
  T value{};
  lane.to_host(&value, from, sizeof value);
  return value;
}

// Work that the host controls until all its parts have run without waiting for the GPU, and that is captured from then
// on, with one graph for each recent set of pointers.
class GraphControl {
 public:
  explicit GraphControl(const KernelSpec& spec)
      : lane_(*spec.cuda),
        operands_(spec.in.size()),
        results_(spec.out.size()),
        // What it contains may have said that it cannot be captured.
        can_capture_(CudaStream::has_graph_conditions() && !(spec.uncapturable && *spec.uncapturable)),
        graphs_(lane_) {}
  virtual ~GraphControl() = default;
  GraphControl(const GraphControl&) = delete;
  GraphControl& operator=(const GraphControl&) = delete;

  void run(Pointers in, Results out) {
    if (lane_.capturing()) return capture(in, out);
    if (!is_prepared_) return run_first(in, out);
    pointers_.assign(in, in + operands_);
    pointers_.insert(pointers_.end(), out, out + results_);
    graphs_.run(pointers_, [&] {
      if (lane_.capturing()) return capture(in, out);
      const CudaStream::UncountedWaits uncounted;
      run_on_host(in, out);
    });
  }

 protected:
  // Runs the work. The host waits for conditions.
  virtual void run_on_host(Pointers in, Results out) = 0;
  // Enqueues the work, with conditions that the GPU reads.
  virtual void capture(Pointers in, Results out) = 0;
  // Whether every part has run without waiting for the GPU.
  virtual bool all_parts_ran() const = 0;

  // Runs a part and returns whether it did so without waiting for the GPU.
  static bool runs_freely(const Kernel& part, Pointers in, Results out) {
    const int64_t before = CudaStream::wait_count();
    part(in, out);
    return CudaStream::wait_count() == before;
  }

  CudaStream& lane_;

 private:
  void run_first(Pointers in, Results out) {
    {
      const CudaStream::UncountedWaits uncounted;
      run_on_host(in, out);
      if (can_capture_ && all_parts_ran()) is_prepared_ = can_capture_ = captures(in, out);
    }
    if (!is_prepared_) lane_.wait();  // counted, so that what contains this work is not captured either
  }

  // The driver refuses some work in conditional nodes.
  bool captures(Pointers in, Results out) {
    try {
      lane_.destroy_graph(lane_.capture([&] { capture(in, out); }));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const size_t operands_, results_;
  bool can_capture_, is_prepared_ = false;
  std::vector<const void*> pointers_;  // of the current run
  GraphCache graphs_;
};

// The carries of even rounds are read from the first buffers and written to the second; those of odd rounds from the
// second to the first. A condition inside a round leaves the loop between the two.
class While final : public GraphControl {
 public:
  While(const KernelSpec& spec, Kernel condition, Kernel step)
      : GraphControl(spec),
        condition_(std::move(condition)),
        step_(std::move(step)),
        last_(spec.compile(last_carries({spec.out.begin(), spec.out.end()}))),
        set_conditions_(lane_, "const bool* another, GraphConditions conditions, uint32_t* is_odd, uint32_t odd",
                        "set_loop_conditions(another, conditions, is_odd, odd)"),
        carries_(spec.out.size()),
        constants_(spec.in.size() - carries_),
        another_(lane_.allocate(1, "the condition of a while_loop")),
        is_odd_(lane_.allocate(sizeof(uint32_t), "the condition of a while_loop")) {
    for (const Type& type : spec.out) {
      bytes_.push_back(type.bytes());
      for (std::vector<BufferPtr>* each : {&first_, &second_})
        each->push_back(lane_.allocate(type.bytes(), "the carries of a while_loop"));
    }
  }

 protected:
  void run_on_host(Pointers in, Results out) override {
    begin(in);
    uint32_t odd = 0;
    for (; read_scalar<bool>(lane_, another_->data()); odd = 1 - odd) step_ran_ = step(in, odd);
    set(odd, {});
    finish(out);
  }

  void capture(Pointers in, Results out) override {
    begin(in);
    const Condition even = lane_.make_graph_condition();
    set(0, {even});
    lane_.capture_while(even, [&] {
      step(in, 0);
      const Condition odd = lane_.make_graph_condition();
      set(1, {even, odd});
      lane_.capture_if(odd, [&] {
        step(in, 1);
        set(0, {even});
      });
    });
    finish(out);
  }

  bool all_parts_ran() const override { return condition_ran_ && step_ran_; }

 private:
  void begin(Pointers in) {
    void* const another = another_->data();
    condition_ran_ = runs_freely(condition_, in, &another);
    for (size_t i = 0; i < carries_; ++i) lane_.copy(first_[i]->data(), in[constants_ + i], bytes_[i]);
  }

  bool step(Pointers in, uint32_t odd) {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (size_t i = 0; i < carries_; ++i) {
      from.push_back((odd ? second_ : first_)[i]->data());
      to.push_back((odd ? first_ : second_)[i]->data());
    }
    from.insert(from.end(), in, in + constants_);
    to.push_back(another_->data());
    return runs_freely(step_, from.data(), to.data());
  }

  void set(uint32_t odd, std::initializer_list<Condition> conditions) {
    const void *another = another_->data(), *is_odd = is_odd_->data();
    set_conditions_(another, GraphConditions(conditions), is_odd, odd);
  }

  void finish(Results out) {
    std::vector<const void*> from = {is_odd_->data()};
    for (size_t i = 0; i < carries_; ++i) from.insert(from.end(), {first_[i]->data(), second_[i]->data()});
    last_(from.data(), out);
  }

  const Kernel condition_, step_, last_;
  const ConditionKernel set_conditions_;
  const size_t carries_, constants_;
  const BufferPtr another_, is_odd_;
  std::vector<int64_t> bytes_;
  std::vector<BufferPtr> first_, second_;
  bool condition_ran_ = false, step_ran_ = false;
};

class Cond final : public GraphControl {
 public:
  Cond(const KernelSpec& spec, std::vector<Kernel> branches)
      : GraphControl(spec),
        branches_(std::move(branches)),
        by_index_(spec.in[0].dtype == DType::i32),
        set_conditions_(lane_,
                        fmt::format("const {}* which, GraphConditions conditions, int32_t first, int32_t branches",
                                    memory_type(spec.in[0].dtype))
                            .c_str(),
                        "set_branch_conditions(which, conditions, first, branches)"),
        ran_(branches_.size()) {}

 protected:
  void run_on_host(Pointers in, Results out) override {
    const int32_t which = by_index_ ? read_scalar<int32_t>(lane_, in[0]) : int32_t{read_scalar<bool>(lane_, in[0])};
    const size_t branch = branch_at(which, branches_.size());
    ran_[branch] = runs_freely(branches_[branch], in + 1, out);
    if (!all_parts_ran()) set(in[0], {}, 0);
  }

  void capture(Pointers in, Results out) override {
    for (size_t first = 0; first < branches_.size(); first += kMostConditions) {
      std::vector<Condition> conditions(std::min(branches_.size() - first, kMostConditions));
      for (Condition& each : conditions) each = lane_.make_graph_condition();
      set(in[0], conditions, first);
      for (size_t i = 0; i < conditions.size(); ++i)
        lane_.capture_if(conditions[i], [&] { branches_[first + i](in + 1, out); });
    }
  }

  bool all_parts_ran() const override {
    return std::all_of(ran_.begin(), ran_.end(), [](bool ran) { return ran; });
  }

 private:
  void set(const void* which, std::span<const Condition> conditions, size_t first) {
    set_conditions_(which, GraphConditions(conditions), static_cast<int32_t>(first),
                    static_cast<int32_t>(branches_.size()));
  }

  const std::vector<Kernel> branches_;
  const bool by_index_;
  const ConditionKernel set_conditions_;
  std::vector<bool> ran_;
};

}  // namespace

Program last_carries(const std::vector<Type>& types) {
  Builder b;
  const Value rounds = b.input({DType::u32, {}});
  const Value is_odd = cast(bit_and(rounds, full(b, rounds.type(), int64_t{1})), DType::boolean);
  Values out;
  for (const Type& type : types) {
    const Value even = b.input(type), odd = b.input(type);
    out.push_back(select(broadcast(is_odd, type.shape, {}), odd, even));
  }
  return b.take(out);
}

Kernel while_by_rounds(const KernelSpec& spec, Kernel condition, Kernel step) {
  const auto loop = std::make_shared<While>(spec, std::move(condition), std::move(step));
  return [loop](Pointers in, Results out) { loop->run(in, out); };
}

Kernel cond_by_branches(const KernelSpec& spec, std::vector<Kernel> branches) {
  const auto choice = std::make_shared<Cond>(spec, std::move(branches));
  return [choice](Pointers in, Results out) { choice->run(in, out); };
}

}  // namespace lockstep
