#include "jobs/kubernetes/variable_checks.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// A pod name, at most JOB-worker-0-4095 with a suffix, has at most 63 characters.
constexpr size_t kMaxJobNameLength = 46;

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A DNS label: lowercase letters, digits and hyphens; the first and last character is a letter or digit.
bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= 63 && is_lower_or_digit(text.front()) && is_lower_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_lower_or_digit(c) || c == '-'; });
}

// A positive quantity of Kubernetes: 1, "500m", "2Gi", "1.5".
bool is_quantity(const std::string& text) {
  static const std::vector<std::string> suffixes = {"", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"};
  size_t at = 0, digits = 0, points = 0;
  for (; at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == '.'); ++at)
    ++(text[at] == '.' ? points : digits);
  return digits > 0 && points <= 1 && text[0] != '.' && text[at - 1] != '.' &&
         std::ranges::find(suffixes, text.substr(at)) != suffixes.end() &&
         text.substr(0, at).find_first_not_of("0.") != std::string::npos;
}

bool is_printable(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
}

bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

// A label value, or the name in a label key: letters, digits, hyphens, underscores and dots; the first and last
// character is a letter or digit.
bool is_label_text(std::string_view text) {
  return !text.empty() && text.size() <= 63 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

// DNS labels separated by dots.
bool is_domain(std::string_view text) {
  if (text.size() > 253) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    if (!is_dns_label(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// A label key: "zone", "topology.kubernetes.io/zone".
bool is_label_key(std::string_view text) {
  const size_t slash = text.find('/');
  return slash == text.npos ? is_label_text(text)
                            : is_domain(text.substr(0, slash)) && is_label_text(text.substr(slash + 1));
}

// Checks only the characters, not the full grammar of image references.
bool is_image(std::string_view text) {
  return text.size() <= 1024 && is_letter_or_digit(text.front()) && is_letter_or_digit(text.back()) &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || std::string_view("._-/:@").find(c) != std::string_view::npos;
         });
}

bool is_variable_name(std::string_view text) {
  const auto is_punctuation = [](char c) { return c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 253 && !(text.front() >= '0' && text.front() <= '9') &&
         std::ranges::all_of(text, [&](char c) { return is_letter_or_digit(c) || is_punctuation(c); });
}

void check_texts(const std::string& name, const Json& value, const char* example) {
  if (!value.is_object() || !std::ranges::all_of(value, [](const Json& each) { return each.is_string(); }))
    throw_invalid_variable(name, value, fmt::format("use an object of strings, such as {}", example));
}

void check_env(const std::string& name, const Json& value) {
  check_texts(name, value, "{\"LOCKSTEP_VERBOSE\": \"1\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_variable_name(key))
      throw_error(
          "variables: {} has \"{}\", which is not a valid variable name; use letters, digits and _ - ., and no "
          "digit first",
          name, printable(key));
    if (key == "LOCKSTEP_TOKEN")
      throw_error(
          "variables: {} has LOCKSTEP_TOKEN, which would be readable in the job's manifest; set token or "
          "token_secret instead",
          name);
    if (text.get_ref<const std::string&>().find('\0') != std::string::npos)
      throw_error("variables: {} has a NUL character in the value of \"{}\"; remove it", name, printable(key));
  }
}

void check_label_map(const std::string& name, const Json& value, bool any_value) {
  check_texts(name, value, "{\"zone\": \"a\"}");
  for (const auto& [key, text] : value.items()) {
    if (!is_label_key(key))
      throw_error(
          "variables: {} has \"{}\", which is not a valid {} key; use at most 63 letters, digits and - _ ., with an "
          "optional prefix such as example.org/",
          name, printable(key), any_value ? "annotation" : "label");
    if (!any_value && !text.get_ref<const std::string&>().empty() && !is_label_text(text.get_ref<const std::string&>()))
      throw_error(
          "variables: {} has \"{}\" for {}, which is not a valid label value; use at most 63 letters, digits and "
          "- _ .",
          name, printable(text.get<std::string>()), key);
  }
}

void check_integer(const VariableRow& row, const Json& value) {
  const auto in_range = [&] {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
    return value.is_number_integer() && value.get<int64_t>() >= row.low && value.get<int64_t>() <= row.high;
  };
  if (!in_range())
    throw_invalid_variable(row.shown.name, value, fmt::format("use a whole number from {} to {}", row.low, row.high));
}

// An absolute path without a colon, which Kubernetes forbids in mount paths.
bool is_mount_path(std::string_view text) {
  return text.size() > 1 && text[0] == '/' && text.find(':') == text.npos && is_printable(std::string(text)) &&
         text.find_first_not_of('/') != text.npos;
}

std::optional<PortNumbers> ports_in(const std::string& text) {
  PortNumbers out;
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, out.first);
  if (error != std::errc() || dash == end || *dash != '-') return std::nullopt;
  const auto [last, again] = std::from_chars(dash + 1, end, out.last);
  const bool valid = again == std::errc() && last == end && 1 <= out.first && out.first <= out.last && out.last < 65536;
  return valid ? std::optional(out) : std::nullopt;
}

bool all_texts(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, [](const Json& each) { return each.is_string(); });
}

void check_volumes(const std::string& name, const Json& value) {
  const char* const kRemedy = "use a list of CLAIM:PATH, such as [\"data:/data:ro\"]";
  if (!all_texts(value)) throw_invalid_variable(name, value, kRemedy);
  for (const Json& each : value) {
    const ClaimMount mount = parse_claim_mount(each);
    if (!is_domain(mount.claim) || !is_mount_path(mount.path)) throw_invalid_variable(name, each, kRemedy);
  }
}

// The names of objects: each kind has its own rule.
void check_object_name(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name, text = value.is_string() ? value.get<std::string>() : "";
  if (row.type == VariableType::label && !is_dns_label(text))
    throw_invalid_variable(name, value, "use at most 63 lowercase letters, digits and hyphens");
  if (row.type == VariableType::domain && !is_domain(text))
    throw_invalid_variable(name, value, "use at most 253 lowercase letters, digits, hyphens and dots");
  if (row.type != VariableType::service) return;
  if (!is_dns_label(text) || !(text[0] >= 'a' && text[0] <= 'z'))
    throw_invalid_variable(name, value, "use at most 63 lowercase letters, digits and hyphens, starting with a letter");
  if (name == "name" && text.size() > kMaxJobNameLength)
    throw_invalid_variable(name, value,
                           fmt::format("it has {} characters; use at most {}, because pod names add a suffix",
                                       text.size(), kMaxJobNameLength));
}

void check_text(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name;
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (row.type == VariableType::text && (text.empty() || !is_printable(text)))
    throw_invalid_variable(name, value, "use a non-empty string without control characters");
  if (row.type == VariableType::image && (text.empty() || !is_image(text)))
    throw_invalid_variable(name, value, "use an image name without spaces, such as registry.example/team/lockstep:1");
  if (row.type == VariableType::resource && !is_label_key(text))
    throw_invalid_variable(name, value, "use a resource name such as nvidia.com/gpu");
  if (row.type == VariableType::path && !is_mount_path(text))
    throw_invalid_variable(name, value, "use an absolute path without colons, such as /checkpoints");
  if (row.type == VariableType::ports && !ports_in(text))
    throw_invalid_variable(name, value, "use a range of ports such as 61000-64999");
}

void check_list(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name;
  if (row.type == VariableType::list && !all_texts(value))
    throw_invalid_variable(name, value, "use a list of strings, such as [\"train\", \"--epochs\", \"8\"]");
  if (row.type == VariableType::domains &&
      (!all_texts(value) || !std::ranges::all_of(value, [](const Json& each) { return is_domain(std::string(each)); })))
    throw_invalid_variable(name, value, "use a list of names, such as [\"registry\"]");
  if (row.type == VariableType::objects &&
      (!value.is_array() || !std::ranges::all_of(value, [](const Json& each) { return each.is_object(); })))
    throw_invalid_variable(name, value, "use a list of objects, as the field of the pod has them");
}

}  // namespace

void throw_invalid_variable(const std::string& name, const Json& value, const std::string& remedy) {
  throw_error("variables: {} is {}; {}", name, printable_json(value), remedy);
}

ClaimMount parse_claim_mount(const std::string& text) {
  ClaimMount out;
  const size_t colon = std::min(text.find(':'), text.size());
  out.claim = text.substr(0, colon);
  out.path = text.substr(std::min(colon + 1, text.size()));
  out.read_only = out.path.ends_with(":ro");
  if (out.read_only) out.path.resize(out.path.size() - 3);
  return out;
}

PortNumbers parse_port_numbers(const std::string& text) { return ports_in(text).value(); }

void check_variable(const VariableRow& row, const Json& value) {
  const std::string name = row.shown.name;
  switch (row.type) {
    case VariableType::integer:
      return check_integer(row, value);
    case VariableType::flag:
      if (!value.is_boolean()) throw_invalid_variable(name, value, "use true or false");
      return;
    case VariableType::quantity:
      if (!(value.is_number() && value.get<double>() > 0) && !(value.is_string() && is_quantity(value)))
        throw_invalid_variable(name, value, "use a quantity such as 2, \"500m\" or \"2Gi\"");
      return;
    case VariableType::env:
      return check_env(name, value);
    case VariableType::labels:
    case VariableType::annotations:
      return check_label_map(name, value, row.type == VariableType::annotations);
    case VariableType::gpus:
      if (!value.is_boolean() &&
          !(value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= 1024))
        throw_invalid_variable(name, value, "use true, false or a number from 0 to 1024");
      return;
    case VariableType::object:
      if (!value.is_object()) throw_invalid_variable(name, value, "use an object, as the field of the pod has it");
      return;
    case VariableType::volumes:
      return check_volumes(name, value);
    case VariableType::service:
    case VariableType::label:
    case VariableType::domain:
      return check_object_name(row, value);
    case VariableType::list:
    case VariableType::domains:
    case VariableType::objects:
      return check_list(row, value);
    case VariableType::text:
    case VariableType::image:
    case VariableType::resource:
    case VariableType::path:
    case VariableType::ports:
      return check_text(row, value);
  }
}

}  // namespace lockstep
