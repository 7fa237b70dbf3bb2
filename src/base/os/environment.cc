#include "base/os/environment.h"

#include <charconv>
#include <cstdlib>

#include "base/check.h"

extern char** environ;

namespace lockstep {

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> environment_variable_even_if_empty(const char* name) {
  const char* const value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

void set_environment_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

detail::Environment own_environment() {
  detail::Environment out;
  for (char** each = environ; each && *each; ++each) {
    const std::string_view entry = *each;
    if (const size_t equals = entry.find('='); equals != entry.npos)
      out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

std::vector<std::string> environment_strings(const detail::Environment& environment) {
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) out.push_back(name + "=" + value);
  return out;
}

int64_t number_in_variable(std::string_view what, std::string_view name, std::string_view text, int64_t low,
                           int64_t high) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < low || n > high)
    throw_error("{}: {} is \"{}\"; set it to a number from {} to {}, or unset it", what, name, text, low, high);
  return n;
}

}  // namespace lockstep
