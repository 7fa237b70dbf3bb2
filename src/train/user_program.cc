#include "train/user_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/runtime_settings.h"
#include "train/config.h"

namespace lockstep {
namespace {

struct ActiveProgram {
  std::string name;
  std::vector<detail::SettingRow> rows;
  std::vector<ConfigKey> keys;
};
ActiveProgram* active_program = nullptr;

// Whether a key configures lockstep's own models and data sets.
bool belongs_to_built_in_models(const ConfigKey& key) {
  return key.group == config::kData || key.group == config::kModel || key.name == "label_smoothing" ||
         key.name == "sample_tokens" || key.name == "sample_prompt";
}

// The trainer's key as a user's program has it. Some help names a model of lockstep or its metrics.
ConfigKey adapted(ConfigKey key) {
  if (key.name == "epochs") key.help = "passes over the training set; 0 without --steps: 10";
  if (key.name == "expect")
    key.help = "exit with code 3 unless the final metrics satisfy this, such as 'test_loss<=0.1'; repeatable";
  return key;
}

std::string default_metavar(const detail::SettingRow& row) {
  if (!row.choices.empty()) return fmt::format("{}", fmt::join(row.choices, "|"));
  if (std::holds_alternative<bool>(row.initial)) return "";
  if (std::holds_alternative<double>(row.initial)) return "X";
  const bool whole = std::holds_alternative<int64_t>(row.initial) || std::holds_alternative<uint64_t>(row.initial);
  return whole ? "N" : "TEXT";
}

// Throws Error if the trainer has a flag of this name.
void check_name_is_free(const std::string& name) {
  const auto is_taken = [&](std::string_view other) { return other == name; };
  const ConfigKey probe{.group = "", .name = name, .member = {}, .limits = {}, .metavar = "", .help = ""};
  bool taken = std::ranges::any_of(built_in_config_keys(), [&](const ConfigKey& key) {
    return is_taken(key.name) && !belongs_to_built_in_models(key);
  });
  for (const detail::RuntimeSetting& setting : detail::runtime_settings()) taken |= setting.flag == probe.flag();
  for (const std::string_view other : {"config", "print_config", "print_schedule", "help", "version", "program"})
    taken |= is_taken(other);
  if (taken)
    throw_error("settings: the trainer already has {}; rename the field \"{}\" of the settings", probe.flag(), name);
}

}  // namespace

UserProgram::UserProgram(std::string name, std::vector<detail::SettingRow> rows) {
  LOCKSTEP_CHECK(!active_program, "a second user program");
  for (const detail::SettingRow& row : rows) check_name_is_free(row.name);
  auto program = std::make_unique<ActiveProgram>(ActiveProgram{std::move(name), std::move(rows), {}});
  for (detail::SettingRow& row : program->rows) {
    if (row.metavar.empty()) row.metavar = default_metavar(row);
    program->keys.push_back({.group = program->name,
                             .name = row.name,
                             .member = &std::as_const(row),
                             .limits = row.limits,
                             .metavar = row.metavar,
                             .help = row.help});
  }
  for (const ConfigKey& key : built_in_config_keys())
    if (!belongs_to_built_in_models(key)) program->keys.push_back(adapted(key));
  active_program = program.release();
  try {
    const TrainConfig defaults;
    TrainConfig scratch;
    for (const ConfigKey& key : active_program->keys)
      if (const std::string problem = assign(scratch, key, text_of(defaults, key)); !problem.empty())
        throw_error("settings: the default of \"{}\" is wrong: {}; correct it", key.name, problem);
  } catch (const Error&) {
    delete std::exchange(active_program, nullptr);
    throw;
  }
}

UserProgram::~UserProgram() { delete std::exchange(active_program, nullptr); }

bool is_user_program() { return active_program != nullptr; }
std::string program_name() { return active_program ? active_program->name : "lockstep"; }
std::string train_command() { return active_program ? active_program->name : "lockstep train"; }

NamedSettings initial_user_settings() {
  NamedSettings out;
  if (active_program)
    for (const detail::SettingRow& row : active_program->rows) out.emplace(row.name, row.initial);
  return out;
}

const std::vector<ConfigKey>& user_program_keys() {
  static const std::vector<ConfigKey> none;
  return active_program ? active_program->keys : none;
}

std::string why_not_in_user_program(std::string_view name) {
  if (!active_program || find_config_key(name)) return "";
  for (const ConfigKey& key : built_in_config_keys())
    if (key.name == name || key.flag().substr(2) == name)
      return fmt::format("{} configures the models and data sets of `lockstep train`, and {} has its own", key.name,
                         active_program->name);
  return "";
}

}  // namespace lockstep
