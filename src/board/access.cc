#include "board/access.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::board {

std::string new_token() {
  std::array<unsigned char, 16> bytes = {};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw_error("board: the system provides no random numbers for a token; give one with --token");
  std::string out;
  for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

std::string_view cookie_value(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const size_t end = std::min(header.find(';'), header.size());
    std::string_view part = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    while (part.starts_with(' ')) part.remove_prefix(1);
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=')
      return part.substr(name.size() + 1);
  }
  return {};
}

bool is_valid_token(std::string_view token) {
  return !token.empty() && token.size() <= 256 && std::all_of(token.begin(), token.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace lockstep::board
