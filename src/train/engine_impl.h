// The implementation class of Engine, shared by the files that implement it. Not thread-safe.
#pragma once

#include <span>

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep {

// The number of steps that fit() launches before it reads back their statistics, and that one call runs if possible.
constexpr size_t kStepsAhead = 16;

// A step that was launched and may not have finished.
struct StartedStep {
  detail::StepOutputs outputs;
  int64_t examples = 0;
  bool asked_to_stop = false;
};

struct Engine::Impl {
  Impl(Task t, EngineOptions o);

  // A state of step 0 with these parameters.
  TrainState new_state(std::vector<Array> params) const;
  // Reshards the arrays of a state as the plan requires.
  TrainState place(TrainState state) const;

  // Throws Error if a step cannot use the part of the batch that this process has loaded.
  void check(const LoaderBatch& batch) const;
  // Launches one optimizer step without waiting for it.
  StartedStep start(TrainState& state, const Loader& loader, const LoaderBatch& batch, bool ask_to_stop) const;
  // Whether several steps can run in one launch: the step must be a single kernel on the only lane in use.
  bool can_start_several(const TrainState& state, const Loader& loader, int64_t batch_size) const;
  // Launches several steps without waiting for them. Returns their stats, one row each.
  Array start(TrainState& state, const Loader& loader, const LoaderBatches& batches) const;
  // The sums over the micro-batches of a batch. Does not change the state.
  detail::AccumulatedGrads accumulate(const detail::StepState& state, const Loader& loader,
                                      const LoaderBatch& batch) const;
  // Logs the first images of a batch of step 0, as that step reads them.
  void log_examples(const Loader& loader, const LoaderBatch& batch) const;
  // Logs histograms of the parameters, and of their gradients for this batch. REQUIRES: all processes call it.
  void log_histograms(const TrainState& state, const Loader& loader, const LoaderBatch& batch) const;
  // The metrics of a step from the values of its stats (see detail::StepOutputs).
  StepMetrics metrics(const StartedStep& step, std::span<const double> stats) const;
  // The examples [begin, end) of this process's part of a batch, as an argument of a compiled function.
  detail::StepBatch step_batch(const Loader& loader, const LoaderBatch& batch, int64_t begin, int64_t end) const;
  // A batch with the shapes and shardings of all batches of that size.
  detail::StepBatch example_batch(const SourcePtr& source, int64_t size) const;
  // If steps run asynchronously, compiles in the background what the run will need: steps of full batches and of the last batch of an
  // epoch, and evaluations.
  void prepare(const TrainState& state, const Loader& loader, const FitOptions& fit) const;

  // The multiplications of a step, each with an addition, on the lanes of this process; see Jit::multiply_adds. Compiles
  // the step if necessary.
  double multiply_adds(const TrainState& state, const Loader& loader, int64_t batch_size) const;

  // Replaces the state's arrays by those that compute(arrays) returns; returns its second result. The arrays may be
  // donated. If compute throws, the state is unchanged.
  template <class Compute>
  auto replace_arrays(TrainState& state, const Compute& compute) const;

  Task task;
  EngineOptions options;              // checked, with a mesh
  std::vector<ParameterSpecs> specs;  // one per parameter
  detail::TrainShardings shardings;
  detail::CompiledSteps steps;  // compiled for these shardings
};

}  // namespace lockstep
