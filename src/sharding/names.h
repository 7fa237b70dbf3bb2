// Lists of names in messages.
#pragma once

#include <fmt/format.h>

#include <string>

namespace lockstep {

// "\"data\", \"model\"", or "none".
template <class Names>
std::string quoted(const Names& names) {
  std::string text;
  for (const auto& name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

}  // namespace lockstep
