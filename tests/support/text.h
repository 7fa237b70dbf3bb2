// Searches in the output of programs. Safe from any thread.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The number of places where `part` occurs, not overlapping. REQUIRES: `part` is not empty.
inline size_t occurrences(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_TRUE(contains(text, part)) << "no \"" << part << "\" in:\n" << text;
}
inline void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_FALSE(contains(text, part)) << "\"" << part << "\" in:\n" << text;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace lockstep
