// A keyed Feistel network over a rectangle that holds a little more than n places, walked until it lands below n. A
// place is row * cols + col; each round adds a mix of the one and a key to the other, modulo its extent, which can be
// undone, so the network is a permutation whatever the mix. Following a permutation from a place below n must come back
// below n, and two places never meet, so that walking leaves a permutation of 0 .. n-1. The rectangle is nearly a
// square: it has fewer than 2 sqrt(n) places too many, and walking is seldom needed.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lockstep/loader.h"

namespace lockstep {
namespace {

// The finaliser of splitmix64: every bit of the input changes every bit of the output with probability one half.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// `to` moved within its extent by a mix of `from` and the key. All but the key are below 2^32.
uint64_t moved(uint64_t to, uint64_t from, uint64_t key, uint64_t extent) {
  uint64_t x = (from + key) * 0x9e3779b97f4a7c15;
  x = ((x ^ (x >> 32)) * 0xd6e8feb86659fd93) >> 32;
  const uint64_t sum = to + (x * extent >> 32);
  return sum < extent ? sum : sum - extent;
}

// Extents of a few rows mix badly: the orders of a handful of examples would not come equally often.
constexpr uint64_t kLeastExtent = 16;

// The least number whose square is at least n. Corrected by whole numbers, lest it depend on how a machine rounds.
uint64_t root_above(uint64_t n) {
  uint64_t root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

Shuffle::Shuffle(int64_t n, uint64_t seed, int64_t epoch) : n_(static_cast<uint64_t>(n)) {
  LOCKSTEP_CHECK(n >= 0, "a permutation of {} elements", n);
  cols_ = std::max(kLeastExtent, root_above(n_));
  rows_ = std::max(kLeastExtent, (n_ + cols_ - 1) / cols_);
  const uint64_t root = mix(mix(seed + 0x243f6a8885a308d3) ^ static_cast<uint64_t>(epoch));
  for (int round = 0; round < kRounds; ++round)
    keys_[round] = mix(root + static_cast<uint64_t>(round + 1) * 0x9e3779b97f4a7c15);
}

int64_t Shuffle::operator()(int64_t place) const {
  uint64_t at = static_cast<uint64_t>(place);
  do {
    uint64_t row = at / cols_, col = at % cols_;
    for (int round = 0; round < kRounds; round += 2) {
      row = moved(row, col, keys_[round], rows_);
      col = moved(col, row, keys_[round + 1], cols_);
    }
    at = row * cols_ + col;
  } while (at >= n_);
  return static_cast<int64_t>(at);
}

}  // namespace lockstep
