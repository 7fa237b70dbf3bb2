// What an Engine holds; shared by the files that implement it.
#pragma once

#include <span>

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep {

// A step that has been started, and may be under way still.
struct StartedStep {
  detail::StepOutputs outputs;
  int64_t examples = 0;
  bool asked_to_stop = false;
};

struct Engine::Impl {
  Impl(Model m, EngineOptions o);

  // Laid out by the plan.
  TrainState placed(TrainState state) const;

  // One optimizer step, without waiting for it; and what it said, of `facts`, its values.
  StartedStep start(TrainState& state, const Loader& loader, const LoaderBatch& batch, bool ask_to_stop) const;
  // Several at once, where a step is one kernel on a GPU that does nothing else, which then does all of them; returns
  // the facts of each.
  bool starts_several(const TrainState& state, const Loader& loader, int64_t batch_size) const;
  Array start(TrainState& state, const Loader& loader, const LoaderBatches& batches) const;
  StepMetrics metrics(const StartedStep& step, std::span<const double> facts) const;
  // One that lies as all batches of that size of a resident set do.
  detail::BatchArrays any_batch(const Loader& loader, int64_t size) const;
  // Has what a run will need on a GPU compiled meanwhile: steps of whole batches, of the rest of an epoch, and
  // evaluations.
  void prepare(const TrainState& state, const Loader& loader, const FitOptions& fit) const;

  // after(before), which takes the state's arrays and gives new ones. Where it throws, the state is as it was.
  template <class After>
  auto replaced(TrainState& state, const After& after) const;

  Model model;
  EngineOptions options;  // checked, with a mesh
  std::vector<ParameterSpecs> specs;
  detail::Layout layout;
  detail::Steps steps;
};

}  // namespace lockstep
