// Hasher: a 64-bit hash of a sequence of values, equal on every machine and in every run. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep {

class Hasher {
 public:
  void add(uint64_t x) {
    state_ = (std::rotl(state_, 5) ^ x) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
  }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    uint64_t word = 0;
    int filled = 0;
    for (char c : text) {
      word = word << 8 | static_cast<uint8_t>(c);
      if (++filled == 8) {
        add(word);
        word = 0;
        filled = 0;
      }
    }
    if (filled) add(word);
  }
  uint64_t value() const {
    uint64_t x = state_;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
  }

 private:
  uint64_t state_ = 0x6c6f636b73746570u;
};

}  // namespace lockstep
