// CRC-32C (Castagnoli, as in iSCSI and in TensorFlow's record files). A pure function: any thread may call it.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// The sum of the bytes; of a message in pieces, each given the sum of those before it.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);

}  // namespace lockstep
