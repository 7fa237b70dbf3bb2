// The definitions of DirectConvLoops, included once by each file that compiles them for an instruction set. Everything
// here has internal linkage and calls no function of the standard library.
#pragma once

#include "lane/cpu/conv_direct_loops.h"

namespace lockstep::detail {
namespace {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

// Some channels in a vector register.
template <class T>
struct ChannelLanes {
  typedef T Register __attribute__((vector_size(kRegisterBytes)));
  static constexpr int64_t kCount = kRegisterBytes / sizeof(T);
  static Register load(const T* from) {
    Register r;
    __builtin_memcpy(&r, from, sizeof r);
    return r;
  }
  static void store(Register r, T* to) { __builtin_memcpy(to, &r, sizeof r); }
};
// One channel, for the rest of them.
template <class T>
struct OneChannel {
  using Register = T;
  static constexpr int64_t kCount = 1;
  static T load(const T* from) { return *from; }
  static void store(T r, T* to) { *to = r; }
};

// Calls f.template operator()<Lanes, registers>(first channel) for blocks of channels: of four registers, of one, and
// single channels.
template <class T, class F>
inline void for_channels(int64_t channels, const F& f) {
  using Lanes = ChannelLanes<T>;
  int64_t c = 0;
  for (; c + 4 * Lanes::kCount <= channels; c += 4 * Lanes::kCount) f.template operator()<Lanes, 4>(c);
  for (; c + Lanes::kCount <= channels; c += Lanes::kCount) f.template operator()<Lanes, 1>(c);
  for (; c < channels; ++c) f.template operator()<OneChannel<T>, 1>(c);
}

template <class T>
void direct_dot(const T* const* x, const T* const* w, int64_t taps, int64_t channels, T* out) {
  for_channels<T>(channels, [&]<class Lanes, int kBlock>(int64_t c) {
    typename Lanes::Register sum[kBlock] = {};
    for (int64_t t = 0; t < taps; ++t)
      for (int k = 0; k < kBlock; ++k)
        sum[k] += Lanes::load(x[t] + c + k * Lanes::kCount) * Lanes::load(w[t] + c + k * Lanes::kCount);
    for (int k = 0; k < kBlock; ++k) Lanes::store(sum[k], out + c + k * Lanes::kCount);
  });
}

template <class T>
void direct_add_products(const T* x, int64_t x_step, const T* y, int64_t y_step, int64_t pixels, int64_t channels,
                         T* sums) {
  for_channels<T>(channels, [&]<class Lanes, int kBlock>(int64_t c) {
    typename Lanes::Register sum[kBlock];
    for (int k = 0; k < kBlock; ++k) sum[k] = Lanes::load(sums + c + k * Lanes::kCount);
    for (int64_t p = 0; p < pixels; ++p)
      for (int k = 0; k < kBlock; ++k)
        sum[k] +=
            Lanes::load(x + p * x_step + c + k * Lanes::kCount) * Lanes::load(y + p * y_step + c + k * Lanes::kCount);
    for (int k = 0; k < kBlock; ++k) Lanes::store(sum[k], sums + c + k * Lanes::kCount);
  });
}

constexpr DirectConvTables make_direct_conv_tables() {
  return {{direct_dot<float>, direct_add_products<float>}, {direct_dot<double>, direct_add_products<double>}};
}

}  // namespace
}  // namespace lockstep::detail
