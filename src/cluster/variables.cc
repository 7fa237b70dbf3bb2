#include "cluster/variables.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace lockstep::detail {
namespace {

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int> port_variable(const Environment& environment, const std::string& name) {
  const std::optional<int> port = optional_number(environment, name, 1);
  if (port && *port > kLastPort)
    throw_error("initialize: {} is \"{}\"; ports are numbers from 1 to {}", name, *port, kLastPort);
  return port;
}

}  // namespace

const std::string* find_variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<int> optional_number(const Environment& environment, const std::string& name, int low) {
  const std::string* text = find_variable(environment, name);
  if (!text) return std::nullopt;
  const std::optional<int> value = to_number(*text);
  if (!value || *value < low)
    throw_error("initialize: {} is \"{}\"; set it to an integer of at least {}, or unset it", name, *text, low);
  return value;
}

int number_variable(const Environment& environment, const std::string& name, int low) {
  const std::optional<int> value = optional_number(environment, name, low);
  LOCKSTEP_CHECK(value, "{} is not set", name);
  return *value;
}

void check_id(const std::string& id_name, int id, const std::string& count_name, int count) {
  if (id >= count)
    throw_error("initialize: {} is \"{}\" and {} is \"{}\"; ids run from 0 to {}", id_name, id, count_name, count,
                count - 1);
}

std::vector<int> parse_ids(std::string_view text, std::string_view source) {
  std::vector<int> out;
  for (std::string_view rest = text;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<int> id = to_number(rest.substr(0, comma));
    if (!id || *id < 0 || std::find(out.begin(), out.end(), *id) != out.end())
      throw_error("initialize: {} is \"{}\"; give distinct numbers separated by commas, such as 0,1", source, text);
    out.push_back(*id);
    if (comma == rest.size()) return out;
    rest.remove_prefix(comma + 1);
  }
}

std::string join_words(const std::vector<std::string>& list) {
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : i + 1 == list.size() ? " and " : ", ") + list[i];
  return out;
}

std::optional<NotDetected> check_all_set(const Environment& environment, std::initializer_list<const char*> names,
                                         std::string_view remedy) {
  std::vector<std::string> set, missing;
  for (const char* name : names) (find_variable(environment, name) ? set : missing).push_back(name);
  if (missing.empty()) return std::nullopt;
  if (set.empty()) return NotDetected{fmt::format("{} is not set", *names.begin())};
  return NotDetected{
      fmt::format("{} {} missing ({} {} set); {}", join_words(missing), missing.size() == 1 ? "is" : "are",
                  join_words(set), set.size() == 1 ? "is" : "are", remedy),
      true};
}

int coordinator_port(const Environment& environment, int otherwise) {
  for (const char* name : {"LOCKSTEP_COORDINATOR_PORT", "JAX_COORDINATOR_PORT"})
    if (const std::optional<int> port = port_variable(environment, name)) return *port;
  return otherwise;
}

Address address_variable(const Environment& environment, const std::string& name, const std::string& port_name,
                         int otherwise) {
  const std::string& text = *find_variable(environment, name);
  const std::optional<int> port = port_variable(environment, port_name);
  if (!port && otherwise == 0) return parse_address(text, name);
  const Address address = parse_address(text, name, port.value_or(otherwise));
  if (port && address.port != *port)
    throw_error("initialize: {} is \"{}\" and {} is \"{}\"; keep one of the two ports", name, text, port_name, *port);
  return address;
}

}  // namespace lockstep::detail
