// Quantizes a matrix: one reading of x gives the matrix in 8-bit floats, its transpose, and the largest absolute value.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the matrix (float8_cuda.cc): T is the element of x [kRows, kColumns], E that of the results. A thread block
// computes a tile of kTile x kTile elements. It loads and stores packs of kVector elements along rows, and stores packs of
// kTurned elements of the transpose; both divide the matrix.
template <class S>
struct Quantize {
  using T = typename S::T;
  using E = typename S::E;
  using Codes = Side<uint8_t, S::kVector>;
  static constexpr uint32_t kTile = 128, kThreads = 256, kVector = S::kVector, kTurned = S::kTurned;
  static constexpr uint64_t kRows = S::kRows, kColumns = S::kColumns, kAcross = (kColumns + kTile - 1) / kTile;
  // A row of the tile in shared memory. Four more bytes distribute a column over the banks.
  static constexpr uint32_t kPitch = kTile + 4;

  static void run(const T* x, const float* scale, uint8_t* y, uint8_t* transposed, uint32_t* largest) {
    alignas(16) __shared__ uint8_t tile[kTile * kPitch];
    const uint64_t row0 = blockIdx.x / kAcross * kTile, column0 = blockIdx.x % kAcross * kTile;
    const uint32_t most = load_tile(x, 1 / scale[0], row0, column0, y, tile);
    __syncthreads();
    store_transpose(tile, row0, column0, transposed);
    store_largest(most, largest);
  }

 private:
  // Rounds the tile to `y` and to shared memory. Returns the largest absolute value of this thread's elements, as bits:
  // as integers they are in the order of the numbers, with NaN above all.
  static uint32_t load_tile(const T* x, float inverse, uint64_t row0, uint64_t column0, uint8_t* y, uint8_t* tile) {
    constexpr uint32_t kPacks = kTile / kVector;
    uint32_t most = 0;
#pragma unroll 2
    for (uint32_t p = threadIdx.x; p < kTile * kPacks; p += kThreads) {
      const uint32_t r = p / kPacks, c = p % kPacks * kVector;
      if (row0 + r >= kRows || column0 + c >= kColumns) continue;
      const uint64_t at = (row0 + r) * kColumns + column0 + c;
      Side<T, kVector> pack;
      load_vector(pack, x, at);
      Codes codes;
      float values[kVector];
#pragma unroll
      for (uint32_t q = 0; q < kVector; ++q) {
        const float value = load(pack.v[q]);
        const uint32_t size = math::bits(value) & 0x7fffffffu;
        most = size > most ? size : most;
        values[q] = value * inverse;
      }
      if constexpr (kVector == 1) {
        codes.v[0] = Store<E>::of(values[0]).bits;
      } else {
#pragma unroll
        for (uint32_t q = 0; q < kVector; q += 2) {
          const uint16_t pair = rounded_pair(E(), values[q], values[q + 1]);
          codes.v[q] = uint8_t(pair);
          codes.v[q + 1] = uint8_t(pair >> 8);
        }
      }
      store_vector(y, at, codes);
      store_in_tile(tile + r * kPitch + c, codes);
    }
    return most;
  }

  // Rows of the tile are aligned to words.
  static void store_in_tile(uint8_t* to, const Codes& codes) {
    constexpr uint32_t kPart = kVector < 4 ? kVector : 4;
#pragma unroll
    for (uint32_t q = 0; q < kVector; q += kPart) {
      Side<uint8_t, kPart> part;
#pragma unroll
      for (uint32_t i = 0; i < kPart; ++i) part.v[i] = codes.v[q + i];
      store_vector(to, q, part);
    }
  }

  // Neighboring threads have neighboring columns of the tile, which are in the same words or banks.
  static void store_transpose(const uint8_t* tile, uint64_t row0, uint64_t column0, uint8_t* transposed) {
    constexpr uint32_t kPacks = kTile / kTurned;
    for (uint32_t p = threadIdx.x; p < kTile * kPacks; p += kThreads) {
      const uint32_t c = p % kTile, r = p / kTile * kTurned;
      if (row0 + r >= kRows || column0 + c >= kColumns) continue;
      Side<uint8_t, kTurned> pack;
#pragma unroll
      for (uint32_t q = 0; q < kTurned; ++q) pack.v[q] = tile[(r + q) * kPitch + c];
      store_vector(transposed, (column0 + c) * kRows + row0 + r, pack);
    }
  }

  // The bits of a number that is not negative fit an int.
  static void store_largest(uint32_t most, uint32_t* largest) {
    const uint32_t all = uint32_t(__reduce_max_sync(0xffffffffu, int(most)));
    if (threadIdx.x % 32 == 0) raise_to(largest, all);
  }
};

}  // namespace lockstep
