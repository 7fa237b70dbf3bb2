// The vectorized loops of convolutions of small groups (conv_direct.h), compiled once per instruction set, with the
// same bits for each. Immutable tables, safe from any thread.
#pragma once

#include <cstdint>

namespace lockstep::detail {

template <class T>
struct DirectConvLoops {
  // out[c] = the sum over t of x[t][c] * w[t][c], for c < channels, in the order of t.
  void (*dot)(const T* const* x, const T* const* w, int64_t taps, int64_t channels, T* out);
  // sums[c] += the sum over p of x[p * x_step + c] * y[p * y_step + c], for c < channels, in the order of p.
  void (*add_products)(const T* x, int64_t x_step, const T* y, int64_t y_step, int64_t pixels, int64_t channels,
                       T* sums);
};

struct DirectConvTables {
  DirectConvLoops<float> in_f32;
  DirectConvLoops<double> in_f64;
};

// The table for this machine.
const DirectConvTables& direct_conv_tables();

template <class T>
const DirectConvLoops<T>& direct_conv_loops() {
  if constexpr (sizeof(T) == sizeof(double))
    return direct_conv_tables().in_f64;
  else
    return direct_conv_tables().in_f32;
}

}  // namespace lockstep::detail
