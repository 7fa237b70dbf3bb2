// Equations that do something besides computing their results: collectives, and equations with an attribute `effect`, such
// as prints. They are never dropped or merged, and keep their order. Pure functions, safe from any thread.
#pragma once

#include <cstdint>

#include "program/op.h"

namespace lockstep {

// The values of the attribute `effect`.
enum class Effect : int64_t {
  none = 0,        // another lane has the effect
  once = 1,        // lanes with equal operands have it once
  everywhere = 2,  // on each lane
};

// Whether an equation, or one of a program in its attributes, has an effect.
bool has_effect(const Eqn& eqn);

inline bool is_ordered(const Eqn& eqn) { return eqn.op->is_collective() || has_effect(eqn); }

// The attributes without effects that only one of several lanes has.
Attrs without_repeated_effects(const Attrs& attrs);
// The program without any effects, for computing its values once more.
Program without_effects(const Program& program);

}  // namespace lockstep
