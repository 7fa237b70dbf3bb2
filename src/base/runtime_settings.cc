#include "base/runtime_settings.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/os/environment.h"
#include "base/runtime_parts.h"

namespace lockstep {
namespace detail {
namespace {

using Kind = SettingValues::Kind;
using Seconds = std::chrono::duration<double>;

constexpr SettingValues text() { return {}; }
// One of the words of the metavar.
constexpr SettingValues choice(std::string_view former_name = {}) {
  return {.kind = Kind::choice, .former_name = former_name};
}
constexpr SettingValues integer(double low, double high) { return {Kind::integer, low, high}; }
constexpr SettingValues seconds(double high) { return {Kind::seconds, 0, high}; }  // above 0
constexpr SettingValues on_off() { return {.kind = Kind::on_off}; }                // the flag means "off"
constexpr SettingValues one() { return {.kind = Kind::one}; }                      // the flag means "1"

constexpr RuntimeSetting kSettings[] = {
#define SETTING(group, flag, variable, values, metavar, initial, option, member, help) \
  {RuntimeSetting::Group::group, flag, variable, values, metavar, initial, option, member, help},
#include "base/runtime_settings.def"
#undef SETTING
};

std::vector<std::string_view> words_of(std::string_view choices) {
  std::vector<std::string_view> out;
  for (size_t bar = 0; bar != choices.npos;) {
    bar = choices.find('|');
    out.push_back(choices.substr(0, bar));
    if (bar != choices.npos) choices.remove_prefix(bar + 1);
  }
  return out;
}

// "a whole number from 1 to 8", "tf32 or full".
std::string expected_values(const RuntimeSetting& setting) {
  switch (setting.values.kind) {
    case Kind::integer:
      return fmt::format("a whole number from {:.0f} to {:.0f}", setting.values.low, setting.values.high);
    case Kind::seconds:
      return fmt::format("a number of seconds above 0 and up to {:.0f}", setting.values.high);
    case Kind::on_off:
      return "on or off";
    case Kind::one:
      return "0 or 1";
    default:
      break;
  }
  const std::vector<std::string_view> words = words_of(setting.metavar);
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return out;
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool accepts(const RuntimeSetting& setting, std::string_view text) {
  switch (setting.values.kind) {
    case Kind::text:
      return !text.empty();
    case Kind::choice:
      for (const std::string_view word : words_of(setting.metavar))
        if (word == text) return true;
      return !text.empty() && text == setting.values.former_name;
    case Kind::integer: {
      const std::optional<int64_t> value = parse_number<int64_t>(text);
      return value && static_cast<double>(*value) >= setting.values.low &&
             static_cast<double>(*value) <= setting.values.high;
    }
    case Kind::seconds: {
      const std::optional<double> value = parse_number<double>(text);
      return value && *value > 0 && *value <= setting.values.high;
    }
    case Kind::on_off:
      return text == "on" || text == "off";
    case Kind::one:
      return text == "0" || text == "1";
  }
  return false;
}

// A part of the runtime: options of configure(), and which options have been used.
struct Configured {
  std::mutex mutex;
  RuntimeOptions options;
  std::array<bool, std::size(kSettings)> used = {};
};

std::string to_text(int64_t value) { return std::to_string(value); }
std::string to_text(bool value) { return value ? "on" : "off"; }
std::string to_text(const std::string& value) { return value; }
std::string to_text(Seconds value) { return fmt::format("{}", value.count()); }

template <class T>
T from_text(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>)
    return text == "on";
  else if constexpr (std::is_same_v<T, std::string>)
    return text;
  else if constexpr (std::is_same_v<T, Seconds>)
    return Seconds(*parse_number<double>(text));
  else
    return *parse_number<T>(text);
}

// REQUIRES: a row has this member.
template <class T>
size_t index_of(std::optional<T> RuntimeOptions::*member) {
  for (size_t i = 0; i < std::size(kSettings); ++i)
    if (const auto* const own = std::get_if<std::optional<T> RuntimeOptions::*>(&kSettings[i].member))
      if (*own == member) return i;
  LOCKSTEP_CHECK(false, "a member of RuntimeOptions has no row in runtime_settings.def");
  return 0;
}

template <class T>
T value_in_use(std::optional<T> RuntimeOptions::*member) {
  const size_t index = index_of(member);
  const RuntimeSetting& setting = kSettings[index];
  {
    Configured& state = runtime_part<Configured>();
    const std::lock_guard lock(state.mutex);
    state.used[index] = true;
    if (state.options.*member) return *(state.options.*member);
  }
  const std::optional<std::string> text = environment_variable(setting.variable.data());
  if (!text) return from_text<T>(setting.values.kind == Kind::text ? "" : std::string(setting.initial));
  if (const std::string error = variable_error(setting, *text); !error.empty()) throw Error(error);
  return from_text<T>(*text);
}

// Calls body(index, member) for each option that has a value.
template <class F>
void for_each_given(const RuntimeOptions& options, F body) {
  for (size_t i = 0; i < std::size(kSettings); ++i)
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>)
            if (options.*member) body(i, member);
        },
        kSettings[i].member);
}

}  // namespace

std::string RuntimeSetting::variable_value(const std::string& text) const {
  return values.kind == Kind::on_off ? "off" : values.kind == Kind::one ? "1" : text;
}

std::span<const RuntimeSetting> runtime_settings() { return kSettings; }

std::string setting_error(const RuntimeSetting& setting, std::string_view text) {
  if (accepts(setting, text)) return "";
  if (setting.values.kind == Kind::text) return "its value is empty";
  return fmt::format("\"{}\" is not {}", text, expected_values(setting));
}

std::string variable_error(const RuntimeSetting& setting, std::string_view text) {
  if (text.empty() || accepts(setting, text)) return "";
  return fmt::format("environment: {} is \"{}\"; set it to {}, or unset it", setting.variable, text,
                     expected_values(setting));
}

int64_t runtime_option(std::optional<int64_t> RuntimeOptions::*member) { return value_in_use(member); }
bool runtime_option(std::optional<bool> RuntimeOptions::*member) { return value_in_use(member); }
std::string runtime_option(std::optional<std::string> RuntimeOptions::*member) { return value_in_use(member); }
Seconds runtime_option(std::optional<Seconds> RuntimeOptions::*member) { return value_in_use(member); }

std::string cache_root() {
  if (std::string chosen = runtime_option(&RuntimeOptions::cache_dir); !chosen.empty()) return chosen;
  // The XDG specification says to ignore relative paths.
  if (const auto xdg = environment_variable("XDG_CACHE_HOME"); xdg && xdg->starts_with('/')) return *xdg + "/lockstep";
  if (const auto home = environment_variable("HOME")) return *home + "/.cache/lockstep";
  return "";
}

void set_runtime_options(std::string_view function, const RuntimeOptions& options) {
  Configured& state = runtime_part<Configured>();
  const std::lock_guard lock(state.mutex);
  for_each_given(options, [&](size_t index, auto member) {
    const RuntimeSetting& setting = kSettings[index];
    const std::string text = to_text(*(options.*member));
    const std::string_view name = setting.option.substr(setting.option.rfind(':') + 1);
    if (const std::string error = setting_error(setting, text); !error.empty())
      throw_error("{}: {}: {}; change it, or leave it unset", function, name, error);
    if (state.used[index])
      throw_error("{}: {} is \"{}\", but it is already in use; call configure() before anything that uses devices",
                  function, name, text);
  });
  for_each_given(options, [&](size_t, auto member) { state.options.*member = options.*member; });
}

}  // namespace detail

void configure(const RuntimeOptions& options) { detail::set_runtime_options("configure", options); }

}  // namespace lockstep
