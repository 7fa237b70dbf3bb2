#include "plan/cuda/gather_small.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"

namespace lockstep {
namespace {

bool has_at_most(const Program& p, const Eqn& eqn, int64_t elements) {
  const auto fits = [&](ValueId id) { return count(p.types[id].shape) <= elements; };
  return task_kind(*eqn.op) == &elementwise_task && std::all_of(eqn.in.begin(), eqn.in.end(), fits) &&
         std::all_of(eqn.out.begin(), eqn.out.end(), fits);
}

// Where an equation goes; those with the same place keep their order.
enum class Place : uint8_t { first, second, middle, last };

// The places of equations that need only inputs. The smallest come first: others may be too large to be in their kernel.
void choose_front(const Program& p, std::vector<Place>& places) {
  std::vector<Place> made(p.types.size(), Place::first);  // by value
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    Place place = has_at_most(p, eqn, cost_model::kFewGatheredElements)    ? Place::first
                  : has_at_most(p, eqn, cost_model::kMostGatheredElements) ? Place::second
                                                                           : Place::middle;
    for (const ValueId id : eqn.in) place = std::max(place, made[id]);
    places[i] = place;
    for (const ValueId id : eqn.out) made[id] = place;
  }
}

// The places of the others that only outputs need.
void choose_end(const Program& p, std::vector<Place>& places) {
  std::vector<bool> needed(p.types.size());  // before the end
  for (size_t i = p.eqns.size(); i-- > 0;) {
    const Eqn& eqn = p.eqns[i];
    const auto is_needed = [&](ValueId id) { return needed[id]; };
    if (places[i] == Place::middle && has_at_most(p, eqn, cost_model::kFewGatheredElements) &&
        std::none_of(eqn.out.begin(), eqn.out.end(), is_needed))
      places[i] = Place::last;
    else
      for (const ValueId id : eqn.in) needed[id] = true;
  }
}

}  // namespace

Program gather_small(const Program& program) {
  std::vector<Place> places(program.eqns.size());
  choose_front(program, places);
  choose_end(program, places);
  Program out = program;
  out.eqns.clear();
  for (const Place place : {Place::first, Place::second, Place::middle, Place::last})
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i] == place) out.eqns.push_back(program.eqns[i]);
  return out;
}

}  // namespace lockstep
