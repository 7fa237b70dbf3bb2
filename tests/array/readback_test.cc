// Reading arrays back while the lane goes on computing.
#include <gtest/gtest.h>

#include <optional>

#include "array/lane_memory.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

using detail::ArrayReadback;
using Doubles = std::vector<double>;

TEST(ArrayReadback, ReturnsTheValuesOfItsStart) {
  Array x = ones({3}) + 1;
  ArrayReadback first(x);
  x = x * x;
  ArrayReadback second(stack({x, x}));
  EXPECT_EQ(first.wait(), (Doubles{2, 2, 2}));
  ArrayReadback third(x + 1);  // reuses the memory of the first
  EXPECT_EQ(second.wait(), (Doubles{4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(third.wait(), (Doubles{5, 5, 5}));
}

TEST(ArrayReadback, OfAnyElementType) {
  EXPECT_EQ(ArrayReadback(array({1, -2})).wait(), (Doubles{1, -2}));
  EXPECT_EQ(ArrayReadback(astype(array({0.5, 0.25}), f64)).wait(), (Doubles{0.5, 0.25}));
  EXPECT_EQ(ArrayReadback(astype(array({1.5f}), bf16)).wait(), (Doubles{1.5}));
}

TEST(ArrayReadback, MayBeDestroyedBeforeItEnds) {
  const Array x = ones({1000}) * 2;
  for (int i = 0; i < 5; ++i) const ArrayReadback dropped(x);
  EXPECT_EQ(x.to_vector<float>()[999], 2);
}

TEST(ArrayReadback, RefusesAnArrayWithoutValue) { EXPECT_THROW(ArrayReadback{Array()}, Error); }

}  // namespace
}  // namespace lockstep
