// Code of kernels for this machine, as bytes that know how many they are.
#pragma once

#include <cstdint>
#include <vector>

namespace emulated {

struct CodeHeader {
  char kind[8];
  uint64_t size;  // of what follows
};
inline constexpr char kCodeKind[8] = {'e', 'm', 'u', 'l', 'a', 't', 'e', 'd'};

// The library that was loaded from it; null where it is none. It stays.
void* load_code(const void* code);

}  // namespace emulated
