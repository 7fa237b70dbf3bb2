#include "base/digest.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(Md5, MatchesTheVectorsOfRfc1321) {
  const std::pair<const char*, const char*> vectors[] = {
      {"", "d41d8cd98f00b204e9800998ecf8427e"},
      {"a", "0cc175b9c0f1b6a831c399e269772661"},
      {"abc", "900150983cd24fb0d6963f7d28e17f72"},
      {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
      {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
      {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"},
      {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
       "57edf4a22be3c955ac49da2e2107b67a"},
  };
  for (const auto& [text, sum] : vectors) EXPECT_EQ(md5_hex(bytes(text)), sum) << text;
}

TEST(Md5, DoesNotDependOnThePieces) {
  std::vector<uint8_t> message(300);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i * 7);
  for (size_t length : {55u, 56u, 57u, 63u, 64u, 65u, 119u, 120u, 128u, 300u}) {
    const auto whole = std::span(message).first(length);
    for (size_t piece : {1u, 3u, 63u, 64u, 65u}) {
      Md5 md5;
      for (size_t at = 0; at < length; at += piece) md5.update(whole.subspan(at, std::min(piece, length - at)));
      EXPECT_EQ(md5.hex(), md5_hex(whole)) << length << " in pieces of " << piece;
    }
  }
}

TEST(Md5, HashesAMillionLetters) {
  EXPECT_EQ(md5_hex(std::vector<uint8_t>(1000000, 'a')), "7707d6ae4e027c70eea2a935c2296f21");
}

TEST(Sha256, MatchesTheVectorsOfFips180) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update(bytes("a"));
  pieces.update(bytes("bc"));
  EXPECT_EQ(pieces.hex(), sha256_hex(bytes("abc")));
}

}  // namespace
}  // namespace lockstep
