#include "jobs/kubernetes/kubectl_text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep {
namespace {

constexpr std::string_view kWarning = "Warning: ";
constexpr std::string_view kInvalidValue = ": Invalid value: ";
constexpr size_t kMaxValueLength = 120;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) out.push_back(line);
  }
  return out;
}

// The message of a log line of kubectl's libraries: "E1117 12:00:00.000000    4711 file.go:26] message". Returns "" if
// it is not a log line.
std::string_view message_of_log_line(std::string_view line) {
  constexpr std::string_view kForm = "0000 00:00:00.";  // after the letter
  if (line.size() <= kForm.size() || std::string_view("IWEF").find(line[0]) == line.npos) return {};
  for (size_t i = 0; i < kForm.size(); ++i) {
    const char c = line[i + 1];
    if (kForm[i] == '0' ? !std::isdigit(static_cast<unsigned char>(c)) : c != kForm[i]) return {};
  }
  const size_t end = line.find("] ");
  return end == line.npos ? std::string_view() : line.substr(end + 2);
}

bool has(std::string_view text, std::string_view words) { return text.find(words) != text.npos; }

// Shortens "spec.template: Invalid value: core.PodTemplateSpec{...}: field is immutable" to
// "spec.template: field is immutable".
std::string without_value(std::string_view line) {
  const size_t at = line.find(kInvalidValue);
  if (at == line.npos || line.size() - at < kMaxValueLength) return std::string(line);
  const size_t reason = line.rfind(": ");
  return std::string(line.substr(0, at)) + (reason > at ? std::string(line.substr(reason)) : ": invalid value");
}

// If kubectl repeats the object or the patch first, the message starts after the name of its input.
std::vector<std::string_view> without_objects(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kInput = "for: \"STDIN\": ";
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t at = lines[i].find(kInput);
    if (at == lines[i].npos) continue;
    std::vector<std::string_view> out = {lines[i].substr(at + kInput.size())};
    out.insert(out.end(), lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, lines.end());
    return out;
  }
  return lines;
}

}  // namespace

std::vector<std::string> kubectl_warnings(std::string_view err) {
  std::vector<std::string> out;
  for (const std::string_view line : lines_of(err))
    if (line.starts_with(kWarning)) out.emplace_back(line.substr(kWarning.size()));
  return out;
}

std::string kubectl_error_message(std::string_view err) {
  std::vector<std::string_view> lines;
  std::string_view last_logged;
  for (const std::string_view line : lines_of(err)) {
    if (line.starts_with(kWarning)) continue;
    if (const std::string_view message = message_of_log_line(line); !message.empty())
      last_logged = message;
    else
      lines.push_back(line);
  }
  if (lines.empty()) return std::string(last_logged);
  std::string out;
  for (const std::string_view line : without_objects(lines)) out += (out.empty() ? "" : "\n  ") + without_value(line);
  return out;
}

std::vector<std::string> immutable_fields(std::string_view err) {
  std::vector<std::string> out;
  for (const std::string_view line : lines_of(err)) {
    const size_t value = line.find(kInvalidValue);
    if (value == line.npos || !line.ends_with("field is immutable")) continue;
    std::string_view field = line.substr(0, value);
    if (const size_t at = field.rfind(' '); at != field.npos) field.remove_prefix(at + 1);  // "is invalid: ", "* "
    if (std::ranges::find(out, field) == out.end()) out.emplace_back(field);
  }
  return out;
}

bool is_unreachable(std::string_view err) {
  constexpr std::array kTexts = {"was refused",
                                 "connection refused",
                                 "connection reset",
                                 "connection lost",
                                 "Unable to connect to the server",
                                 "no such host",
                                 "no route to host",
                                 "i/o timeout",
                                 "TLS handshake timeout",
                                 "context deadline exceeded",
                                 "Client.Timeout",
                                 "unexpected EOF",
                                 ": EOF",
                                 "(ServiceUnavailable)",
                                 "(TooManyRequests)",
                                 "(Timeout)",
                                 "(ServerTimeout)",
                                 "currently unable to handle the request",
                                 "apiserver is shutting down",
                                 "etcdserver: ",
                                 "GOAWAY"};
  // A retry does not help against an invalid certificate.
  return !has(err, "x509: ") && std::ranges::any_of(kTexts, [&](const char* text) { return has(err, text); });
}

bool is_forbidden(std::string_view err) { return has(err, "(Forbidden)") || has(err, " is forbidden: "); }

}  // namespace lockstep
