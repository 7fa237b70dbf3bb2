// Lists of names for messages. Pure functions.
#pragma once

#include <fmt/format.h>

#include <string>

namespace lockstep {

// Returns "\"data\", \"model\"", or "none" for an empty list.
template <class Names>
std::string quoted(const Names& names) {
  std::string text;
  for (const auto& name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

}  // namespace lockstep
