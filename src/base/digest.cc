#include "base/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/check.h"

namespace lockstep {
namespace {

using Algorithm = std::unique_ptr<EVP_MD, decltype(&EVP_MD_free)>;

template <class D>
std::string digest_of(std::span<const uint8_t> bytes) {
  D digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace

Digest::Digest(const char* algorithm) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  // "-fips": systems in FIPS mode refuse MD5 otherwise, even for checksums.
  const Algorithm fetched(EVP_MD_fetch(nullptr, algorithm, "-fips"), EVP_MD_free);
  LOCKSTEP_CHECK(context_ && fetched && EVP_DigestInit_ex(context_.get(), fetched.get(), nullptr) == 1,
                 "OpenSSL has no {}", algorithm);
}

void Digest::update(std::span<const uint8_t> bytes) {
  LOCKSTEP_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum;
  unsigned int length = 0;
  LOCKSTEP_CHECK(EVP_DigestFinal_ex(context_.get(), sum.data(), &length) == 1);
  std::string out;
  for (unsigned int i = 0; i < length; ++i) out += fmt::format("{:02x}", static_cast<unsigned>(sum[i]));
  return out;
}

std::string md5_hex(std::span<const uint8_t> bytes) { return digest_of<Md5>(bytes); }
std::string sha256_hex(std::span<const uint8_t> bytes) { return digest_of<Sha256>(bytes); }

}  // namespace lockstep
