#include "http/access.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "http/message.h"

namespace lockstep::http {

bool same_token(std::string_view given, std::string_view wanted) {
  return given.size() == wanted.size() && CRYPTO_memcmp(given.data(), wanted.data(), wanted.size()) == 0;
}

std::string_view bearer_token(std::string_view header) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!same_word(header.substr(0, kScheme.size()), kScheme)) return {};
  header.remove_prefix(kScheme.size());
  while (header.starts_with(' ')) header.remove_prefix(1);
  return header;
}

bool is_loopback(std::string_view host) {
  if (same_word(host, "localhost")) return true;
  const std::string text(host);
  in_addr four = {};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six = {};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

std::optional<std::string> host_name(std::string_view header) {
  std::string_view name = header.substr(0, header.find(':')), port;
  if (header.starts_with('[')) {
    const size_t end = header.find(']');
    if (end == header.npos) return std::nullopt;
    name = header.substr(1, end - 1);
    port = header.substr(end + 1);
  } else {
    port = header.substr(name.size());
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!port.empty() && (port[0] != ':' || !std::all_of(port.begin() + 1, port.end(), is_digit))) return std::nullopt;
  std::string out;
  for (const char c : name) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_letter && !is_digit(c) && c != '.' && c != '-' && c != '_' && c != ':' && c != '%') return std::nullopt;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

bool host_is_allowed(std::string_view header, std::string_view host) {
  const std::optional<std::string> name = host_name(header);
  return name && (same_word(*name, host) || is_loopback(*name));
}

}  // namespace lockstep::http
