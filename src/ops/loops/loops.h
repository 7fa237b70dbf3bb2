// The vectorized loops of elementwise ops, compiled once per instruction set and selected at run time. Immutable
// tables, safe from any thread.
//
// Loops work on register types: bool (one byte, 0 or 1), u8, u32, u64, i32, i64, f32, f64, c64, c128. Smaller floats are
// widened to f32 when loaded, rounded after each operation and narrowed when stored. In the same way i8, i16 and u16 are
// computed in i32 and wrap.
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

inline constexpr DType kRegisterTypeList[] = {DType::boolean, DType::u8,  DType::u32, DType::u64, DType::i32,
                                              DType::i64,     DType::f32, DType::f64, DType::c64, DType::c128};
inline constexpr int kRegisterTypes = 10;

// The type in which elements of `t` are computed.
constexpr DType register_type(DType t) {
  if (t == DType::i8 || t == DType::i16 || t == DType::u16) return DType::i32;
  return t >= DType::f8_e4m3 && t < DType::f32 ? DType::f32 : t;
}

// The types that are wider in registers, which the tables `narrow` and `round` have.
inline constexpr DType kNarrowTypeList[] = {DType::f8_e4m3, DType::f8_e5m2, DType::bf16, DType::f16,
                                            DType::i8,      DType::i16,     DType::u16};
inline constexpr int kNarrowTypes = 7;
constexpr bool is_narrow(DType t) { return register_type(t) != t; }

// The place of a type in its list. REQUIRES: it is there.
constexpr size_t narrow_index(DType t) {
  size_t i = 0;
  while (kNarrowTypeList[i] != t) ++i;
  return i;
}
constexpr int register_index(DType t) {
  int i = 0;
  while (kRegisterTypeList[i] != t) ++i;
  return i;
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
  Loop cast[kRegisterTypes][kRegisterTypes];  // [from][to]; complex types only among themselves, else null
  Loop clamp[2][kNarrowTypes];                // [f32, f64] -> i32 in the range of a narrow integer; null for floats
  Loop make_complex[2];                       // f32, f64: (re, im) -> complex
  Loop real[2], imag[2], abs[2], angle[2];    // c64, c128
  LoadRow load[kDTypeCount];
  Loop narrow[kNarrowTypes];  // register type -> a narrow type in memory
  Loop round[kNarrowTypes];   // register type -> the same, rounded or wrapped to the values of a narrow type
  NormLoops<float> norm_f32;
  NormLoops<double> norm_f64;

  // The loop of a cast from a register type to any type.
  Loop convert(DType from, DType to) const;

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
