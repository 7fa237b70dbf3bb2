// The compiled functions of a run: an optimizer step, several steps in one call, a micro-batch of an accumulated step,
// and an evaluation batch. Not thread-safe.
#pragma once

#include "lockstep/engine.h"
#include "lockstep/jit.h"

namespace lockstep::detail {

// The arrays that a step reads and updates.
struct StepState {
  std::vector<Array> params;
  OptimizerState optimizer;
  LossScale loss_scale;
};

// The statistics of a step.
struct StepOutputs {
  // All scalars in one vector, so that one readback transfers them: f32, or f64 if the loss is f64. The elements:
  //   0  mean loss over the batch
  //   1  number of correct predictions
  //   2  learning rate
  //   3  0 if loss scaling is on and a gradient is not finite, else 1
  //   4  loss scale after the step
  //   5  squared gradient norms, one per parameter
  // Zeros pad it to a multiple of kStatsAlignment elements, so that a lane can write the vectors of consecutive steps to
  // aligned rows of one array.
  Array stats;
  static constexpr size_t kFirstNormSquare = 5;
  static constexpr size_t kStatsAlignment = 16;
  std::vector<Array> stop;  // i32: number of devices that voted to stop; empty in a job of one process
};

// Sums over the micro-batches of a batch.
struct AccumulatedGrads {
  std::vector<Array> grads;  // multiplied by the loss scale
  Array loss, correct;
};

struct EvalSums {
  Array loss, correct;  // f32 and i32
  Array predictions;    // i32 [classes]: examples predicted as each class
  Array hits;           // i32 [classes]: correct predictions of each class
};

// The examples of a batch: the given rows of a resident data set, or all of `images` and `labels` if `rows` is empty.
struct BatchArrays {
  Array images, labels;     // u8
  std::vector<Array> rows;  // one i32 [n], or empty
};

// Whether each process requests to stop: one i32 array with an element per device, sharded over all axes of the mesh.
// Empty in a job of one process.
using StopVotes = std::vector<Array>;

// The shardings of all arrays of a run.
struct TrainShardings {
  NamedSharding replicated;  // the data set, scalars
  NamedSharding examples;    // arrays with one row per example of a batch, along the data axis
  NamedSharding per_device;  // one element per device
  std::vector<NamedSharding> params, grads, state;

  TrainShardings(const Mesh& mesh, const std::string& data_axis, const std::vector<ParameterSpecs>& specs);

  // Reshard concrete or traced arrays; arrays that already have the sharding are returned unchanged. A batch has
  // `global_size` examples, or is this process's part of such a batch.
  StepState place(const StepState& state) const;
  AccumulatedGrads place(const AccumulatedGrads& sum) const;
  BatchArrays place(const BatchArrays& batch, int64_t global_size) const;
  ImageArrays place(const ImageArrays& set) const;
  StopVotes votes(bool stop) const;
};

class CompiledSteps {
 public:
  CompiledSteps(const Model& model, const EngineOptions& options, const TrainShardings& shardings);

  // One optimizer step. The mean loss is the sum divided by `global_size`. `state` is donated.
  // REQUIRES (here and below): arguments have the shardings given to the constructor.
  std::pair<StepState, StepOutputs> step(const StepState& state, const BatchArrays& batch, int64_t global_size,
                                         const StopVotes& votes) const {
    return step_(state, batch, global_size, votes);
  }
  // Several consecutive steps in one call; the rows are [steps, n]. Returns the new state and the stats of all steps,
  // [steps, ...]. `state` is donated. REQUIRES: a job of one process.
  std::pair<StepState, Array> run_several(const StepState& state, const BatchArrays& batches,
                                          int64_t global_size) const {
    return run_several_(state, batches, global_size);
  }
  // Adds the gradients of micro-batch number `micro_batch` to `sum`, which is donated.
  AccumulatedGrads accumulate(const AccumulatedGrads& sum, const StepState& state, const BatchArrays& batch,
                              int64_t global_size, int micro_batch) const {
    return accumulate_(sum, state, batch, global_size, Array(micro_batch));
  }
  AccumulatedGrads zero_sum() const;
  // The update after all micro-batches were accumulated. `state` and `sum` are donated.
  std::pair<StepState, StepOutputs> finish(const StepState& state, const AccumulatedGrads& sum,
                                           const StopVotes& votes) const {
    return finish_(state, sum, votes);
  }
  // Sums of losses and counts over the given rows, i32 [n], of a set.
  EvalSums evaluate(const std::vector<Array>& params, const ImageArrays& set, const Array& rows) const {
    return evaluate_(params, set, rows);
  }

  // Bytes of workspace that step(), accumulate() and finish() need on each lane; see Jit::work_bytes.
  std::vector<int64_t> step_work(const StepState& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.work_bytes(state, batch, global_size, shardings_.votes(false));
  }
  std::vector<int64_t> accumulate_work(const AccumulatedGrads& sum, const StepState& state, const BatchArrays& batch,
                                       int64_t global_size) const {
    return accumulate_.work_bytes(sum, state, batch, global_size, Array(0));
  }
  std::vector<int64_t> finish_work(const StepState& state, const AccumulatedGrads& sum) const {
    return finish_.work_bytes(state, sum, shardings_.votes(false));
  }

  // Compile in the background; see Jit::prepare.
  void prepare_step(const StepState& state, const BatchArrays& batch, int64_t global_size) const {
    step_.prepare(state, batch, global_size, shardings_.votes(false));
  }
  void prepare_evaluate(const std::vector<Array>& params, const ImageArrays& set, const Array& rows) const {
    evaluate_.prepare(params, set, rows);
  }

  // The execution plan of the step for these arguments; see Jit::instructions and Jit::plan.
  size_t step_instructions(const StepState& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.instructions(state, batch, global_size, shardings_.votes(false));
  }
  std::string plan(const StepState& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.plan(state, batch, global_size, shardings_.votes(false));
  }
  // How lanes execute step(), run_several(), accumulate() and finish(); see Jit::schedule.
  std::string schedule(const StepState& state, const BatchArrays& batch, int64_t global_size) const {
    return step_.schedule(state, batch, global_size, shardings_.votes(false));
  }
  std::string several_schedule(const StepState& state, const BatchArrays& batches, int64_t global_size) const {
    return run_several_.schedule(state, batches, global_size);
  }
  std::string accumulate_schedule(const AccumulatedGrads& sum, const StepState& state, const BatchArrays& batch,
                                  int64_t global_size) const {
    return accumulate_.schedule(sum, state, batch, global_size, Array(0));
  }
  std::string finish_schedule(const StepState& state, const AccumulatedGrads& sum) const {
    return finish_.schedule(state, sum, shardings_.votes(false));
  }

 private:
  // The parameters of the traced functions, by value because the functions outlive the constructor's arguments.
  struct Recipe {
    Model model;
    Optimizer optimizer;
    Precision precision;
    double label_smoothing, pixel_mean, pixel_sd;
    uint64_t seed;

    Array pixels(const Array& images) const;
    Array logits(const std::vector<Array>& params, const Array& images, const nn::Mode& mode) const;
    AccumulatedGrads gradients(const StepState& state, const BatchArrays& batch, int64_t global_size,
                               const Array& micro_batch) const;
    std::pair<StepState, StepOutputs> updated(const StepState& state, const AccumulatedGrads& sum,
                                              const StopVotes& votes) const;
  };
  using StepFunction = std::function<std::pair<StepState, StepOutputs>(StepState, BatchArrays, int64_t, StopVotes)>;
  using SeveralFunction = std::function<std::pair<StepState, Array>(StepState, BatchArrays, int64_t)>;
  using AccumulateFunction = std::function<AccumulatedGrads(AccumulatedGrads, StepState, BatchArrays, int64_t, Array)>;
  using FinishFunction = std::function<std::pair<StepState, StepOutputs>(StepState, AccumulatedGrads, StopVotes)>;
  using EvaluateFunction = std::function<EvalSums(std::vector<Array>, ImageArrays, Array)>;

  std::vector<Type> types_;
  TrainShardings shardings_;
  Jit<StepFunction> step_;
  Jit<SeveralFunction> run_several_;
  Jit<AccumulateFunction> accumulate_;
  Jit<FinishFunction> finish_;
  Jit<EvaluateFunction> evaluate_;
};

}  // namespace lockstep::detail
