#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using namespace config;

constexpr ConfigKey kKeys[] = {
#define KEY(group, type, name, initial, limits, metavar, help) \
  {group, #name, &TrainConfig::name, limits, metavar, help},
#include "train/config.def"
#undef KEY
};

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

std::string replaced(std::string_view name, char from, char to) {
  std::string out(name);
  std::replace(out.begin(), out.end(), from, to);
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// An empty text is an empty list. Other texts must not contain empty elements.
template <class T>
std::string read_elements(T& out, std::string_view text, char separator) {
  T elements;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    const std::string_view part = trimmed(text.substr(at, end - at));
    if (part.empty()) return empty_element(text);
    elements.emplace_back(part);
    at = end + 1;
  }
  out = std::move(elements);
  return "";
}

bool within(const Limits& limits, double x) {
  return (limits.low_open ? x > limits.low : x >= limits.low) &&
         (limits.high_open ? x < limits.high : x <= limits.high);
}

std::string describe_limits(const Limits& limits) {
  if (std::isinf(limits.low)) return "";
  if (std::isinf(limits.high)) return fmt::format(" {} {}", limits.low_open ? "above" : "of at least", limits.low);
  if (limits.high_open) return fmt::format(" of at least {} and below {}", limits.low, limits.high);
  return fmt::format(" from {} to {}", limits.low, limits.high);
}

// Parses the entire text as a number. Returns whether it is one.
template <class T>
bool parse_value(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Whether the text is a positive integer that does not fit T.
template <class T>
bool exceeds_type(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc::result_out_of_range && end == text.data() + text.size() && text[0] != '-';
}

bool parse_value(std::string_view text, Switch& out) {
  for (const std::string_view yes : {"true", "yes", "on", "1"})
    if (text == yes) return out = true;
  for (const std::string_view no : {"false", "no", "off", "0"})
    if (text == no) return !(out = false);
  return false;
}

// Replaces `out` by the value that the text contains. Returns the reason why it contains none, else an empty string.
template <class T>
std::string read_number(T& out, std::string_view text, const Limits& limits, std::string_view kind) {
  if constexpr (std::is_same_v<T, Integer> || std::is_same_v<T, Unsigned>)
    if (exceeds_type<T>(trimmed(text)))
      return fmt::format("\"{}\" is too large; the maximum is {}", text, std::numeric_limits<T>::max());
  T value{};
  bool good = parse_value(trimmed(text), value);
  if constexpr (!std::is_same_v<T, Switch>) {
    const auto number = static_cast<double>(value);
    good = good && std::isfinite(number) && within(limits, number);
  }
  if (!good) return fmt::format("\"{}\" is not {}{}", text, kind, describe_limits(limits));
  out = value;
  return "";
}

std::string read_setting(Text& out, const ConfigKey& key, std::string_view text) {
  const auto* const row = std::get_if<const detail::SettingRow*>(&key.member);
  if (row && !(*row)->choices.empty() && std::ranges::find((*row)->choices, text) == (*row)->choices.end()) {
    const std::string meant = suggestion(text, (*row)->choices);
    return fmt::format("\"{}\" is not one of {}{}{}", text, fmt::join((*row)->choices, ", "), meant.empty() ? "" : ";",
                       meant);
  }
  out = text;
  return "";
}
std::string read_setting(List& out, const ConfigKey&, std::string_view text) { return read_elements(out, text, ','); }
std::string read_setting(Rules& out, const ConfigKey&, std::string_view text) { return read_elements(out, text, ';'); }
std::string read_setting(Integer& out, const ConfigKey& key, std::string_view text) {
  return read_number(out, text, key.limits, "a whole number");
}
std::string read_setting(Unsigned& out, const ConfigKey& key, std::string_view text) {
  Limits limits = key.limits;
  limits.low = std::max(limits.low, 0.0);
  return read_number(out, text, limits, "a whole number");
}
std::string read_setting(Number& out, const ConfigKey& key, std::string_view text) {
  return read_number(out, text, key.limits, "a number");
}
std::string read_setting(Switch& out, const ConfigKey&, std::string_view text) {
  return read_number(out, text, any(), "true or false");
}

std::string text_of_value(const Text& value) { return value; }
std::string text_of_value(const List& value) { return fmt::format("{}", fmt::join(value, ",")); }
std::string text_of_value(const Rules& value) { return fmt::format("{}", fmt::join(value, ";")); }
template <class T>
requires(std::is_arithmetic_v<T>) std::string text_of_value(T value) { return fmt::format("{}", value); }

// The value of a setting of the user's program.
const SettingValue& user_value(const TrainConfig& config, const detail::SettingRow& row) {
  const auto found = config.user.find(row.name);
  return found == config.user.end() ? row.initial : found->second;
}

// The entry of to_map() that names the user's program.
constexpr const char* kProgramEntry = "program";

}  // namespace

std::string ConfigKey::flag() const { return "--" + replaced(name, '_', '-'); }

bool ConfigKey::is_switch() const {
  if (const auto* row = std::get_if<const detail::SettingRow*>(&member))
    return std::holds_alternative<Switch>((*row)->initial);
  return std::holds_alternative<Switch TrainConfig::*>(member);
}

char ConfigKey::separator() const {
  if (std::holds_alternative<Rules TrainConfig::*>(member)) return ';';
  if (const auto* row = std::get_if<const detail::SettingRow*>(&member))
    return std::holds_alternative<List>((*row)->initial) ? ',' : '\0';
  return std::holds_alternative<List TrainConfig::*>(member) ? ',' : '\0';
}

std::span<const ConfigKey> built_in_config_keys() { return kKeys; }

std::span<const ConfigKey> config_keys() {
  return is_user_program() ? std::span<const ConfigKey>(user_program_keys()) : kKeys;
}

const ConfigKey* find_config_key(std::string_view name) {
  const std::string wanted = replaced(name, '-', '_');
  for (const ConfigKey& key : config_keys())
    if (key.name == wanted) return &key;
  return nullptr;
}

void throw_unknown_key(std::string_view where, std::string_view name) {
  if (const std::string reason = why_not_in_user_program(name); !reason.empty())
    throw_error("{}: {}; remove it", where, reason);
  throw_error("{}: unknown key \"{}\";{} see `{} --help`", where, name, suggest_config_key(name), train_command());
}

std::string suggest_config_key(std::string_view wrong) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.emplace_back(key.name);
  return suggestion(wrong, names);
}

std::string empty_element(std::string_view text) {
  return fmt::format("\"{}\" has an empty element; give it a value, or remove it", text);
}

List elements_of(const TrainConfig& config, const ConfigKey& key) {
  return std::visit(Overload{[&](Rules TrainConfig::*m) -> List { return config.*m; },
                             [&](List TrainConfig::*m) { return config.*m; },
                             [&](const detail::SettingRow* row) {
                               const List* list = std::get_if<List>(&user_value(config, *row));
                               return list ? *list : List();
                             },
                             [](auto) { return List(); }},
                    key.member);
}

std::string text_of(const TrainConfig& config, const ConfigKey& key) {
  return std::visit(Overload{[&](const detail::SettingRow* row) {
                               return std::visit([](const auto& value) { return text_of_value(value); },
                                                 user_value(config, *row));
                             },
                             [&](auto m) { return text_of_value(config.*m); }},
                    key.member);
}

std::string assign(TrainConfig& config, const ConfigKey& key, std::string_view text) {
  return std::visit(Overload{[&](const detail::SettingRow* row) {
                               SettingValue value = row->initial;
                               const std::string problem =
                                   std::visit([&](auto& each) { return read_setting(each, key, text); }, value);
                               if (problem.empty()) config.user[row->name] = std::move(value);
                               return problem;
                             },
                             [&](auto m) { return read_setting(config.*m, key, text); }},
                    key.member);
}

ConfigMap to_map(const TrainConfig& config) {
  ConfigMap out;
  for (const ConfigKey& key : config_keys()) out.emplace(key.name, text_of(config, key));
  if (is_user_program()) out.emplace(kProgramEntry, program_name());
  return out;
}

TrainConfig overlay(const TrainConfig& base, const ConfigMap& values, std::string_view where) {
  TrainConfig given;
  given.steps = given.epochs = 0;
  TrainConfig out = base;
  for (const auto& [name, text] : values) {
    const ConfigKey* key = find_config_key(name);
    if (!key) throw_unknown_key(where, name);
    for (TrainConfig* each : {&given, &out})
      if (const std::string problem = assign(*each, *key, text); !problem.empty())
        throw_error("{}: {}: {}", where, key->name, problem);
  }
  if (given.steps > 0 && given.epochs > 0)
    throw_error("{}: both steps ({}) and epochs ({}) are given; keep only one", where, given.steps, given.epochs);
  if (given.steps > 0) out.epochs = 0;
  if (given.epochs > 0) out.steps = 0;
  return out;
}

TrainConfig from_map(const ConfigMap& values, std::string_view where) {
  ConfigMap own = values;
  if (const auto program = own.find(kProgramEntry); program != own.end()) {
    if (!is_user_program())
      throw_error("{}: written by the program {}, with its own task; use that program instead of lockstep", where,
                  printable(program->second));
    own.erase(program);
  }
  return overlay({}, own, where);
}

}  // namespace lockstep
