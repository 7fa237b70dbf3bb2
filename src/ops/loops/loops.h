// The vectorized loops of elementwise ops, compiled once per instruction set and selected at run time. Immutable
// tables, safe from any thread.
//
// Loops work on register types: bool (one byte, 0 or 1), u8, i32, i64, u32, f32, f64. Smaller floats are widened to f32
// when loaded, rounded after each operation and narrowed when stored.
#pragma once

#include <cstdint>

#include "lane/cpu/attention.h"
#include "lockstep/dtype.h"
#include "ops/loops/norm_loops.h"
#include "program/op.h"

namespace lockstep {

// The ops with loops. select, cast and bitcast, whose operands differ in type, have separate tables.
enum class LoopId : uint8_t {
#define LOCKSTEP_ID(name, ...) name,
#define UNARY LOCKSTEP_ID
#define PREDICATE LOCKSTEP_ID
#define BINARY LOCKSTEP_ID
#define COMPARE LOCKSTEP_ID
#include "ops/elementwise.def"
#undef LOCKSTEP_ID
  count
};

inline constexpr int kRegisterTypes = 7;

// The type in which elements of `t` are computed.
constexpr DType register_type(DType t) { return t >= DType::f8_e4m3 && t < DType::f32 ? DType::f32 : t; }

// The floats below f32, which tables of `narrow` and `round` have: 0 to 3.
inline constexpr int kSmallFloats = 4;
constexpr bool is_small_float(DType t) { return register_type(t) != t; }
constexpr size_t small_float_index(DType t) { return static_cast<size_t>(t) - static_cast<size_t>(DType::f8_e4m3); }

// 0 to 6. REQUIRES: t is a register type.
constexpr int register_index(DType t) {
  const int i = static_cast<int>(t);
  return i <= static_cast<int>(DType::u32) ? i : i - kSmallFloats;
}

// Fills dst[0, n) with src[0], src[stride], ... converted to the register type; stride counts elements and may
// be 0 or negative.
using LoadRow = void (*)(void* dst, const void* src, int64_t stride, int64_t n);

// `out` may be one of the inputs if their elements have the same size; otherwise they do not overlap.
struct Loops {
  Loop map[static_cast<int>(LoopId::count)][kRegisterTypes];  // by register type of the operands; null: not defined
  // The same for f32 and f64 if one operand is one repeated element, of which only the first is read:
  // [operand][op][type].
  Loop uniform[2][static_cast<int>(LoopId::count)][kRegisterTypes];
  Loop select[kRegisterTypes];                // by register type of the branches
  Loop cast[kRegisterTypes][kRegisterTypes];  // [from][to]
  LoadRow load[kDTypeCount];
  Loop narrow[kSmallFloats];  // f32 -> a smaller float in memory
  Loop round[kSmallFloats];   // f32 -> f32 rounded to the precision of a smaller float
  NormLoops<float> norm_f32;
  NormLoops<double> norm_f64;

  // `loop`, or its faster variant if operand `operand` is one repeated element.
  Loop with_uniform(Loop loop, size_t operand) const;

  Loop copy(DType t) const { return cast[register_index(t)][register_index(t)]; }
};

// The tables for the best instruction set of this machine.
const Loops& loops();

// The tables of each instruction set that this machine supports, the best last.
std::span<const Loops* const> all_loops();

// The same for the loops of attention.
std::span<const AttentionLoops* const> all_attention_loops();

}  // namespace lockstep
