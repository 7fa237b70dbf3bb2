// Epilogues of products. For element i of the dense result, read(i, r) loads the epilogue's other inputs into a Read r.
// Then finish(i, x, r) computes the epilogue of the element's value x and writes the result. If a product finishes
// vectors, x is an array of that many elements from i on.
#pragma once
#include <cstdint>

namespace lockstep {

// A thread finishes `own` vectors of kSide elements, each with `bytes` of epilogue inputs. Returns for how many
// vectors it loads the inputs at once, so that the loads overlap: limited by registers, most of which are free after
// the product.
template <int kSide>
constexpr int group_of(int own, int bytes) {
  constexpr int kMost = 16 / kSide, kLeast = 4 / kSide;
  int out = own < kMost ? own : kMost;
  while (out > kLeast && out * bytes > 64) out /= 2;
  return out;
}

// Called while a thread block waits for the partial sums of others. The default does nothing.
inline void while_waiting() {}

}  // namespace lockstep
