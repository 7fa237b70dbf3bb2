#include <sstream>
#include <thread>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

TEST(Array, NumbersHaveDefaultTypes) {
  EXPECT_EQ(Array(true).dtype(), boolean);
  EXPECT_EQ(Array(1).dtype(), i32);
  EXPECT_EQ(Array(int64_t{1} << 40).dtype(), i64);
  EXPECT_EQ(Array(1.5).dtype(), f32);
  EXPECT_EQ(Array(1.5f).dtype(), f32);
  EXPECT_EQ(Array(uint8_t{200}).item<int>(), 200);
  EXPECT_EQ(Array(int64_t{1} << 40).item<int64_t>(), int64_t{1} << 40);
}

TEST(Array, NumbersTakeTheTypeOfTheArray) {
  for (DType t : {bf16, f16, f32, f64}) EXPECT_EQ((0.5 * ones({2}, t)).dtype(), t);
  for (DType t : {u8, i32, i64, u32}) EXPECT_EQ((2 * ones({2}, t)).dtype(), t);
  EXPECT_EQ((0.5 * ones({2}, i32)).dtype(), f32);
  EXPECT_EQ((1 + ones({2}, boolean)).dtype(), i32);
}

TEST(Array, FromCopiesValues) {
  std::vector<float> values{1, 2, 3, 4};
  const Array a = Array::from(values, {2, 2});
  values[0] = 9;
  EXPECT_TEXT(a, "f32[2,2] [[1, 2], [3, 4]]");
  EXPECT_TEXT(Array::from(std::vector<bool>{true, false}, {2}), "bool[2] [true, false]");
  EXPECT_TEXT(Array::from(std::vector<double>{}, {0, 3}), "f64[0,3] []");
  EXPECT_EQ(Array::from(std::vector<uint8_t>{7}, {}).item<int>(), 7);
}

TEST(Array, ElementsCanBeReadAndConverted) {
  const Array a = array({1.5f, -2.5f});
  EXPECT_EQ(std::vector<float>(a.data<float>().begin(), a.data<float>().end()), (std::vector<float>{1.5f, -2.5f}));
  EXPECT_EQ(a.to_vector<int>(), (std::vector<int>{1, -2}));
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{1.5, -2.5}));
  EXPECT_EQ(astype(a, bf16).to_vector<float>(), (std::vector<float>{1.5f, -2.5f}));
  EXPECT_EQ(reshape(slice(a, {1}, {2}), {1, 1}).item<float>(), -2.5f);
  EXPECT_TRUE(static_cast<bool>(Array(3) > 2));
  EXPECT_FALSE(static_cast<bool>(array({0})));
}

TEST(Array, HandlesShareAndAssignmentReplaces) {
  Array a = array({1, 2});
  const Array b = a;
  EXPECT_EQ(a.node(), b.node());
  a += 1;
  EXPECT_TEXT(a, "i32[2] [2, 3]");
  EXPECT_TEXT(b, "i32[2] [1, 2]");
  Array& same = a;
  a = std::move(same);
  EXPECT_TEXT(a, "i32[2] [2, 3]");
  const Array moved = std::move(a);
  EXPECT_FALSE(a.defined());  // NOLINT: moved-from arrays are empty
  EXPECT_TEXT(moved, "i32[2] [2, 3]");
}

TEST(Array, DataLivesAsLongAsTheHandle) {
  Array a = ones({1000});
  const auto view = a.data<float>();
  Array keep = a;
  a = Array();
  EXPECT_EQ(view[999], 1);
  EXPECT_EQ(keep.data<float>().data(), view.data());
}

TEST(Array, ShapeQueries) {
  const Array a = zeros({2, 3, 4});
  EXPECT_EQ(a.rank(), 3);
  EXPECT_EQ(a.size(), 24);
  EXPECT_EQ(a.shape(0), 2);
  EXPECT_EQ(a.shape(-1), 4);
  EXPECT_EQ(a.type(), (Type{f32, {2, 3, 4}}));
  EXPECT_FALSE(a.is_traced());
}

TEST(Array, LongArraysPrintAbbreviated) {
  EXPECT_TEXT(arange(8), "i32[8] [0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_TEXT(arange(100), "i32[100] [0, 1, 2, ..., 97, 98, 99]");
  std::ostringstream out;
  out << array({0.1f}) << ' ' << Array(true) << ' ' << Array();
  EXPECT_EQ(out.str(), "f32[1] [0.1] bool[] true (empty)");
}

TEST(Array, MayBeSharedBetweenThreads) {
  const Array x = arange(1000, f32);
  std::vector<std::thread> threads;
  std::array<float, 4> sums{};
  for (size_t t = 0; t < sums.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Array copy = x;
        sums[t] = sum(copy * static_cast<float>(t)).item<float>();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 499500.f * static_cast<float>(t));
}

}  // namespace
}  // namespace lockstep
