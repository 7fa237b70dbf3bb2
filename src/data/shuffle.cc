// A keyed Feistel network with cycle walking. The network permutes the positions of a rectangle with slightly more than
// n positions, where position = row * cols + col. Each round adds a hash of the row and a key to the column, or the
// reverse, modulo its extent. A round is invertible, so the network is a permutation for any hash function.
//
// Cycle walking: apply the network until the result is below n. Every cycle of the permutation returns to its start, so
// this ends, and it maps different positions to different results. The result is a permutation of 0 .. n-1. The
// rectangle is nearly square, with fewer than 2 sqrt(n) excess positions, so repetitions are rare.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lockstep/loader.h"

namespace lockstep {
namespace {

// The finalizer of splitmix64: every input bit flips every output bit with probability one half.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// One round: `to` plus a hash of `from` and the key, modulo `extent`. REQUIRES: all but the key are below 2^32.
uint64_t apply_round(uint64_t to, uint64_t from, uint64_t key, uint64_t extent) {
  uint64_t x = (from + key) * 0x9e3779b97f4a7c15;
  x = ((x ^ (x >> 32)) * 0xd6e8feb86659fd93) >> 32;
  const uint64_t sum = to + (x * extent >> 32);
  return sum < extent ? sum : sum - extent;
}

// Smaller extents mix badly: the orders of very small sets would not be equally likely.
constexpr uint64_t kMinExtent = 16;

// The smallest number whose square is at least n. Corrected with integers, so that it does not depend on floating-point
// rounding.
uint64_t ceil_sqrt(uint64_t n) {
  uint64_t root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

Shuffle::Shuffle(int64_t n, uint64_t seed, int64_t epoch) : n_(static_cast<uint64_t>(n)) {
  LOCKSTEP_CHECK(n >= 0, "a permutation of {} elements", n);
  cols_ = std::max(kMinExtent, ceil_sqrt(n_));
  rows_ = std::max(kMinExtent, (n_ + cols_ - 1) / cols_);
  const uint64_t root = mix(mix(seed + 0x243f6a8885a308d3) ^ static_cast<uint64_t>(epoch));
  for (int round = 0; round < kRounds; ++round)
    keys_[round] = mix(root + static_cast<uint64_t>(round + 1) * 0x9e3779b97f4a7c15);
}

int64_t Shuffle::operator()(int64_t position) const {
  uint64_t at = static_cast<uint64_t>(position);
  do {
    uint64_t row = at / cols_, col = at % cols_;
    for (int round = 0; round < kRounds; round += 2) {
      row = apply_round(row, col, keys_[round], rows_);
      col = apply_round(col, row, keys_[round + 1], cols_);
    }
    at = row * cols_ + col;
  } while (at >= n_);
  return static_cast<int64_t>(at);
}

}  // namespace lockstep
