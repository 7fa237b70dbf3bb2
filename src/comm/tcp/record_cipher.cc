#include "comm/tcp/record_cipher.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/check.h"
#include "lockstep/error.h"

namespace lockstep {

std::string_view name(LinkSecurity security) {
  return security == LinkSecurity::plain ? "plain" : security == LinkSecurity::signature ? "signed" : "encrypted";
}

std::optional<LinkSecurity> link_security_from(std::string_view text) {
  for (const LinkSecurity each : {LinkSecurity::plain, LinkSecurity::signature, LinkSecurity::encrypted})
    if (text == name(each)) return each;
  return std::nullopt;
}

namespace detail {

namespace {

// OpenSSL fails here only when memory runs out or its policy forbids an algorithm.
void require_crypto(bool done, std::string_view what) {
  if (done) return;
  const unsigned long error = ERR_get_error();
  const char* const reason = error ? ERR_reason_error_string(error) : nullptr;
  throw CommError(
      fmt::format("tcp: OpenSSL does not provide {}: {}; check its configuration, or use --data-security "
                  "plain (LOCKSTEP_DATA_SECURITY)",
                  what, reason ? reason : "unknown reason"));
}

unsigned char* bytes_of(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* bytes_of(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

std::string_view name(Cipher cipher) { return cipher == Cipher::aes_128_gcm ? "aes-128-gcm" : "chacha20-poly1305"; }

Cipher fastest_cipher() {
#if defined(__x86_64__)
  const bool aes = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
  const unsigned long features = getauxval(AT_HWCAP);
  const bool aes = (features & HWCAP_AES) != 0 && (features & HWCAP_PMULL) != 0;
#else
  const bool aes = false;
#endif
  return aes ? Cipher::aes_128_gcm : Cipher::chacha20_poly1305;
}

Bytes32 derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt, std::string_view purpose) {
  struct FreeKdf {
    void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
    void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
  };
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  require_crypto(kdf != nullptr, "HKDF");
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  const auto octets = [](const char* key, const void* data, size_t size) {
    return OSSL_PARAM_construct_octet_string(key, const_cast<void*>(data), size);  // not written to
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_INFO, purpose.data(), purpose.size()),
      // OpenSSL rejects an empty salt that is given.
      salt.empty() ? OSSL_PARAM_construct_end() : octets(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_end()};
  Bytes32 out{};
  require_crypto(context && EVP_KDF_derive(context.get(), out.data(), out.size(), parameters) == 1, "HKDF");
  return out;
}

void RecordCipher::Free::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

RecordCipher::RecordCipher(Use use, LinkSecurity security, Cipher cipher, const Bytes32& key, uint64_t records_per_key)
    : use_(use),
      security_(security),
      cipher_(cipher),
      key_(key),
      records_per_key_(records_per_key),
      context_(EVP_CIPHER_CTX_new()) {
  LOCKSTEP_CHECK(security != LinkSecurity::plain);
  require_crypto(context_ != nullptr, name(cipher_));
  set_key();
}

void RecordCipher::set_key() {
  const EVP_CIPHER* const algorithm = cipher_ == Cipher::aes_128_gcm ? EVP_aes_128_gcm() : EVP_chacha20_poly1305();
  const Bytes32 key = derive_key(key_, {}, "key");
  require_crypto(
      EVP_CipherInit_ex(context_.get(), algorithm, nullptr, key.data(), nullptr, use_ == Use::seal ? 1 : 0) == 1,
      name(cipher_));
  next_ = 0;
}

void RecordCipher::process(const std::byte* in, size_t bytes, std::byte* out) {
  LOCKSTEP_CHECK(bytes <= kMaxRecordBytes, "a record of {} bytes", bytes);
  if (next_ == records_per_key_) {
    key_ = derive_key(key_, {}, "next");
    set_key();
  }
  std::array<unsigned char, 12> nonce{};
  for (size_t i = 0; i < sizeof next_; ++i) nonce[i] = static_cast<unsigned char>(next_ >> 8 * i);
  ++next_;
  int length = 0;
  bool done = EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1;
  if (bytes > 0 && security_ == LinkSecurity::signature) {
    // The bytes are additional data of a record without contents.
    std::memcpy(out, in, bytes);
    done = done && EVP_CipherUpdate(context_.get(), nullptr, &length, bytes_of(in), static_cast<int>(bytes)) == 1;
  } else if (bytes > 0) {
    done = done && EVP_CipherUpdate(context_.get(), bytes_of(out), &length, bytes_of(in), static_cast<int>(bytes)) == 1;
  }
  require_crypto(done, name(cipher_));
}

void RecordCipher::seal(const std::byte* in, size_t bytes, std::byte* out) {
  process(in, bytes, out);
  int length = 0;
  unsigned char* const end = bytes_of(out) + bytes;
  require_crypto(EVP_CipherFinal_ex(context_.get(), end, &length) == 1 &&
                     EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, end) == 1,
                 name(cipher_));
}

bool RecordCipher::open(const std::byte* in, size_t bytes, std::byte* out) {
  process(in, bytes, out);
  std::array<unsigned char, kTagBytes> tag{};
  std::memcpy(tag.data(), in + bytes, tag.size());
  unsigned char none = 0;
  int length = 0;
  return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1 &&
         EVP_CipherFinal_ex(context_.get(), &none, &length) == 1;
}

}  // namespace detail
}  // namespace lockstep
