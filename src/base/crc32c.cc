#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lockstep {
namespace {

// kTables[k][b] is the contribution of byte b when k more bytes follow it. With it, eight bytes are added per step.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed
  Tables tables = {};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t sum = b;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = sum;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t load_le(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

// next(sum, word) adds eight bytes to the checksum with the CRC instruction, next(sum, byte) adds one.
#if defined(__x86_64__)

#define LOCKSTEP_CRC_TARGET __attribute__((target("sse4.2")))
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint64_t word) {
  return static_cast<uint32_t>(__builtin_ia32_crc32di(sum, word));
}
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint8_t byte) { return __builtin_ia32_crc32qi(sum, byte); }
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }

#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#ifdef __clang__
#define LOCKSTEP_CRC_TARGET __attribute__((target("crc")))
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint64_t word) { return __builtin_arm_crc32cd(sum, word); }
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint8_t byte) { return __builtin_arm_crc32cb(sum, byte); }
#else
#define LOCKSTEP_CRC_TARGET __attribute__((target("+crc")))
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint64_t word) { return __builtin_aarch64_crc32cx(sum, word); }
LOCKSTEP_CRC_TARGET inline uint32_t next(uint32_t sum, uint8_t byte) { return __builtin_aarch64_crc32cb(sum, byte); }
#endif
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

#ifdef LOCKSTEP_CRC_TARGET

LOCKSTEP_CRC_TARGET uint32_t crc32c_by_instruction(std::span<const uint8_t> bytes, uint32_t before) {
  uint32_t sum = ~before;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    sum = next(sum, word);
  }
  for (; left > 0; --left, ++p) sum = next(sum, *p);
  return ~sum;
}

#endif

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before) {
#ifdef LOCKSTEP_CRC_TARGET
  static const bool has_crc = has_instruction();
  if (has_crc) return crc32c_by_instruction(bytes, before);
#endif
  return detail::crc32c_plain(bytes, before);
}

uint32_t detail::crc32c_plain(std::span<const uint8_t> bytes, uint32_t before) {
  uint32_t sum = ~before;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    const uint32_t low = sum ^ load_le(p), high = load_le(p + 4);
    sum = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^ kTables[4][low >> 24] ^
          kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^ kTables[1][high >> 16 & 0xff] ^
          kTables[0][high >> 24];
  }
  for (; left > 0; --left, ++p) sum = (sum >> 8) ^ kTables[0][(sum ^ *p) & 0xff];
  return ~sum;
}

}  // namespace lockstep
