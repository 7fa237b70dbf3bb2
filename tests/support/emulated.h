// Counters of the emulated GPU (tests/emulated). Safe from any thread.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <optional>

namespace lockstep {

// The result of the emulator's function of that name; nothing on a real GPU.
inline std::optional<int64_t> emulated(const char* question) {
  const auto ask = reinterpret_cast<int64_t (*)()>(::dlsym(RTLD_DEFAULT, question));
  return ask ? std::optional(ask()) : std::nullopt;
}

}  // namespace lockstep
