// What an Engine holds; shared by the files that implement it.
#pragma once

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep {

struct Engine::Impl {
  Impl(Model m, EngineOptions o);

  Model model;
  EngineOptions options;  // checked, with a mesh
  detail::Steps steps;
};

}  // namespace lockstep
