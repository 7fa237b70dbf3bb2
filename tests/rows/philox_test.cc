// Philox: the reference gives the known answers of its authors, and the row random_bits gives the bits of the reference
// wherever a shard begins.
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "rows/eager.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

using Block = std::array<uint32_t, 4>;

const std::vector<uint32_t> kKey = {0xa4093822, 0x299f31d0, 0x13198a2e, 0x03707344};

HostArray key_of(const std::vector<uint32_t>& words) {
  return HostArray({u32, {static_cast<int64_t>(words.size())}}, std::vector<double>(words.begin(), words.end()));
}

// The block [starts, starts + shape) of the bits of an array of `global_shape`.
HostArray bits_of(const Shape& shape, const Dims& starts, const Shape& global_shape) {
  return eager_op(random_bits_op, {{"shape", shape}, {"starts", starts}, {"global_shape", global_shape}},
                  {key_of(kKey)})[0];
}

double wanted_bits(uint64_t i) {
  const uint64_t block = i / 4;
  return philox_block({kKey[0], kKey[1]},
                      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), kKey[2], kKey[3]})[i % 4];
}

TEST(Philox, ReferenceGivesKnownAnswers) {
  EXPECT_EQ(philox_block({0, 0}, {0, 0, 0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_block({~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_block({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BitsContinueAtEveryIndex) {
  // The counters of the last beginnings need 64 bits: their low word overflows within the run.
  for (const int64_t begin : {int64_t{0}, int64_t{1}, int64_t{30}, int64_t{1} << 33, (int64_t{1} << 34) - 71})
    for (const int64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 130, 131, 300, 20000}) {
      const HostArray bits = bits_of({n}, {begin}, {int64_t{1} << 40});
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(bits.get(i), wanted_bits(static_cast<uint64_t>(begin + i))) << begin << " + " << i << " of " << n;
    }
}

TEST(Philox, ShardsHaveTheBitsOfTheWholeArray) {
  const Shape whole = {5, 7, 9};
  for (const Shape& shape : {Shape{2, 7, 9}, Shape{5, 3, 9}, Shape{5, 7, 4}, Shape{2, 3, 4}, Shape{1, 1, 5}})
    for (int64_t a = 0; a + shape[0] <= 5; ++a)
      for (int64_t b = 0; b + shape[1] <= 7; ++b)
        for (int64_t c = 0; c + shape[2] <= 9; ++c) {
          const HostArray bits = bits_of(shape, {a, b, c}, whole);
          for (int64_t i = 0; i < bits.size(); ++i) {
            const int64_t x = a + i / (shape[1] * shape[2]), y = b + i / shape[2] % shape[1], z = c + i % shape[2];
            ASSERT_EQ(bits.get(i), wanted_bits(static_cast<uint64_t>((x * 7 + y) * 9 + z)));
          }
        }
}

}  // namespace
}  // namespace lockstep
