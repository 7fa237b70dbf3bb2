// Random bits from a counter. The number of words of a key chooses the cipher: u32[2] is a key of Threefry-2x32 with 20
// rounds, u32[4] one of Philox-4x32 with 10. Equal keys give equal bits on every machine, for any number of threads and
// any sharding. No gradients flow. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// u32[shape]. Element i, counted row-major in 64 bits, is
//   with a key u32[2]  x0 ^ x1 of threefry(key, high word of i, low word of i)
//   with a key u32[4]  word i % 4 of philox with the key {key[0], key[1]} of the counter {low word of i / 4, high word of
//                      i / 4, key[2], key[3]}
// Several keys, u32[keys..., 2] or u32[keys..., 4], give one array of bits each: u32[keys..., shape...].
Value random_bits(Value key, Shape shape);

// The two words {x0, x1} of the cipher for each pair of words of hi and lo, which have the same shape. With several
// keys, u32[keys..., 2], each key encrypts its block of the counters [keys..., rest...].
Values threefry(Value key, Value hi, Value lo);

}  // namespace lockstep
