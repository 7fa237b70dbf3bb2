#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace lockstep {
namespace {

uint32_t sum(std::string_view text) { return crc32c({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); }

TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(sum(""), 0u);
  EXPECT_EQ(sum("a"), 0xc1d04330u);
  EXPECT_EQ(sum("123456789"), 0xe3069283u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0x00)), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  std::vector<uint8_t> rising(32), falling(32);
  for (size_t i = 0; i < 32; ++i) rising[i] = falling[31 - i] = static_cast<uint8_t>(i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

TEST(Crc32c, DoesNotDependOnThePieces) {
  std::vector<uint8_t> message(100);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i * 37);
  const auto all = std::span<const uint8_t>(message);
  for (size_t cut = 0; cut <= message.size(); ++cut)
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
}

TEST(Crc32c, EqualsThePlainVersionForAnyLengthAndAlignment) {
  std::vector<uint8_t> message(1000);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i * i * 7 + i / 3);
  const auto all = std::span<const uint8_t>(message);
  for (size_t begin = 0; begin < 16; ++begin)
    for (const size_t length : {0, 1, 7, 8, 9, 15, 16, 17, 63, 255, 984}) {
      const auto part = all.subspan(begin, length);
      EXPECT_EQ(crc32c(part), detail::crc32c_plain(part)) << begin << ", " << length;
      EXPECT_EQ(crc32c(part, 0x12345678), detail::crc32c_plain(part, 0x12345678)) << begin << ", " << length;
    }
}

}  // namespace
}  // namespace lockstep
