// CRC-32C (Castagnoli, as in iSCSI and in TensorFlow's record files). Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// The sum of the bytes; of a message in pieces, each given the sum of those before it. Uses the processor's own
// instruction where it has one: some GB/s instead of one.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);

namespace detail {
// The same on any processor.
uint32_t crc32c_plain(std::span<const uint8_t> bytes, uint32_t before = 0);
}  // namespace detail

}  // namespace lockstep
