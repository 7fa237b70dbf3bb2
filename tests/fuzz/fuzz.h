// Helpers for fuzz targets. A target passes its bytes to a parser and lets every exception escape that the parser does
// not document: libFuzzer and the standalone driver report it as a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

// Calls the function; returns whether it accepted the input. Parsers reject input with Error; other exceptions escape.
template <class Function>
bool accepts(const Function& function) {
  try {
    function();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Checks a property that must hold for every input. Unlike assert(), it is active in every build.
inline void require(bool holds, const char* what, const std::string& details = "") {
  if (holds) return;
  std::fprintf(stderr, "fuzz: property violated: %s\n%s\n", what, details.c_str());
  std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Splits an input at separators into at most `most` parts; the last part has the rest.
inline std::vector<std::string> parts_of(std::string_view text, char separator, size_t most) {
  std::vector<std::string> out;
  while (out.size() + 1 < most) {
    const size_t at = text.find(separator);
    if (at == text.npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  out.emplace_back(text);
  return out;
}

}  // namespace lockstep::fuzz
