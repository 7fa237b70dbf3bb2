// What an Engine holds; shared by the files that implement it.
#pragma once

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep {

struct Engine::Impl {
  Impl(Model m, EngineOptions o);

  // Laid out by the plan.
  TrainState placed(TrainState state) const;

  Model model;
  EngineOptions options;  // checked, with a mesh
  std::vector<ParameterSpecs> specs;
  detail::Layout layout;
  detail::Steps steps;
};

}  // namespace lockstep
