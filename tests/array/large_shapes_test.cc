// Positions beyond 2^31 - 1 have an integer type that counts them. The arrays of these programs are never made: tests
// with data are in tests/large.
#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kLarge = (int64_t{1} << 31) + 10;

// The program of a function of an array of this shape.
template <class F>
std::string traced(const F& f, const Shape& shape = {kLarge}, DType dtype = u8) {
  return program_text([&] { return f(zeros(shape, dtype)); });
}
// The type of its result, as text.
template <class F>
std::string result_type(const F& f, const Shape& shape = {kLarge}, DType dtype = u8) {
  return to_string(eval_shape([&] { return f(zeros(shape, dtype)); }).type());
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(LargeShapes, StartsAndIndicesCountTheirExtent) {
  const std::vector<std::function<Array(const Array&)>> updates = {
      [](const Array& x) { return x.at(-1).set(1); },
      [](const Array& x) { return x.at(range(-4, -2)).add(1); },
      [](const Array& x) { return take(x, array({-1})); },
      [](const Array& x) {
        return x(array({-1, 5}));
      },
      [](const Array& x) {
        return x.at(array({-1, 5})).multiply(2);
      },
      [](const Array& x) { return dynamic_slice(x, {full({}, -1, i32)}, {1}); },
      [](const Array& x) { return dynamic_update_slice(x, zeros({1}, u8), {full({}, kLarge - 1, i64)}); },
      [](const Array& x) { return put_along_axis(x, array({-1}), 3, 0); },
      [](const Array& x) { return scatter_add(x, array({-1}), 3); },
  };
  for (const auto& f : updates) {
    EXPECT_TRUE(has(traced(f), "i64[")) << traced(f);
    EXPECT_FALSE(has(traced(f, {1000}), "i64[") && !has(traced(f, {1000}), "cast")) << traced(f, {1000});
  }
}

TEST(LargeShapes, ResultsThatArePositionsCountTheirExtent) {
  const auto places = [](const Array& x) { return nonzero(x, {.size = 3}).back(); };
  EXPECT_EQ(result_type(places), "i64[3]");
  EXPECT_EQ(result_type(places, {2, kLarge / 2}), "i32[3]");
  EXPECT_EQ(result_type([](const Array& x) { return flatnonzero(x, {.size = 3}); }), "i64[3]");
  EXPECT_EQ(result_type([](const Array& x) { return searchsorted(x, array({1, 2})); }), "i64[2]");
  EXPECT_EQ(result_type([](const Array& x) { return searchsorted(x, array({1, 2})); }, {1000}), "i32[2]");
  EXPECT_EQ(result_type([](const Array& x) { return sum(x > 0); }), "i64[]");
  EXPECT_EQ(result_type([](const Array& x) { return sum(x > 0, 1); }, {kLarge, 2}),
            "i32[" + std::to_string(kLarge) + "]");
  EXPECT_EQ(result_type([](const Array& x) { return cumsum(x > 0); }), "i64[" + std::to_string(kLarge) + "]");
  EXPECT_EQ(result_type([](const Array& x) { return bincount(x, {.length = 3}); }), "i64[3]");
  EXPECT_THROWS(result_type([](const Array& x) { return argmax(x); }), Error,
                "argmax: axis 0 of [2147483658] is too long for i32 indices; split it");
}

// The type of a result that needs an iota, of which only the trace is made.
TEST(LargeShapes, CountedElementsAreCounted) {
  EXPECT_TRUE(has(program_text([] { return one_hot(array({1}), kLarge, u8); }), "i64[1,2147483658]"));
  EXPECT_TRUE(has(program_text([] { return eye(kLarge, 2, -5, u8); }), "i64[2147483658,2]"));
  EXPECT_TRUE(has(traced([](const Array& x) { return repeat(x, full({}, 1, i32), 0, 9); }), "i64[9]"));
}

TEST(LargeShapes, GradientsCountPositions) {
  const auto gradient = [](const std::function<Array(const Array&)>& f) {
    return traced([&](const Array& x) { return grad([&](const Array& y) { return sum(f(y)); })(x); }, {kLarge}, f32);
  };
  const Array twice = array({3, 3});
  for (const auto& f : std::vector<std::function<Array(const Array&)>>{
           [](const Array& y) { return cumprod(y); },
           [](const Array& y) { return cummax(y, 0); },
           [](const Array& y) { return cumlogsumexp(y, 0); },
           [&](const Array& y) {
             return y.at(twice).set(y(array({1, 2})));
           },
           [&](const Array& y) {
             return y.at(twice).multiply(y(array({1, 2})));
           },
           [&](const Array& y) {
             return y.at(twice).max(y(array({1, 2})));
           },
           [](const Array& y) { return dynamic_slice(y, {full({}, -3, i32)}, {2}); },
       })
    EXPECT_TRUE(has(gradient(f), "i64[")) << gradient(f);
}

TEST(LargeShapes, UnsignedIndicesKeepTheirValues) {
  const Array x = array({10, 20, 30}), u = full({}, int64_t{4000000000}, u32);
  const Array most = astype(full({}, -1, i64), u64);  // all 64 bits
  EXPECT_EQ(take(x, u).item<int64_t>(), 30);
  EXPECT_EQ(take(x, most).item<int64_t>(), 30);
  EXPECT_EQ(x(most).item<int64_t>(), 30);
  EXPECT_EQ(dynamic_slice(x, {most}, {1}).item<int64_t>(), 30);
  EXPECT_EQ(x.at(most).set(1).to_string(), x.to_string());
  EXPECT_EQ(select_n(u, {Array(1), Array(2)}).item<int64_t>(), 2);
  EXPECT_EQ(choose(u, {Array(1), Array(2)}, RangeMode::clip).item<int64_t>(), 2);
  EXPECT_EQ(sum(one_hot(most, 3)).item<int64_t>(), 0);
}

TEST(LargeShapes, PositionsOfLargeTables) {
  const Shape dims{100000, 100000};
  EXPECT_EQ(ravel_multi_index({array({70000}), array({70001})}, dims, RangeMode::clip).to_vector<int64_t>(),
            (Ints{int64_t{70000} * 100000 + 70001}));
  const std::vector<Array> back = unravel_index(array({-1, 5}), dims);
  EXPECT_EQ(back[0].to_vector<int64_t>(), (Ints{99999, 0}));
  EXPECT_EQ(back[1].to_vector<int64_t>(), (Ints{99999, 5}));
}

TEST(LargeShapes, DiagonalsBeyondAnyMatrixAreEmpty) {
  for (const int64_t k : {int64_t{1} << 40, -(int64_t{1} << 40), INT64_MAX, INT64_MIN})
    EXPECT_EQ(sum(eye(3, 4, k)).item<int64_t>(), 0) << k;
}

TEST(LargeShapes, CountsOfRepeatsMayExceedTheResult) {
  const Array counts = array({INT32_MAX, INT32_MAX, 5});
  EXPECT_EQ(repeat(array({1, 2, 3}), counts, 0, 4).to_vector<int64_t>(), (Ints{1, 1, 1, 1}));
}

TEST(LargeShapes, KeysAreCountedIn32Bits) {
  EXPECT_THROWS(random::split(random::key(0), int64_t{1} << 32), Error,
                "random::split: 4294967296 keys requested; valid: 0 to 2^32 - 1");
}

}  // namespace
}  // namespace lockstep
