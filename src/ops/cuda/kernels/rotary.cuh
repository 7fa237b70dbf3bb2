// Rotary positions: rotates the pairs of features (i, i + half) of arrays [b, t, heads, 2 half].
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the array (rotary_cuda.cc): T is the element in memory, R in registers. A thread rotates kVector adjacent
// pairs of kHeads heads of a token; kVectors of them are half a head, kHeadGroups groups of heads a token.
template <class S>
struct Rotary {
  using T = typename S::T;
  using R = typename S::R;
  using Pack = Side<T, S::kVector>;
  static constexpr uint64_t kHalf = uint64_t(S::kVectors) * S::kVector;

  static void rotate(const T* x, const int32_t* positions, const R* frequencies, T* y) {
    const uint64_t thread = uint64_t(blockIdx.x) * S::kThreads + threadIdx.x;
    if (thread >= S::kTotal) return;
    const uint64_t first = thread % S::kVectors * S::kVector, group = thread / S::kVectors % S::kHeadGroups,
                   token = thread / S::kVectors / S::kHeadGroups;
    const R position = R(positions[token % S::kTokens]);
    R c[S::kVector], s[S::kVector];
#pragma unroll
    for (int q = 0; q < S::kVector; ++q) {
      const R angle = position * frequencies[first + q];
      c[q] = math::cos(angle);
      s[q] = S::kInverse ? -math::sin(angle) : math::sin(angle);
    }
#pragma unroll
    for (uint64_t h = 0; h < S::kHeads; ++h) {
      const uint64_t head = group * S::kHeads + h;
      if (head < S::kAllHeads) rotate_head(x, (token * S::kAllHeads + head) * 2 * kHalf + first, c, s, y);
    }
  }

 private:
  static void rotate_head(const T* x, uint64_t at, const R (&c)[S::kVector], const R (&s)[S::kVector], T* y) {
    Pack a, b;
    load_vector(a, x, at);
    load_vector(b, x, at + kHalf);
#pragma unroll
    for (int q = 0; q < S::kVector; ++q) {
      const R u = load(a.v[q]), v = load(b.v[q]);
      a.v[q] = Store<T>::of(u * c[q] - v * s[q]);
      b.v[q] = Store<T>::of(v * c[q] + u * s[q]);
    }
    store_vector(y, at, a);
    store_vector(y, at + kHalf, b);
  }
};

}  // namespace lockstep
