#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/names.h"

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
std::string assign_elements(TrainConfig& config, T TrainConfig::*member, std::string_view text, char separator) {
  T out;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    const std::string_view part = trimmed(text.substr(at, end - at));
    if (part.empty()) return empty_element(text);
    out.emplace_back(part);
    at = end + 1;
  }
  config.*member = std::move(out);
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

template <class T>
std::string assign_value(TrainConfig& config, T TrainConfig::*member, std::string_view text, const Limits& limits,
                         std::string_view kind) {
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
  config.*member = value;
  return "";
}

}  // namespace

std::string ConfigKey::flag() const { return "--" + replaced(name, '_', '-'); }

char ConfigKey::separator() const {
  if (std::holds_alternative<Rules TrainConfig::*>(member)) return ';';
  return std::holds_alternative<List TrainConfig::*>(member) ? ',' : '\0';
}

std::span<const ConfigKey> config_keys() { return kKeys; }

const ConfigKey* find_config_key(std::string_view name) {
  const std::string wanted = replaced(name, '-', '_');
  for (const ConfigKey& key : kKeys)
    if (key.name == wanted) return &key;
  return nullptr;
}

std::string suggest_config_key(std::string_view wrong) {
  std::vector<std::string> names;
  for (const ConfigKey& key : kKeys) names.emplace_back(key.name);
  return suggestion(wrong, names);
}

std::string empty_element(std::string_view text) {
  return fmt::format("\"{}\" has an empty element; give it a value, or remove it", text);
}

List elements_of(const TrainConfig& config, const ConfigKey& key) {
  if (const auto* m = std::get_if<Rules TrainConfig::*>(&key.member)) return config.**m;
  if (const auto* m = std::get_if<List TrainConfig::*>(&key.member)) return config.**m;
  return {};
}

std::string text_of(const TrainConfig& config, const ConfigKey& key) {
  return std::visit(Overload{[&](Text TrainConfig::*m) { return config.*m; },
                             [&](List TrainConfig::*m) { return fmt::format("{}", fmt::join(config.*m, ",")); },
                             [&](Rules TrainConfig::*m) { return fmt::format("{}", fmt::join(config.*m, ";")); },
                             [&](auto m) { return fmt::format("{}", config.*m); }},
                    key.member);
}

std::string assign(TrainConfig& config, const ConfigKey& key, std::string_view text) {
  return std::visit(
      Overload{[&](Text TrainConfig::*m) -> std::string { return config.*m = text, ""; },
               [&](List TrainConfig::*m) { return assign_elements(config, m, text, ','); },
               [&](Rules TrainConfig::*m) { return assign_elements(config, m, text, ';'); },
               [&](Integer TrainConfig::*m) { return assign_value(config, m, text, key.limits, "a whole number"); },
               [&](Unsigned TrainConfig::*m) { return assign_value(config, m, text, at_least(0), "a whole number"); },
               [&](Number TrainConfig::*m) { return assign_value(config, m, text, key.limits, "a number"); },
               [&](Switch TrainConfig::*m) { return assign_value(config, m, text, any(), "true or false"); }},
      key.member);
}

ConfigMap to_map(const TrainConfig& config) {
  ConfigMap out;
  for (const ConfigKey& key : kKeys) out.emplace(key.name, text_of(config, key));
  return out;
}

TrainConfig overlay(const TrainConfig& base, const ConfigMap& values, std::string_view where) {
  TrainConfig given;
  given.steps = given.epochs = 0;
  TrainConfig out = base;
  for (const auto& [name, text] : values) {
    const ConfigKey* key = find_config_key(name);
    if (!key)
      throw_error("{}: unknown key \"{}\";{} see `lockstep train --help`", where, name, suggest_config_key(name));
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

TrainConfig from_map(const ConfigMap& values, std::string_view where) { return overlay({}, values, where); }

}  // namespace lockstep
