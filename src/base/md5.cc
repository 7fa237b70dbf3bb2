#include "base/md5.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
namespace {

// Names follow RFC 1321: T is floor(2^32 * |sin(i + 1)|), S the rotations, F G H I the round functions.
constexpr std::array<uint32_t, 64> kT = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
constexpr std::array<std::array<int, 4>, 4> kS = {{{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

uint32_t load_word(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

template <size_t i>
[[gnu::always_inline]] inline void step(std::array<uint32_t, 4>& v, const std::array<uint32_t, 16>& x) {
  constexpr size_t round = i / 16;
  constexpr size_t k = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
  uint32_t& a = v[(64 - i) % 4];
  const uint32_t b = v[(65 - i) % 4], c = v[(66 - i) % 4], d = v[(67 - i) % 4];
  uint32_t f;
  if constexpr (round == 0) f = d ^ (b & (c ^ d));
  if constexpr (round == 1) f = c ^ (d & (b ^ c));
  if constexpr (round == 2) f = b ^ c ^ d;
  if constexpr (round == 3) f = c ^ (b | ~d);
  a = b + std::rotl(a + f + x[k] + kT[i], kS[round][i % 4]);
}

template <size_t... i>
[[gnu::always_inline]] inline void all_steps(std::array<uint32_t, 4>& v, const std::array<uint32_t, 16>& x,
                                             std::index_sequence<i...>) {
  (step<i>(v, x), ...);
}

}  // namespace

void Md5::add_blocks(const uint8_t* blocks, size_t count) {
  std::array<uint32_t, 4> state = state_;
  for (; count > 0; --count, blocks += 64) {
    std::array<uint32_t, 16> x;
    for (size_t i = 0; i < 16; ++i) x[i] = load_word(blocks + 4 * i);
    std::array<uint32_t, 4> v = state;
    all_steps(v, x, std::make_index_sequence<64>());
    for (size_t i = 0; i < 4; ++i) state[i] += v[i];
  }
  state_ = state;
}

void Md5::update(std::span<const uint8_t> bytes) {
  const size_t waiting = length_ % 64;
  length_ += bytes.size();
  if (waiting > 0) {
    const size_t n = std::min(bytes.size(), 64 - waiting);
    std::copy_n(bytes.begin(), n, partial_.begin() + static_cast<std::ptrdiff_t>(waiting));
    bytes = bytes.subspan(n);
    if (waiting + n < 64) return;
    add_blocks(partial_.data(), 1);
  }
  add_blocks(bytes.data(), bytes.size() / 64);
  const auto rest = bytes.last(bytes.size() % 64);
  std::copy(rest.begin(), rest.end(), partial_.begin());
}

std::string Md5::hex() {
  const uint64_t bits = length_ * 8;
  std::array<uint8_t, 72> padding = {0x80};
  const size_t zeros_end = (length_ % 64 < 56 ? 56 : 120) - length_ % 64;
  for (size_t i = 0; i < 8; ++i) padding[zeros_end + i] = static_cast<uint8_t>(bits >> (8 * i));
  update(std::span(padding).first(zeros_end + 8));
  std::string text;
  for (uint32_t word : state_)
    for (int i = 0; i < 4; ++i) text += fmt::format("{:02x}", word >> (8 * i) & 0xff);
  return text;
}

std::string md5_hex(std::span<const uint8_t> bytes) {
  Md5 md5;
  md5.update(bytes);
  return md5.hex();
}

}  // namespace lockstep
