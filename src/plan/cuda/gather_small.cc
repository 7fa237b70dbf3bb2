#include "plan/cuda/gather_small.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"

namespace lockstep {
namespace {

bool is_small(const Program& p, const Eqn& eqn) {
  const auto fits = [&](ValueId id) { return count(p.types[id].shape) <= cost_model::kMostGatheredElements; };
  return task_kind(*eqn.op) == &elementwise_task && std::all_of(eqn.in.begin(), eqn.in.end(), fits) &&
         std::all_of(eqn.out.begin(), eqn.out.end(), fits);
}

}  // namespace

Program gather_small(const Program& program) {
  enum Place : uint8_t { front, middle, end };
  const std::vector<Eqn>& eqns = program.eqns;
  std::vector<Place> places(eqns.size(), middle);
  std::vector<bool> late(program.types.size());  // values that are not known in front
  for (size_t i = 0; i < eqns.size(); ++i) {
    const auto is_late = [&](ValueId id) { return late[id]; };
    if (is_small(program, eqns[i]) && std::none_of(eqns[i].in.begin(), eqns[i].in.end(), is_late))
      places[i] = front;
    else
      for (const ValueId id : eqns[i].out) late[id] = true;
  }
  std::vector<bool> early(program.types.size());  // values that are needed before the end
  for (size_t i = eqns.size(); i-- > 0;) {
    const auto is_early = [&](ValueId id) { return early[id]; };
    if (places[i] == middle && is_small(program, eqns[i]) &&
        std::none_of(eqns[i].out.begin(), eqns[i].out.end(), is_early))
      places[i] = end;
    else
      for (const ValueId id : eqns[i].in) early[id] = true;
  }
  Program out = program;
  out.eqns.clear();
  for (const Place place : {front, middle, end})
    for (size_t i = 0; i < eqns.size(); ++i)
      if (places[i] == place) out.eqns.push_back(eqns[i]);
  return out;
}

}  // namespace lockstep
