// MD5 (RFC 1321), to verify files against published checksums. Not for security. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

class Md5 {
 public:
  // Appends bytes to the message.
  void update(std::span<const uint8_t> bytes);

  // Returns the checksum of the message as 32 lower-case hexadecimal digits. REQUIRES: called once, as the last call.
  std::string hex();

 private:
  void add_blocks(const uint8_t* blocks, size_t count);

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<uint8_t, 64> partial_ = {};
  uint64_t length_ = 0;  // bytes of the message; the last length_ % 64 of them are in partial_
};

std::string md5_hex(std::span<const uint8_t> bytes);

}  // namespace lockstep
