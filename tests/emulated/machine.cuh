// The GPU instructions of ops/cuda/kernels/machine.cuh, emulated. Work that may complete late does so, and memory that
// will be written is filled with NaN as early as possible.
#pragma once

#include "device.h"
#include "halves.h"
#include "ops/loops/float8_bits.h"

namespace lockstep {
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};
struct e5m2 {
  uint8_t bits;
};

inline float from_half(uint16_t bits) { return emulated::from_f16(bits); }
inline uint16_t to_half(float x) { return emulated::to_f16(x); }
inline uint16_t to_bf16(float x) { return emulated::to_bf16(x); }
inline uint32_t rounded_pair(bf16, uint32_t low, uint32_t high) {
  return to_bf16(__uint_as_float(low)) | uint32_t{to_bf16(__uint_as_float(high))} << 16;
}
inline uint32_t rounded_pair(f16, uint32_t low, uint32_t high) {
  return to_half(__uint_as_float(low)) | uint32_t{to_half(__uint_as_float(high))} << 16;
}
inline uint16_t rounded_pair(e4m3, float low, float high) {
  return static_cast<uint16_t>(math::to_e4m3(low) | math::to_e4m3(high) << 8);
}
inline uint16_t rounded_pair(e5m2, float low, float high) {
  return static_cast<uint16_t>(math::to_e5m2(low) | math::to_e5m2(high) << 8);
}
inline uint32_t nearest_tf32(float x) { return (__float_as_uint(x) + 0x1000u) & ~0x1fffu; }
inline float full_div(float a, float b) { return a / b; }
inline float approx_sqrt(float x) { return __builtin_sqrtf(x); }
inline float approx_tanh(float x) { return __builtin_tanhf(x); }
inline float approx_exp2(float x) { return __builtin_exp2f(x); }

template <int kBytes>
inline void copy_async(void* to, const void* from, bool inside) {
  emulated::start_copy(to, from, kBytes, inside);
}
inline void commit() { emulated::commit_copies(); }
template <int kLeft>
inline void wait_for() {
  emulated::wait_for_copies(kLeft);
}

template <bool kTranspose, int kCount>
inline void load_matrices(uint32_t* to, const void* row) {
  const int lane = emulated::lane();
  std::memcpy(emulated::warp_memory() + lane * emulated::kLaneBytes, &row, sizeof row);
  __syncwarp();
  for (int m = 0; m < kCount; ++m) {
    const auto halves_of = [&](int r) {
      const uint16_t* halves;
      std::memcpy(&halves, emulated::warp_memory() + (m * 8 + r) * emulated::kLaneBytes, sizeof halves);
      return halves;
    };
    const int g = lane / 4, t = lane % 4;
    to[m] = kTranspose ? halves_of(2 * t)[g] | uint32_t{halves_of(2 * t + 1)[g]} << 16
                       : halves_of(g)[2 * t] | uint32_t{halves_of(g)[2 * t + 1]} << 16;
  }
  __syncwarp();
}

namespace emulated_product {

struct Lane {
  float c[4];
  uint32_t x[4], y[2];
};
static_assert(sizeof(Lane) <= emulated::kLaneBytes);

// The matrices whose fragments the lanes hold: a word is one float or two 16-bit floats.
template <class Element>
void multiply() {
  constexpr int kEach = sizeof(Element) == 4 ? 1 : 2, kDeep = 8 * kEach;
  float a[16][kDeep], b[kDeep][8], c[16][8];
  Lane lanes[emulated::kWarp];
  const auto value = [](uint32_t word, int e) {
    if constexpr (std::is_same_v<Element, float>)
      return __uint_as_float(word & ~0x1fffu);
    else if constexpr (std::is_same_v<Element, bf16>)
      return emulated::from_bf16(static_cast<uint16_t>(word >> 16 * e));
    else
      return from_half(static_cast<uint16_t>(word >> 16 * e));
  };
  for (int l = 0; l < emulated::kWarp; ++l) {
    std::memcpy(&lanes[l], emulated::warp_memory() + l * emulated::kLaneBytes, sizeof(Lane));
    const int g = l / 4, t = l % 4;
    for (int w = 0; w < 4; ++w)
      for (int e = 0; e < kEach; ++e) a[g + w % 2 * 8][t * kEach + e + w / 2 * 4 * kEach] = value(lanes[l].x[w], e);
    for (int w = 0; w < 2; ++w)
      for (int e = 0; e < kEach; ++e) b[t * kEach + e + w * 4 * kEach][g] = value(lanes[l].y[w], e);
    for (int w = 0; w < 4; ++w) c[g + w / 2 * 8][t * 2 + w % 2] = lanes[l].c[w];
  }
  for (auto& row : c) {
    const auto* from = a[&row - c];
    for (int n = 0; n < 8; ++n) {
      float sum = row[n];
      for (int k = 0; k < kDeep; ++k) sum += from[k] * b[k][n];
      row[n] = sum;
    }
  }
  for (int l = 0; l < emulated::kWarp; ++l) {
    for (int w = 0; w < 4; ++w) lanes[l].c[w] = c[l / 4 + w / 2 * 8][l % 4 * 2 + w % 2];
    std::memcpy(emulated::warp_memory() + l * emulated::kLaneBytes, &lanes[l], sizeof(Lane));
  }
}

template <class Element>
void run(float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  Lane own;
  std::memcpy(own.c, c, sizeof c);
  std::memcpy(own.x, x, sizeof x);
  std::memcpy(own.y, y, sizeof y);
  char* const at = emulated::warp_memory() + emulated::lane() * emulated::kLaneBytes;
  std::memcpy(at, &own, sizeof own);
  emulated::sync_warp(multiply<Element>);
  std::memcpy(&own, at, sizeof own);  // no other lane writes here
  std::memcpy(c, own.c, sizeof c);
}

}  // namespace emulated_product

inline void multiply_one(float, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  emulated_product::run<float>(c, x, y);
}
inline void multiply_one(bf16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  emulated_product::run<bf16>(c, x, y);
}
inline void multiply_one(f16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  emulated_product::run<f16>(c, x, y);
}

template <class Word>
inline void store_word(Word* to, Word word) {
  __atomic_store_n(to, word, __ATOMIC_RELAXED);
}
inline void store_relaxed(void* to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  auto* const words = static_cast<uint32_t*>(to);
  for (const auto& [at, word] : {std::pair(3, w), std::pair(0, x), std::pair(2, z), std::pair(1, y)})
    store_word(words + at, word);
}
inline void store_relaxed(uint32_t* to, uint32_t word) { store_word(to, word); }
inline void store_relaxed(uint64_t* to, uint64_t word) { store_word(to, word); }
template <class Word>
inline Word load_word(const Word* from) {
  emulated::yield();
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline uint32_t load_relaxed(const uint32_t* from) { return load_word(from); }
inline uint64_t load_relaxed(const uint64_t* from) { return load_word(from); }
inline void load_relaxed(const void* from, uint32_t (&words)[4]) {
  for (const int at : {2, 0, 3, 1}) words[at] = load_word(static_cast<const uint32_t*>(from) + at);
}
inline void raise_to(uint32_t* word, uint32_t least) {
  uint32_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (now < least && !__atomic_compare_exchange_n(word, &now, least, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
inline void add_release(uint64_t* word) { __atomic_fetch_add(word, 1, __ATOMIC_RELEASE); }
inline void wait_acquire(const uint64_t* word, uint64_t count) {
  while (load_relaxed(word) < count) {
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

// Kernels run one after another here.
inline void wait_for_previous_kernel() {}
inline void allow_next_kernel() {}
inline void set_condition(uint64_t condition, bool value) { *reinterpret_cast<bool*>(condition) = value; }

}  // namespace lockstep
