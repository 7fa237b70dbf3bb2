// Checksums of messages by OpenSSL: MD5 (RFC 1321), to verify files against published checksums and not for security,
// and SHA-256. Different objects are safe to use from different threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace lockstep {

class Digest {
 public:
  // Appends bytes to the message.
  void update(std::span<const uint8_t> bytes);

  // Returns the checksum of the message in lower-case hexadecimal digits. REQUIRES: called once, as the last call.
  std::string hex();

 protected:
  explicit Digest(const char* algorithm);

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

class Md5 : public Digest {
 public:
  Md5() : Digest("MD5") {}
};

class Sha256 : public Digest {
 public:
  Sha256() : Digest("SHA256") {}
};

std::string md5_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::span<const uint8_t> bytes);

}  // namespace lockstep
