// The settings of a training run. config.def lists each once; the rest follows from that table. Values come from YAML
// files, flags and checkpoints, always as text under the key's name, so that all of them are read in one way.
// Plain values, safe from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/optimizers.h"
#include "lockstep/sharding_plan.h"

namespace lockstep {

// Settings that do not fit this machine or the data: more devices than there are, a batch larger than the data set.
// Nothing was started.
class SettingsError : public Error {
 public:
  using Error::Error;
};

namespace config {
using Text = std::string;
using Integer = int64_t;
using Unsigned = uint64_t;
using Number = double;
using Switch = bool;
using List = std::vector<std::string>;  // as text: comma separated
// The same for elements that have commas themselves; as text: separated by semicolons.
struct Rules : List {
  using List::List;
};

// Where a number must lie; `open` ends do not belong to it.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
};
constexpr Limits any() { return {}; }
constexpr Limits at_least(double low) { return {.low = low}; }
constexpr Limits above(double low) { return {.low = low, .low_open = true}; }
constexpr Limits between(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits fraction() { return {.low = 0, .high = 1, .high_open = true}; }

// Groups of the help.
inline constexpr std::string_view kData = "Model and data";
inline constexpr std::string_view kDevices = "Devices";
inline constexpr std::string_view kLength = "Length of the run";
inline constexpr std::string_view kOptimizer = "Optimizer";
inline constexpr std::string_view kEvaluation = "Evaluation";
inline constexpr std::string_view kCheckpoints = "Checkpoints";
inline constexpr std::string_view kLogging = "Logging";
}  // namespace config

// At most one of steps and epochs is not 0.
struct TrainConfig {
#define KEY(group, type, name, initial, limits, metavar, help) config::type name = initial;
#include "train/config.def"
#undef KEY
  bool operator==(const TrainConfig&) const = default;
};

// A row of the table.
struct ConfigKey {
  std::string_view group;
  std::string_view name;  // "learning_rate"
  std::variant<config::Text TrainConfig::*, config::Integer TrainConfig::*, config::Unsigned TrainConfig::*,
               config::Number TrainConfig::*, config::Switch TrainConfig::*, config::List TrainConfig::*,
               config::Rules TrainConfig::*>
      member;
  config::Limits limits;
  std::string_view metavar;
  std::string_view help;

  std::string flag() const;  // "--learning-rate"
  // Of a List or Rules: what separates its elements as text. '\0' for the others.
  char separator() const;
};
std::span<const ConfigKey> config_keys();
// By either spelling; null when there is none.
const ConfigKey* find_config_key(std::string_view name);
// ` did you mean "learning_rate"?` for a name that is none.
std::string suggest_config_key(std::string_view wrong);

// Values as text by key. Doubles are the shortest text that gives the same number.
using ConfigMap = std::map<std::string, std::string>;

// The elements of a list; empty for other keys.
config::List elements_of(const TrainConfig& config, const ConfigKey& key);

// What is wrong with the text of a list in which an element is empty.
std::string empty_element(std::string_view text);

// The value of a key as text, and back. An empty text is an empty list, and no other text has empty elements. assign()
// returns what is wrong with the text (`"x" is not a whole number of at least 1`), then without having changed
// anything, or nothing.
std::string text_of(const TrainConfig& config, const ConfigKey& key);
[[nodiscard]] std::string assign(TrainConfig& config, const ConfigKey& key, std::string_view text);

ConfigMap to_map(const TrainConfig& config);
// Lays values over a configuration; steps replace its epochs, and epochs its steps. `where` they come from begins every
// message. Throws Error for a wrong key or value, and when both steps and epochs are given.
TrainConfig overlay(const TrainConfig& base, const ConfigMap& values, std::string_view where);
// Keys that are missing have their defaults.
TrainConfig from_map(const ConfigMap& values, std::string_view where = "config");

// A YAML map of keys to values. Throws Error with `filename:line: ` for what is no YAML, no such map, an unknown key
// (with the nearest right one), one given twice, or a wrong value. An empty text is fine.
// `places` receives where each key of the file is, as `filename:line`.
using KeyPlaces = std::map<std::string, std::string>;
TrainConfig parse_yaml(const std::string& text, const std::string& filename, KeyPlaces* places = nullptr);
// All keys, by group; parse_yaml() makes the same configuration of it.
std::string to_yaml(const TrainConfig& config);

// Throws Error when values do not make sense, alone or together, naming the key, the values and the remedy.
void validate(const TrainConfig& config);

// "data=4,model=-1" -> {{"data", 4}, {"model", -1}}; empty for an empty text. Throws Error for another form, an axis
// given twice, and several sizes of -1.
std::vector<std::pair<std::string, int64_t>> parse_mesh(std::string_view text);

// What --shard, --zero say. Throws Error for a rule of another form.
ShardingPlan make_plan(const TrainConfig& config);

// Throws Error when a run of this configuration cannot be the continuation of one with those values, because the
// model, the data set, the scale of its pixels, the seed, the batch size or the optimizer differ; names the key and
// both values.
void check_same_run(const TrainConfig& config, const ConfigMap& saved);

// The optimizer with its schedule, for a run of so many steps. REQUIRES: validate(config) passed.
Optimizer make_optimizer(const TrainConfig& config, int64_t total_steps);

// With the length of the run that its model needs where none is given.
TrainConfig with_length(TrainConfig config);

// What make_loggers() takes: those asked for, else console (not when quiet) and, with log_dir, all kinds of files.
std::string logger_names(const TrainConfig& config);

}  // namespace lockstep
