// MD5 (RFC 1321), for checking files against published sums. Not for security. A value: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

class Md5 {
 public:
  // Adds bytes to the message.
  void update(std::span<const uint8_t> bytes);

  // The sum of all bytes so far, as 32 lower-case hexadecimal digits. The object is used up.
  std::string hex();

 private:
  void add_blocks(const uint8_t* blocks, size_t count);

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<uint8_t, 64> partial_ = {};
  uint64_t length_ = 0;  // bytes so far; length_ % 64 of them wait in partial_
};

std::string md5_hex(std::span<const uint8_t> bytes);

}  // namespace lockstep
