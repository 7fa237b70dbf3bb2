// Arrays of more elements than 32 bits count, for tests. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep {

inline constexpr int64_t kAbove31 = (int64_t{1} << 31) + 10, kAbove32 = (int64_t{1} << 32) + 10;

// Element i of numbers(). Positions that differ by 2^31 or 2^32 have different elements, and 255 is none of them.
inline int64_t number_at(int64_t i) { return i % 251; }

// The u8 array of number_at(i), of n elements. Only the last one is kept.
const Array& numbers(int64_t n);

// Frees what numbers() and the caches keep.
void free_memory();

// Why a test that needs this much memory of the host is skipped; empty: it is not. On a GPU the arrays are in its
// memory, and the host needs that of one array of n bytes.
std::string missing_memory(int64_t bytes, int64_t n);

// Positions at both ends and around 2^31 and 2^32, ascending.
std::vector<int64_t> interesting_places(int64_t n);

// Checks these elements of y, of one dimension, and those at more places: y[i] is f(i).
void expect_elements(const Array& y, const std::function<int64_t(int64_t)>& f, const std::vector<int64_t>& more = {});

// Integers as an array of this type.
Array index_array(const std::vector<int64_t>& values, DType dtype);

// For each n: skips what does not fit the memory; a test may hold about four arrays of n bytes at a time.
class LargeArrays : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override;
  void TearDown() override;

  int64_t n() const { return GetParam(); }
  const Array& x() const { return numbers(n()); }
};

}  // namespace lockstep
