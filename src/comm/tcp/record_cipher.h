// RecordCipher: seals or opens the records of one direction of a TCP connection, with an AEAD cipher of OpenSSL. A
// sealed record is as long as its bytes, plus a tag. Its number is the nonce, so a record that was changed, dropped,
// repeated or moved does not open, and neither does any later one.
//
// A key seals a limited number of records; then both sides derive the next one from it. So the amount of data of a
// connection is not limited.
//
// Thread safety: a value, used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;

namespace lockstep {

// How the data of a connection is protected against others on the network. A signed connection detects every change,
// but its data can be read.
enum class LinkSecurity : uint8_t { plain, signature, encrypted };
std::string_view name(LinkSecurity);  // "plain", "signed", "encrypted"
std::optional<LinkSecurity> link_security_from(std::string_view name);

namespace detail {

using Bytes32 = std::array<uint8_t, 32>;

enum class Cipher : uint8_t { aes_128_gcm, chacha20_poly1305 };
std::string_view name(Cipher);
// The faster cipher on this CPU.
Cipher fastest_cipher();

// HKDF-SHA256 (RFC 5869).
Bytes32 derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt, std::string_view purpose);

class RecordCipher {
 public:
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kMaxRecordBytes = size_t{64} << 10;
  // 2^38 bytes: far below the limits of both ciphers.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;

  enum class Use : uint8_t { seal, open };

  // REQUIRES: security is not plain. Throws CommError when OpenSSL does not provide the cipher.
  RecordCipher(Use use, LinkSecurity security, Cipher cipher, const Bytes32& key,
               uint64_t records_per_key = kRecordsPerKey);

  // Writes the sealed record of `bytes` bytes to `out`, which has room for kTagBytes more. REQUIRES: at most
  // kMaxRecordBytes; `in` and `out` do not overlap.
  void seal(const std::byte* in, size_t bytes, std::byte* out);

  // Opens a sealed record of `bytes` bytes and a tag. False: it is not the next record that the other side has sealed;
  // the contents of `out` are then not to be used.
  [[nodiscard]] bool open(const std::byte* in, size_t bytes, std::byte* out);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const;
  };

  void set_key();
  // Prepares the next record, and processes its bytes.
  void process(const std::byte* in, size_t bytes, std::byte* out);

  Use use_;
  LinkSecurity security_;
  Cipher cipher_;
  Bytes32 key_;
  uint64_t records_per_key_;
  uint64_t next_ = 0;  // number of the next record, with this key
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

}  // namespace detail
}  // namespace lockstep
