#include "ops/random_ciphers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

// ---- Threefry: add, rotate and xor, with a word of the key schedule added after every fourth round

// Many counters are encrypted together, so that their long dependency chains overlap. The compiler divides them into
// the vector registers of the instruction set.
constexpr uint32_t kRandomWords = 32;
using Words [[gnu::vector_size(kRandomWords * sizeof(uint32_t))]] = uint32_t;

// W is a word or Words.
template <class W>
[[gnu::always_inline]] inline void encrypt_threefry(const ThreefryKey& key, W& x0, W& x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 += key.word[0];
  x1 += key.word[1];
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
      const int by = kRotations[group % 2][round];
      x0 += x1;
      x1 = ((x1 << by) | (x1 >> (32 - by))) ^ x0;
    }
    x0 += key.word[(group + 1) % 3];
    x1 += key.word[(group + 2) % 3] + (group + 1);
  }
}

[[gnu::always_inline]] inline void threefry_bits_loop(ThreefryKey key, uint32_t hi, uint32_t lo, uint32_t n,
                                                      uint32_t* out) {
  Words places;
  for (uint32_t i = 0; i < kRandomWords; ++i) places[i] = i;
  uint32_t i = 0;
  for (; n - i >= kRandomWords; i += kRandomWords) {
    Words x0 = Words{} + hi, x1 = places + (lo + i);
    encrypt_threefry(key, x0, x1);
    x0 ^= x1;
    std::memcpy(out + i, &x0, sizeof x0);
  }
  for (; i < n; ++i) {
    uint32_t x0 = hi, x1 = lo + i;
    encrypt_threefry(key, x0, x1);
    out[i] = x0 ^ x1;
  }
}

[[gnu::always_inline]] inline void threefry_loop(ThreefryKey key, const uint32_t* hi, const uint32_t* lo, int64_t n,
                                                 uint32_t* out0, uint32_t* out1) {
  int64_t i = 0;
  for (; n - i >= kRandomWords; i += kRandomWords) {
    Words x0, x1;
    std::memcpy(&x0, hi + i, sizeof x0);
    std::memcpy(&x1, lo + i, sizeof x1);
    encrypt_threefry(key, x0, x1);
    std::memcpy(out0 + i, &x0, sizeof x0);
    std::memcpy(out1 + i, &x1, sizeof x1);
  }
  for (; i < n; ++i) {
    uint32_t x0 = hi[i], x1 = lo[i];
    encrypt_threefry(key, x0, x1);
    out0[i] = x0;
    out1[i] = x1;
  }
}

// ---- Philox: multiply and xor, with the key increased after every round
//
// A vector has the same word of several counters in lanes of 64 bits, as the multiplication instructions need them. The
// upper halves of lanes are arbitrary: multiplications ignore them.

constexpr int kPhiloxVectors = 4;  // encrypted together, so that their dependency chains overlap

// Set has the type Lanes and the function multiply().
template <class Set>
[[gnu::always_inline]] inline void encrypt_philox(PhiloxKey key, typename Set::Lanes (&x)[kPhiloxVectors][4]) {
#pragma GCC unroll 10
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t k0 = key.word[0] + round * 0x9e3779b9u, k1 = key.word[1] + round * 0xbb67ae85u;
#pragma GCC unroll 4
    for (int v = 0; v < kPhiloxVectors; ++v) {
      typename Set::Lanes p0, p1;
      Set::multiply(x[v][0], 0xd2511f53u, p0);
      Set::multiply(x[v][2], 0xcd9e8d57u, p1);
      x[v][0] = (p1 >> 32) ^ x[v][1] ^ k0;
      x[v][1] = p1;
      x[v][2] = (p0 >> 32) ^ x[v][3] ^ k1;
      x[v][3] = p0;
    }
  }
}

// The lanes 0, 2, 4, ... of a and b in turn; then the lanes 1, 3, 5, ...
template <class Lanes>
[[gnu::always_inline]] inline void interleave(const Lanes& a, const Lanes& b, Lanes& even, Lanes& odd) {
  if constexpr (sizeof(Lanes) == 16) {
    even = __builtin_shufflevector(a, b, 0, 2);
    odd = __builtin_shufflevector(a, b, 1, 3);
  } else if constexpr (sizeof(Lanes) == 32) {
    even = __builtin_shufflevector(a, b, 0, 4, 2, 6);
    odd = __builtin_shufflevector(a, b, 1, 5, 3, 7);
  } else {
    even = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    odd = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
}

template <class Set>
constexpr int64_t kPhiloxLanes = sizeof(typename Set::Lanes) / sizeof(uint64_t);
template <class Set>
constexpr int64_t kPhiloxWords = 4 * kPhiloxVectors* kPhiloxLanes<Set>;

// Writes the kPhiloxWords words from the block `first` on.
template <class Set>
[[gnu::always_inline]] inline void philox_blocks(PhiloxKey key, uint64_t first, uint32_t* out) {
  using Lanes = typename Set::Lanes;
  constexpr int64_t kLanes = kPhiloxLanes<Set>;
  // The same in all calls: the loop around this function keeps them in registers.
  Lanes upper0, upper1;
  Set::fill(key.counter[0], upper0);
  Set::fill(key.counter[1], upper1);
  Lanes x[kPhiloxVectors][4];
#pragma GCC unroll 4
  for (int v = 0; v < kPhiloxVectors; ++v) {
    x[v][0] = Set::kBlocks + (first + static_cast<uint64_t>(v * kLanes));
    x[v][1] = x[v][0] >> 32;
    x[v][2] = upper0;
    x[v][3] = upper1;
  }
  encrypt_philox<Set>(key, x);
#pragma GCC unroll 4
  for (int v = 0; v < kPhiloxVectors; ++v) {
    const Lanes a = (x[v][0] & 0xffffffffu) | (x[v][1] << 32), b = (x[v][2] & 0xffffffffu) | (x[v][3] << 32);
    Lanes even, odd;
    interleave(a, b, even, odd);
    std::memcpy(out + 4 * v * kLanes, &even, sizeof even);
    std::memcpy(out + 4 * v * kLanes + 2 * kLanes, &odd, sizeof odd);
  }
}

template <class Set>
[[gnu::always_inline]] inline void philox_bits_loop(PhiloxKey key, uint64_t begin, int64_t n, uint32_t* out) {
  constexpr int64_t kWords = kPhiloxWords<Set>;
  while (n > 0) {
    if (begin % 4 == 0)
      for (; n >= kWords; n -= kWords, begin += kWords, out += kWords) philox_blocks<Set>(key, begin / 4, out);
    if (n == 0) break;
    // The beginning or the end of a run: some of the words of these blocks.
    uint32_t words[kWords];
    const auto skip = static_cast<int64_t>(begin % 4);
    const int64_t some = std::min(n, kWords - skip);
    philox_blocks<Set>(key, begin / 4, words);
    std::memcpy(out, words + skip, static_cast<size_t>(some) * sizeof(uint32_t));
    begin += static_cast<uint64_t>(some);
    out += some;
    n -= some;
  }
}

// ---- The loops for each instruction set
//
// LanesOfSet::multiply() multiplies the lower halves of lanes by a word. The block of each lane is in kBlocks: even lanes
// have the first half of the blocks, so that interleave() puts the blocks in order.

struct LanesOfBaseline {
  using Lanes [[gnu::vector_size(16)]] = uint64_t;
  static constexpr Lanes kBlocks = {0, 1};
  static void fill(uint64_t x, Lanes& lanes) { lanes = Lanes{x, x}; }
  static void multiply(const Lanes& x, uint32_t by, Lanes& product) {
#if defined(__x86_64__)
    product = reinterpret_cast<Lanes>(_mm_mul_epu32(reinterpret_cast<__m128i>(x), _mm_set1_epi64x(by)));
#else
    product = (x & 0xffffffffu) * uint64_t{by};
#endif
  }
};

#if defined(__x86_64__)
struct LanesOfAvx2 {
  using Lanes [[gnu::vector_size(32)]] = uint64_t;
  static constexpr Lanes kBlocks = {0, 2, 1, 3};
  [[gnu::target("avx2")]] static void fill(uint64_t x, Lanes& lanes) { lanes = Lanes{x, x, x, x}; }
  [[gnu::target("avx2")]] static void multiply(const Lanes& x, uint32_t by, Lanes& product) {
    product = reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi64x(by)));
  }
};

struct LanesOfAvx512 {
  using Lanes [[gnu::vector_size(64)]] = uint64_t;
  static constexpr Lanes kBlocks = {0, 4, 1, 5, 2, 6, 3, 7};
  [[gnu::target("avx512f,avx512vl")]] static void fill(uint64_t x, Lanes& lanes) {
    lanes = Lanes{x, x, x, x, x, x, x, x};
  }
  [[gnu::target("avx512f,avx512vl")]] static void multiply(const Lanes& x, uint32_t by, Lanes& product) {
    // With a mask of all lanes: GCC 12 warns about the other form.
    product = reinterpret_cast<Lanes>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(int64_t{by})));
  }
};
#endif

#define LOCKSTEP_CIPHERS(Set, attributes)                                                                        \
  struct Set {                                                                                                   \
    attributes static void threefry_bits(ThreefryKey key, uint32_t hi, uint32_t lo, uint32_t n, uint32_t* out) { \
      threefry_bits_loop(key, hi, lo, n, out);                                                                   \
    }                                                                                                            \
    attributes static void threefry(ThreefryKey key, const uint32_t* hi, const uint32_t* lo, int64_t n,          \
                                    uint32_t* out0, uint32_t* out1) {                                            \
      threefry_loop(key, hi, lo, n, out0, out1);                                                                 \
    }                                                                                                            \
    attributes static void philox_bits(PhiloxKey key, uint64_t begin, int64_t n, uint32_t* out) {                \
      philox_bits_loop<LanesOf##Set>(key, begin, n, out);                                                        \
    }                                                                                                            \
  };                                                                                                             \
  constexpr RandomCiphers k##Set = {Set::threefry_bits, Set::threefry, Set::philox_bits};

LOCKSTEP_CIPHERS(Baseline, )
#if defined(__x86_64__)
LOCKSTEP_CIPHERS(Avx2, [[gnu::target("avx2")]])
LOCKSTEP_CIPHERS(Avx512, [[gnu::target("avx512f,avx512vl")]])  // has rotate instructions
#endif
#undef LOCKSTEP_CIPHERS

}  // namespace

const RandomCiphers& random_ciphers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return kAvx512;
  if (__builtin_cpu_supports("avx2")) return kAvx2;
#endif
  return kBaseline;
}

}  // namespace lockstep
