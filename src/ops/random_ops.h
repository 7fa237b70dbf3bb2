// Random bits from a counter: threefry2x32 with 20 rounds. A key is two words, u32[2]; equal keys give equal bits
// whatever the machine, the number of threads or the way arrays are cut. No gradients flow.
#pragma once

#include "program/builder.h"

namespace lockstep {

// u32[shape]: element i, counted row-major in 64 bits, is x0 ^ x1 of threefry(key, high word of i, low word of i).
// Several keys, u32[keys..., 2], give an array of bits each: u32[keys..., shape...].
Value random_bits(Value key, Shape shape);

// The two words {x0, x1} of the cipher on each pair of words of hi and lo, which have the same shape. Several keys,
// u32[keys..., 2], encrypt a block of the counters [keys..., rest...] each.
Values threefry(Value key, Value hi, Value lo);

}  // namespace lockstep
