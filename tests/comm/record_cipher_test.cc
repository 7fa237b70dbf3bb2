#include "comm/tcp/record_cipher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using detail::Bytes32;
using detail::Cipher;
using detail::RecordCipher;
using Use = RecordCipher::Use;

constexpr size_t kTag = RecordCipher::kTagBytes;

Bytes32 key_of(char letter) {
  Bytes32 key;
  key.fill(static_cast<uint8_t>(letter));
  return key;
}

std::string seal(RecordCipher& cipher, const std::string& text) {
  std::string out(text.size() + kTag, '\0');
  cipher.seal(reinterpret_cast<const std::byte*>(text.data()), text.size(), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// The text of a record; "changed" if it does not open.
std::string open(RecordCipher& cipher, const std::string& record) {
  std::string out(record.size() - kTag, '\0');
  const bool opened = cipher.open(reinterpret_cast<const std::byte*>(record.data()), out.size(),
                                  reinterpret_cast<std::byte*>(out.data()));
  return opened ? out : "changed";
}

struct Protection {
  LinkSecurity security;
  Cipher cipher;
};
constexpr Protection kProtections[] = {{LinkSecurity::encrypted, Cipher::aes_128_gcm},
                                       {LinkSecurity::encrypted, Cipher::chacha20_poly1305},
                                       {LinkSecurity::signature, Cipher::aes_128_gcm},
                                       {LinkSecurity::signature, Cipher::chacha20_poly1305}};

class RecordCiphers : public testing::TestWithParam<Protection> {
 protected:
  RecordCipher make(Use use, char key = 'k', uint64_t records_per_key = RecordCipher::kRecordsPerKey) const {
    return {use, GetParam().security, GetParam().cipher, key_of(key), records_per_key};
  }
};

TEST_P(RecordCiphers, RecordsOfAllSizesOpenInOrder) {
  RecordCipher sealer = make(Use::seal), opener = make(Use::open);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{4096},
                            RecordCipher::kMaxRecordBytes - 1, RecordCipher::kMaxRecordBytes}) {
    const std::string text(size, 'x');
    const std::string record = seal(sealer, text);
    EXPECT_EQ(open(opener, record), text);
    if (size >= 16) {
      EXPECT_EQ(record.find("xxxxxxxx") == record.npos, GetParam().security == LinkSecurity::encrypted) << size;
    }
  }
}

TEST_P(RecordCiphers, EveryChangedBitIsDetected) {
  const std::string text = "a record of some bytes";
  RecordCipher first = make(Use::seal);
  const std::string record = seal(first, text);
  for (size_t i = 0; i < record.size() * 8; ++i) {
    RecordCipher opener = make(Use::open);
    std::string changed = record;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ 1 << i % 8);
    EXPECT_EQ(open(opener, changed), "changed") << i;
  }
  RecordCipher other_key = make(Use::open, 'l');
  EXPECT_EQ(open(other_key, record), "changed");
}

TEST_P(RecordCiphers, DroppedRepeatedAndReorderedRecordsAreDetected) {
  RecordCipher sealer = make(Use::seal);
  const std::string a = seal(sealer, "same text"), b = seal(sealer, "same text"), none = seal(sealer, "");
  {
    RecordCipher opener = make(Use::open);
    EXPECT_EQ(open(opener, b), "changed");
  }
  {
    RecordCipher opener = make(Use::open);
    EXPECT_EQ(open(opener, a), "same text");
    EXPECT_EQ(open(opener, a), "changed");
  }
  {
    RecordCipher opener = make(Use::open);
    EXPECT_EQ(open(opener, none), "changed");
  }
}

TEST_P(RecordCiphers, KeysChangeAfterALimitOnBothSides) {
  constexpr uint64_t kLimit = 3;
  RecordCipher sealer = make(Use::seal, 'k', kLimit), opener = make(Use::open, 'k', kLimit);
  RecordCipher one_key = make(Use::seal);
  for (int i = 0; i < 10; ++i) {
    const std::string text = "record " + std::to_string(i), record = seal(sealer, text);
    EXPECT_EQ(record == seal(one_key, text), i < static_cast<int>(kLimit)) << i;
    EXPECT_EQ(open(opener, record), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordCiphers, testing::ValuesIn(kProtections), [](const auto& one) {
  return std::string(name(one.param.security)) + (one.param.cipher == Cipher::aes_128_gcm ? "Aes" : "ChaCha");
});

// Test case 1 of RFC 5869.
TEST(DeriveKey, IsHkdfWithSha256) {
  const std::vector<uint8_t> secret(22, 0x0b);
  std::vector<uint8_t> salt;
  for (uint8_t i = 0; i <= 12; ++i) salt.push_back(i);
  const Bytes32 key = detail::derive_key(secret, salt, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9");
  std::string text;
  for (const uint8_t byte : key) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  EXPECT_EQ(text, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(LinkSecurity, NamesAreReadBack) {
  for (const LinkSecurity each : {LinkSecurity::plain, LinkSecurity::signature, LinkSecurity::encrypted})
    EXPECT_EQ(link_security_from(name(each)), each);
  EXPECT_EQ(link_security_from("tls"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
