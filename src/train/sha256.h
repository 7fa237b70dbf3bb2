// SHA-256 sums of what checkpoints hold. A value: one thread at a time.
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
  // The sum of all bytes so far, as 64 lower-case hexadecimal digits. The object is used up.
  std::string hex();

 private:
  std::unique_ptr<void, void (*)(void*)> context_;
};

std::string sha256_hex(std::span<const uint8_t> bytes);

}  // namespace lockstep::detail
