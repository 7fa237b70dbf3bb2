// text_bytes(): a text as bytes, for functions that take bytes. Safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// Valid as long as the text.
inline std::span<const uint8_t> text_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace lockstep
