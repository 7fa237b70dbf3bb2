// SHA-256 checksums. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep::detail {

class Sha256 {
 public:
  Sha256();
  // Adds bytes to the message.
  void update(std::span<const uint8_t> bytes);
  // The checksum of all bytes added, as 64 lower-case hexadecimal digits. REQUIRES: called once, as the last call.
  std::string hex();

 private:
  std::unique_ptr<void, void (*)(void*)> context_;
};

std::string sha256_hex(std::span<const uint8_t> bytes);

}  // namespace lockstep::detail
