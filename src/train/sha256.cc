#include "train/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace lockstep::detail {
namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(of(context)); }) {
  LOCKSTEP_CHECK(context_ && EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const uint8_t> bytes) {
  LOCKSTEP_CHECK(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  LOCKSTEP_CHECK(EVP_DigestFinal_ex(of(context_.get()), sum, &length) == 1 && length == 32);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(sum[i]));
  return text;
}

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.hex();
}

}  // namespace lockstep::detail
