// EXPECT_TEXT(array, "f32[2] [1, 2]"): compares type and elements as printed. EXPECT_ELEMENTS(array, {...},
// tolerance): compares elements within a tolerance.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "base/throws.h"
#include "lockstep/array.h"

#define EXPECT_TEXT(array, text) EXPECT_EQ((array).to_string(), text)

inline void expect_elements(const lockstep::Array& array, const std::vector<double>& wanted, double tolerance) {
  const std::vector<double> got = array.to_vector<double>();
  ASSERT_EQ(got.size(), wanted.size()) << array;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], tolerance) << "element " << i << " of " << array;
}
#define EXPECT_ELEMENTS(array, ...) expect_elements(array, __VA_ARGS__)
