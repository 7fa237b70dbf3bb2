// The format of compiled kernels: a header with the size, then a shared library. Safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace emulated {

struct CodeHeader {
  char kind[8];
  uint64_t size;  // of what follows
};
inline constexpr char kCodeKind[8] = {'e', 'm', 'u', 'l', 'a', 't', 'e', 'd'};

// Loads the library of compiled code; null if it is not valid. It is never unloaded.
void* load_code(const void* code);

}  // namespace emulated
