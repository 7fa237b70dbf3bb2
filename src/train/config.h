// The settings of a training run. config.def has one row per setting; everything else is generated from that table.
// Values from YAML files, flags and checkpoints are all parsed from text by the same code. Plain values, safe from any
// thread.
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
#include "lockstep/settings.h"
#include "lockstep/sharding_plan.h"
#include "train/user_program.h"

namespace lockstep {

// Settings that do not fit this machine or the data, such as more devices than available or a batch larger than the
// data set. Thrown before anything is started.
class SettingsError : public Error {
 public:
  SettingsError(std::string setting, const std::string& message) : Error(message), key(std::move(setting)) {}
  const std::string key;  // of the setting, such as "batch_size"
};

namespace config {
using Text = std::string;
using Integer = int64_t;
using Unsigned = uint64_t;
using Number = double;
using Switch = bool;
using List = std::vector<std::string>;  // as text: separated by commas
// A list whose elements may contain commas; as text: separated by semicolons.
struct Rules : List {
  using List::List;
};

using Limits = NumberLimits;
using lockstep::above;
using lockstep::at_least;
using lockstep::between;
constexpr Limits any() { return {}; }
constexpr Limits fraction() { return {.low = 0, .high = 1, .high_open = true}; }

// Headings of the help.
inline constexpr std::string_view kData = "Model and data";
inline constexpr std::string_view kModel = "Sizes of gpt and vit";
inline constexpr std::string_view kDevices = "Devices";
inline constexpr std::string_view kLength = "Length of the run";
inline constexpr std::string_view kOptimizer = "Optimizer";
inline constexpr std::string_view kEvaluation = "Evaluation";
inline constexpr std::string_view kCheckpoints = "Checkpoints";
inline constexpr std::string_view kLogging = "Logging";
}  // namespace config

// INVARIANT: at most one of steps and epochs is not 0.
struct TrainConfig {
#define KEY(group, type, name, initial, limits, metavar, help) config::type name = initial;
#include "train/config.def"
#undef KEY
  NamedSettings user = initial_user_settings();  // all settings of the user's program
  bool operator==(const TrainConfig&) const = default;
};

// A row of config.def, or a setting of the user's program.
struct ConfigKey {
  std::string_view group;
  std::string_view name;  // "learning_rate"
  std::variant<config::Text TrainConfig::*, config::Integer TrainConfig::*, config::Unsigned TrainConfig::*,
               config::Number TrainConfig::*, config::Switch TrainConfig::*, config::List TrainConfig::*,
               config::Rules TrainConfig::*, const detail::SettingRow*>
      member;
  config::Limits limits;
  std::string_view metavar;
  std::string_view help;

  std::string flag() const;  // "--learning-rate"
  bool is_switch() const;
  // The separator between the elements of a List or Rules as text; '\0' for other types.
  char separator() const;
};
// The rows of config.def; in a user's program those of the trainer, after the program's own settings.
std::span<const ConfigKey> config_keys();
std::span<const ConfigKey> built_in_config_keys();  // all rows of config.def
// Finds a key by either spelling (learning_rate or learning-rate); null if it does not exist.
const ConfigKey* find_config_key(std::string_view name);
// Throws Error, starting with `where`, for a key that does not exist.
[[noreturn]] void throw_unknown_key(std::string_view where, std::string_view name);
// The reason why a user's program does not have this key of config.def; empty for other names.
std::string why_not_in_user_program(std::string_view name);
// ` did you mean "learning_rate"?` for an unknown key; empty if no key is similar.
std::string suggest_config_key(std::string_view wrong);

// Values as text by key. A double is written as the shortest text that reads back as the same number.
using ConfigMap = std::map<std::string, std::string>;

// The elements of a List or Rules; empty for other types.
config::List elements_of(const TrainConfig& config, const ConfigKey& key);

// The error message for a list with an empty element.
std::string empty_element(std::string_view text);

// Convert the value of a key to text and back. An empty text is an empty list; other lists must not contain empty
// elements. If the text is invalid, assign() returns the reason (`"x" is not a whole number of at least 1`) and changes
// nothing. On success it returns an empty string.
std::string text_of(const TrainConfig& config, const ConfigKey& key);
[[nodiscard]] std::string assign(TrainConfig& config, const ConfigKey& key, std::string_view text);

ConfigMap to_map(const TrainConfig& config);
// Returns `base` with some values replaced. Setting steps clears epochs, and the reverse. Messages start with `where`,
// the origin of the values. Throws Error for an unknown key or invalid value, and when both steps and epochs are given.
TrainConfig overlay(const TrainConfig& base, const ConfigMap& values, std::string_view where);
// Missing keys get their defaults.
TrainConfig from_map(const ConfigMap& values, std::string_view where = "config");

// Parses a YAML map of keys to values; an empty text is valid. Throws Error starting with `filename:line: ` for text
// that is not YAML or not a map, an unknown key (suggesting a similar one), a duplicate key or an invalid value.
// `lines`, if given, receives the position of each key of the file as `filename:line`.
using KeyLines = std::map<std::string, std::string>;
TrainConfig parse_yaml(const std::string& text, const std::string& filename, KeyLines* lines = nullptr);
// All settings as YAML, by group. parse_yaml() returns an equal configuration.
std::string to_yaml(const TrainConfig& config);

// Throws Error when values are invalid, alone or in combination, naming the key, the values and the remedy.
void validate(const TrainConfig& config);

// "data=4,model=-1" -> {{"data", 4}, {"model", -1}}; empty for an empty text. Throws Error on a syntax error, a
// duplicate axis, or more than one size of -1.
std::vector<std::pair<std::string, int64_t>> parse_mesh(std::string_view text);

// The plan described by --shard and --zero. Throws Error for a rule with a syntax error.
ShardingPlan make_sharding_plan(const TrainConfig& config);

// Throws Error when this configuration cannot resume a run that had the `saved` values: the model, data set, pixel
// normalization, sizes of the model, seed, batch size and optimizer must be equal. Names the key and both values.
void check_same_run(const TrainConfig& config, const ConfigMap& saved);

// "*embed*=rate:0.1,decay:0" -> {.pattern = "*embed*", .rate = 0.1, .weight_decay = 0}. After the = come rate:FACTOR,
// decay:X and optimizer:NAME, each at most once, or `frozen` alone. Throws Error on a syntax error.
ParameterGroup parse_parameter_group(std::string_view text);
// The groups described by --group.
std::vector<ParameterGroup> make_parameter_groups(const TrainConfig& config);

// The optimizer with its schedule for a run of `total_steps` steps. REQUIRES: validate(config) passed.
Optimizer make_optimizer(const TrainConfig& config, int64_t total_steps);

// Sets the default number of epochs of the model if neither steps nor epochs is given, and the default of eval_batch.
TrainConfig with_default_length(TrainConfig config);
// The number of examples of an evaluation batch that is not given.
int64_t default_eval_batch(const TrainConfig& config);

// Whether the run has one folder for all that it keeps: run_dir, or a new one in runs/.
bool has_run_folder(const TrainConfig& config);
bool saves_checkpoints(const TrainConfig& config);

// The names for make_loggers(): the configured loggers, or by default console (unless quiet) and, with log_dir, all
// file loggers.
std::string logger_names(const TrainConfig& config);

}  // namespace lockstep
