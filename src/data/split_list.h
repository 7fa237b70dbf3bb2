// split_list(): the parts of a text between separators. Pure function, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

inline std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace lockstep::detail
