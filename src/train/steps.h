// The compiled functions of a run: an optimizer step, several steps in one call, a micro-batch of an accumulated step,
// and an evaluation batch. Not thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/engine.h"
#include "lockstep/jit.h"

namespace lockstep::detail {

// The arrays that a step reads and updates.
struct StepState {
  std::vector<Array> params;  // all parameters of the task, trained or not
  OptimizerState optimizer;
  LossScale loss_scale;
  Float8History float8;
  std::vector<Array> average;  // of the trained parameters; empty without EngineOptions::ema_decay
};
StepState arrays_of(const TrainState& state);

// The random key of a micro-batch of a step.
Array step_key(uint64_t seed, const Array& step, const Array& micro_batch);

// The statistics of a step.
struct StepOutputs {
  // All scalars in one vector, so that one readback transfers them: f32, or f64 if the loss is f64 or a sum of integers
  // may exceed what f32 has exactly. The elements:
  //   mean loss over the batch
  //   sum of each metric, then the sums of the weights of weighted metrics; see MetricForms
  //   learning rate
  //   0 if loss scaling is on and a gradient is not finite, else 1
  //   loss scale after the step
  //   squared gradient norms, one per trained parameter
  // Zeros pad it to a multiple of kStatsAlignment elements, so that a lane can write the vectors of consecutive steps to
  // aligned rows of one array.
  Array stats;
  static constexpr size_t kStatsAlignment = 16;
  std::vector<Array> stop;  // i32: number of devices that voted to stop; empty in a job of one process
};

// What a task's metrics are: names and numbers of values. Known once the loss has been traced. Safe from any thread.
class MetricForms {
 public:
  struct Form {
    std::string name;
    int64_t values_per_example = 1;
    bool weighted = false;
    bool operator==(const Form&) const = default;
  };
  // The forms that the last traced loss had.
  std::vector<Form> get() const {
    const std::lock_guard lock(mutex_);
    return forms_;
  }
  void set(std::vector<Form> forms) {
    const std::lock_guard lock(mutex_);
    forms_ = std::move(forms);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Form> forms_;
};

// Sums of metrics over examples. A metric that is the mean of its batch is multiplied by the number of examples. Integers
// are added up exactly, as i32 or i64; u64 as f64.
struct MetricSums {
  std::vector<Array> sums;     // one per metric
  std::vector<Array> weights;  // sums of weights, one per weighted metric
};

// Sums over the micro-batches of a batch.
struct AccumulatedGrads {
  std::vector<Array> grads;   // of the trained parameters, multiplied by the loss scale
  Array loss;                 // the mean over the batch; if weighted, multiplied by `weight`
  std::vector<Array> weight;  // if the loss is weighted, the mean weight over the batch; else empty
  MetricSums metrics;
  std::vector<Array> largest;  // with precision float8: of the operands of each product, see Float8History
  std::vector<Array> states;   // the parameters that are not trained, after the last micro-batch
};

// Sums over an evaluation batch. The first metric is the loss.
struct EvalSums {
  MetricSums metrics;
  std::vector<Array> counts;
  std::vector<Array> predictions;  // of a classifier, if wanted: labels i32 [n] and probabilities f32 [n, classes]
};

// The examples of a batch: rows of a resident source, or the fields of a streamed one.
struct StepBatch {
  BatchArrays data;         // the arrays of the resident source, or the fields of the batch
  std::vector<Array> rows;  // resident: one i32 [n]; streamed: empty
  int64_t source = 0;       // see CompiledSteps::source_number()
};

// Whether each process requests to stop: one i32 array with an element per device, sharded over all axes of the mesh.
// Empty in a job of one process.
using StopVotes = std::vector<Array>;

// The shardings of all arrays of a run.
struct TrainShardings {
  NamedSharding replicated;                   // the data set, scalars
  NamedSharding examples;                     // arrays with one row per example of a batch, along the data axis
  NamedSharding per_device;                   // one element per device
  std::vector<NamedSharding> params;          // of all parameters
  std::vector<NamedSharding> trained, grads;  // of the trained ones and their gradients
  std::vector<NamedSharding> optimizer;       // of the arrays of state_arrays()

  // REQUIRES: `specs` has one element per parameter of the task.
  TrainShardings(const Task& task, const EngineOptions& options, const std::vector<ParameterSpecs>& specs);

  // Reshard concrete or traced arrays; arrays that already have the sharding are returned unchanged. A batch has
  // `global_size` examples, or is this process's part of such a batch.
  StepState place(const StepState& state) const;
  AccumulatedGrads place(const AccumulatedGrads& sum) const;
  StepBatch place(const StepBatch& batch, int64_t global_size) const;
  StopVotes votes(bool stop) const;
};

class CompiledSteps {
 public:
  CompiledSteps(const Task& task, const EngineOptions& options, const TrainShardings& shardings);

  // One optimizer step. The mean loss is the sum divided by `global_size`. `state` is donated.
  // REQUIRES (here and below): arguments have the shardings given to the constructor.
  std::pair<StepState, StepOutputs> step(const StepState& state, const StepBatch& batch, int64_t global_size,
                                         const StopVotes& votes) const {
    return step_(state, batch, global_size, votes);
  }
  // Several consecutive steps in one call; the rows are [steps, n]. Returns the new state and the stats of all steps,
  // [steps, ...]. `state` is donated. REQUIRES: a job of one process.
  std::pair<StepState, Array> run_several(const StepState& state, const StepBatch& batches, int64_t global_size) const {
    return run_several_(state, batches, global_size);
  }
  // Adds the gradients of micro-batch number `micro_batch` to `sum`, which is donated.
  AccumulatedGrads accumulate(const AccumulatedGrads& sum, const StepState& state, const StepBatch& batch,
                              int64_t global_size, int micro_batch) const {
    return accumulate_(sum, state, batch, global_size, Array(micro_batch));
  }
  // The start of an accumulation. The micro-batch gives the number and types of the sums.
  AccumulatedGrads zero_sum(const StepState& state, const StepBatch& batch, int64_t global_size) const;
  // The update after all micro-batches were accumulated. `state` and `sum` are donated.
  std::pair<StepState, StepOutputs> finish(const StepState& state, const AccumulatedGrads& sum,
                                           const StopVotes& votes) const {
    return finish_(state, sum, votes);
  }
  // Sums of losses, metrics and counts over a batch; its predictions if `predictions`.
  EvalSums evaluate(const std::vector<Array>& params, const StepBatch& batch, bool predictions) const {
    return evaluate_(params, batch, predictions);
  }

  // The number of a source in StepBatch. The compiled functions keep the source alive.
  int64_t source_number(const SourcePtr& source) const;

  // The metrics of traced steps, and the metrics and counts of traced evaluations.
  const MetricForms& step_metrics() const { return *step_metrics_; }
  const MetricForms& eval_metrics() const { return *eval_metrics_; }
  const MetricForms& eval_counts() const { return *eval_counts_; }

  // Bytes of workspace that step(), accumulate() and finish() need on each lane; see Jit::work_bytes.
  std::vector<int64_t> step_work(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    return step_.work_bytes(state, batch, global_size, shardings_.votes(false));
  }
  std::vector<int64_t> accumulate_work(const AccumulatedGrads& sum, const StepState& state, const StepBatch& batch,
                                       int64_t global_size) const {
    return accumulate_.work_bytes(sum, state, batch, global_size, Array(0));
  }
  std::vector<int64_t> finish_work(const StepState& state, const AccumulatedGrads& sum) const {
    return finish_.work_bytes(state, sum, shardings_.votes(false));
  }

  // The work of step(), accumulate() and finish() on this process; see Jit::multiply_adds.
  double step_multiply_adds(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    return step_.multiply_adds(state, batch, global_size, shardings_.votes(false));
  }
  double accumulate_multiply_adds(const AccumulatedGrads& sum, const StepState& state, const StepBatch& batch,
                                  int64_t global_size) const {
    return accumulate_.multiply_adds(sum, state, batch, global_size, Array(0));
  }
  double finish_multiply_adds(const StepState& state, const AccumulatedGrads& sum) const {
    return finish_.multiply_adds(state, sum, shardings_.votes(false));
  }

  // Compile in the background; see Jit::prepare.
  void prepare_step(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    step_.prepare(state, batch, global_size, shardings_.votes(false));
  }
  void prepare_evaluate(const std::vector<Array>& params, const StepBatch& batch, bool predictions) const {
    evaluate_.prepare(params, batch, predictions);
  }

  // The execution plan of the step for these arguments; see Jit::instructions and Jit::plan.
  size_t step_instructions(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    return step_.instructions(state, batch, global_size, shardings_.votes(false));
  }
  std::string plan(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    return step_.plan(state, batch, global_size, shardings_.votes(false));
  }
  // How lanes execute step(), run_several(), accumulate() and finish(); see Jit::schedule.
  std::string schedule(const StepState& state, const StepBatch& batch, int64_t global_size) const {
    return step_.schedule(state, batch, global_size, shardings_.votes(false));
  }
  std::string several_schedule(const StepState& state, const StepBatch& batches, int64_t global_size) const {
    return run_several_.schedule(state, batches, global_size);
  }
  std::string accumulate_schedule(const AccumulatedGrads& sum, const StepState& state, const StepBatch& batch,
                                  int64_t global_size) const {
    return accumulate_.schedule(sum, state, batch, global_size, Array(0));
  }
  std::string finish_schedule(const StepState& state, const AccumulatedGrads& sum) const {
    return finish_.schedule(state, sum, shardings_.votes(false));
  }

 private:
  struct Recipe;  // what the traced functions compute
  using Sources = std::vector<SourcePtr>;
  using StepFunction = std::function<std::pair<StepState, StepOutputs>(StepState, StepBatch, int64_t, StopVotes)>;
  using SeveralFunction = std::function<std::pair<StepState, Array>(StepState, StepBatch, int64_t)>;
  using AccumulateFunction = std::function<AccumulatedGrads(AccumulatedGrads, StepState, StepBatch, int64_t, Array)>;
  using FinishFunction = std::function<std::pair<StepState, StepOutputs>(StepState, AccumulatedGrads, StopVotes)>;
  using EvaluateFunction = std::function<EvalSums(std::vector<Array>, StepBatch, bool)>;

  TrainShardings shardings_;
  std::shared_ptr<Sources> sources_ = std::make_shared<Sources>();
  std::shared_ptr<MetricForms> step_metrics_ = std::make_shared<MetricForms>(),
                               eval_metrics_ = std::make_shared<MetricForms>(),
                               eval_counts_ = std::make_shared<MetricForms>();
  std::shared_ptr<const Recipe> recipe_;
  // The form of zero_sum() and the types of its leaves, known after its first call.
  mutable std::optional<AccumulatedGrads> sum_;
  mutable std::vector<Type> sum_types_;
  Jit<StepFunction> step_;
  Jit<SeveralFunction> run_several_;
  Jit<AccumulateFunction> accumulate_;
  Jit<FinishFunction> finish_;
  Jit<EvaluateFunction> evaluate_;
};

}  // namespace lockstep::detail
