// Settings of a task, declared as a struct of Setting fields:
//
//   struct Settings {
//     Setting<int64_t> hidden{64, "units of the hidden layer", at_least(1)};
//     Setting<double> noise{0.1, "standard deviation of the noise", at_least(0)};
//     Setting<std::string> file{"points.csv", "CSV file with the points", metavar("FILE")};
//   };
//
// train_main() adds each field as a flag (--hidden), as a key of YAML files (hidden) and to the help. Checkpoints store
// the values, and a run can only be resumed with the same ones. Plain values, safe from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/detail/fields.h"

namespace lockstep {

// The interval of valid numbers. An open end is not part of it.
struct NumberLimits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
};
constexpr NumberLimits at_least(double low) { return {.low = low}; }
constexpr NumberLimits above(double low) { return {.low = low, .low_open = true}; }
constexpr NumberLimits between(double low, double high) { return {.low = low, .high = high}; }

// The valid values of a text.
struct SettingChoices {
  std::vector<std::string> words;
};
inline SettingChoices one_of(std::vector<std::string> words) { return {std::move(words)}; }

// The word that the help shows for a value: `--file FILE`.
struct SettingMetavar {
  std::string word;
};
inline SettingMetavar metavar(std::string word) { return {std::move(word)}; }

// A setting that may have another value when a run is resumed.
struct SettingMayChange {};
inline constexpr SettingMayChange may_change;

using SettingValue = std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<std::string>>;
using NamedSettings = std::map<std::string, SettingValue>;  // by name

namespace detail {

// What is known about a setting except its C++ type.
struct SettingRow {
  std::string name;  // "hidden"
  std::string help = {};
  SettingValue initial = {};
  NumberLimits limits = {};
  std::vector<std::string> choices = {};  // of a text; empty: any text
  std::string metavar = {};
  bool may_change = false;
};

inline void apply_option(SettingRow& row, const NumberLimits& limits) { row.limits = limits; }
inline void apply_option(SettingRow& row, const SettingChoices& choices) { row.choices = choices.words; }
inline void apply_option(SettingRow& row, const SettingMetavar& metavar) { row.metavar = metavar.word; }
inline void apply_option(SettingRow& row, const SettingMayChange&) { row.may_change = true; }

// The alternative of SettingValue that holds a T.
template <class T>
struct StoredSetting {
  static_assert(std::is_integral_v<T> || std::is_same_v<T, double>,
                "a Setting holds an integer, a double, a bool, a std::string or a std::vector<std::string>");
  using Type = std::conditional_t<std::is_same_v<T, bool>, bool,
                                  std::conditional_t<std::is_floating_point_v<T>, double,
                                                     std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>>;
};
template <>
struct StoredSetting<std::string> {
  using Type = std::string;
};
template <>
struct StoredSetting<std::vector<std::string>> {
  using Type = std::vector<std::string>;
};

}  // namespace detail

// A setting with its default, its help and options: at_least(), above(), between(), one_of(), metavar(), may_change.
// Converts to its value; *setting is the value, too.
template <class T>
class Setting {
 public:
  using Value = T;

  template <class... Options>
  Setting(T initial, std::string help, const Options&... options) : value_(std::move(initial)) {
    row_.help = std::move(help);
    row_.initial = Stored(value_);
    if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(int64_t))
      row_.limits = between(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    (detail::apply_option(row_, options), ...);
  }

  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }
  operator const T&() const { return value_; }  // NOLINT: used like its value

  Setting& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }

  const detail::SettingRow& row() const { return row_; }  // without the name
  void assign(const SettingValue& value) { value_ = static_cast<T>(std::get<Stored>(value)); }

 private:
  using Stored = typename detail::StoredSetting<T>::Type;

  T value_;
  detail::SettingRow row_;
};

namespace detail {

template <class T>
inline constexpr bool kIsSetting = false;
template <class T>
inline constexpr bool kIsSetting<Setting<T>> = true;

// Calls f(name, setting) for every field of a struct of settings.
template <class S, class F>
void for_each_setting(S& settings, F&& f) {
  const auto fields = tie_fields(settings);
  [&]<size_t... I>(std::index_sequence<I...>) {
    static_assert(
        (kIsSetting<std::remove_cvref_t<std::tuple_element_t<I, std::remove_const_t<decltype(fields)>>>> && ...),
        "every field of the settings must be a Setting<T>");
    (f(std::string(field_name<std::remove_const_t<S>, I>()), std::get<I>(fields)), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(fields)>>>{});
}

template <class S>
std::vector<SettingRow> setting_rows() {
  std::vector<SettingRow> out;
  const S defaults;
  for_each_setting(defaults, [&](std::string name, const auto& setting) {
    out.push_back(setting.row());
    out.back().name = std::move(name);
  });
  return out;
}

// The settings with these values. Missing ones keep their defaults.
template <class S>
S make_settings(const NamedSettings& values) {
  S out;
  for_each_setting(out, [&](const std::string& name, auto& setting) {
    if (const auto found = values.find(name); found != values.end()) setting.assign(found->second);
  });
  return out;
}

}  // namespace detail
}  // namespace lockstep
