#include "cluster/address.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/printable.h"

namespace lockstep::detail {
namespace {

// An address text, split before ":port".
struct Parts {
  std::string_view host, port;
  bool has_port = false;
};

Parts split(std::string_view text, std::string_view source) {
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == text.npos || close == 1 || (close + 1 < text.size() && text[close + 1] != ':'))
      throw_error("initialize: {} is \"{}\", which is not an address; write [IPV6]:PORT, such as [fd00::1]:1234",
                  source, printable(text));
    const std::string_view host = text.substr(1, close - 1);
    if (close + 1 == text.size()) return {host, {}, false};
    return {host, text.substr(close + 2), true};
  }
  const size_t colon = text.find(':');
  if (colon == text.npos) return {text, {}, false};
  if (text.find(':', colon + 1) != text.npos)
    throw_error(
        "initialize: {} is \"{}\", which has several colons; put an IPv6 address in brackets, as in "
        "[fd00::1]:1234",
        source, printable(text));
  return {text.substr(0, colon), text.substr(colon + 1), true};
}

Address checked(const Parts& parts, std::string_view text, std::string_view source) {
  const auto is_wrong = [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '/' || c == '[' || c == ']'; };
  if (parts.host.empty() || std::ranges::any_of(parts.host, is_wrong))
    throw_error("initialize: {} is \"{}\", which has no valid host name; write HOST:PORT, such as node1:1234", source,
                printable(text));
  int port = 0;
  const char* const end = parts.port.data() + parts.port.size();
  const auto [stop, error] = std::from_chars(parts.port.data(), end, port);
  if (error != std::errc() || stop != end || port < 1 || port > kLastPort)
    throw_error("initialize: {} is \"{}\", and \"{}\" is not a port; ports are numbers from 1 to {}", source,
                printable(text), printable(parts.port), kLastPort);
  return {std::string(parts.host), port};
}

// Wildcard match: `*` is any text, `?` any character. Backtracks to the last star only, so it stays quadratic.
bool matches(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = pattern.npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n, ++p;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

}  // namespace

std::string to_string(const Address& address) {
  return address.host.find(':') == std::string::npos ? fmt::format("{}:{}", address.host, address.port)
                                                     : fmt::format("[{}]:{}", address.host, address.port);
}

Address parse_address(std::string_view text, std::string_view source) {
  const Parts parts = split(text, source);
  if (!parts.has_port)
    throw_error("initialize: {} is \"{}\", which has no port; write HOST:PORT, such as {}:1234", source,
                printable(text), printable(text));
  return checked(parts, text, source);
}

Address parse_address(std::string_view text, std::string_view source, int port) {
  Parts parts = split(text, source);
  const std::string own = std::to_string(port);
  if (!parts.has_port) parts.port = own;
  return checked(parts, text, source);
}

std::vector<Interface> choose_interfaces(std::string_view pattern, std::vector<Interface> interfaces) {
  const bool exclude = pattern.starts_with('^');
  std::string_view rest = exclude ? pattern.substr(1) : pattern;
  std::vector<std::string_view> names;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) names.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  std::string available;
  for (const Interface& each : interfaces)
    if ((", " + available + ", ").find(", " + each.name + ", ") == std::string::npos)
      available += (available.empty() ? "" : ", ") + each.name;
  if (!names.empty())
    std::erase_if(interfaces, [&](const Interface& each) {
      const bool named = std::any_of(names.begin(), names.end(), [&](auto name) { return matches(each.name, name); });
      return named == exclude;
    });
  if (interfaces.empty())
    throw_error("initialize: no network interface matches \"{}\"; available: {}", pattern,
                available.empty() ? "none" : available);
  const auto rank = [](const Interface& each) {
    return (each.loopback ? 4 : 0) + (each.link_local ? 2 : 0) + (each.ipv6 ? 1 : 0);
  };
  std::stable_sort(interfaces.begin(), interfaces.end(),
                   [&](const Interface& a, const Interface& b) { return rank(a) < rank(b); });
  return interfaces;
}

}  // namespace lockstep::detail
