// CRC-32C (Castagnoli, as in iSCSI and in TensorFlow's record files). Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// Returns the checksum of the bytes. For a message in pieces, pass the checksum of the earlier pieces as `before`. Uses
// the CRC instruction of the CPU if it has one, which is several times faster.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);

namespace detail {
// The same function without the CRC instruction.
uint32_t crc32c_plain(std::span<const uint8_t> bytes, uint32_t before = 0);
}  // namespace detail

}  // namespace lockstep
