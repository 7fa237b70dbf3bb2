// Random bits from a counter: threefry2x32 with 20 rounds. A key is two words, u32[2]. Equal keys give equal bits on
// every machine, for any number of threads and any sharding. No gradients flow. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// u32[shape]: element i, counted row-major in 64 bits, is x0 ^ x1 of threefry(key, high word of i, low word of i).
// Several keys, u32[keys..., 2], give one array of bits each: u32[keys..., shape...].
Value random_bits(Value key, Shape shape);

// The two words {x0, x1} of the cipher for each pair of words of hi and lo, which have the same shape. With several
// keys, u32[keys..., 2], each key encrypts its block of the counters [keys..., rest...].
Values threefry(Value key, Value hi, Value lo);

}  // namespace lockstep
