#include "train/run_files.h"

#include <fmt/format.h>

#include <optional>

#include "base/file.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "train/checkpoint_folder.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

void write_text(const std::string& path, const std::string& text) {
  FileSystem::real().make_dirs(parent_dir(path));
  FileSystem::real().write_atomic(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

constexpr std::string_view kConfigHeader = "# Written by lockstep train: all settings of the run.\n";

// Whether the file exists and was not written by write_config().
bool is_user_file(const std::string& path) {
  FileSystem& files = FileSystem::real();
  if (!files.exists(path)) return false;
  std::vector<uint8_t> bytes(kConfigHeader.size());
  bytes.resize(files.read(path, 0, bytes));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != kConfigHeader;
}

// Moves the checkpoints above a step to a new subfolder previous-N. Returns its path, or an empty string if there were
// no such checkpoints.
std::string move_steps(const std::string& dir, int64_t above) {
  FileSystem& files = FileSystem::real();
  if (dir.empty() || !files.exists(dir)) return "";
  detail::recover_folder(files, dir);  // an interrupted save must not reappear later; the next save reports failures
  std::vector<std::string> old;
  for (const std::string& name : files.list(dir))
    if (const std::optional<int64_t> step = detail::parse_step_name(name); step && *step > above) old.push_back(name);
  if (old.empty()) return "";
  int n = 1;
  while (files.exists(fmt::format("{}/previous-{}", dir, n))) ++n;
  const std::string to = fmt::format("{}/previous-{}", dir, n);
  files.make_dirs(to);
  for (const std::string& name : old) files.rename(dir + "/" + name, to + "/" + name);
  return to;
}

}  // namespace

TrainConfig stored_settings(TrainConfig config) {
  const TrainConfig defaults;
  config.trace = defaults.trace;  // of this start of the run only
  config.trace_steps = defaults.trace_steps;
  if (config.run_dir.empty()) return config;
  config.checkpoint_dir.clear();
  config.log_dir.clear();
  return config;
}

void write_config(TrainConfig config, const std::map<std::string, std::string>& files) {
  config.resume = "auto";
  if (!config.checkpoint_dir.empty())
    for (const auto& [name, text] : files) write_text(config.checkpoint_dir + "/" + name, text);
  for (const std::string& dir : {config.checkpoint_dir, config.run_dir.empty() ? config.log_dir : ""}) {
    if (dir.empty()) continue;
    std::string path = dir + "/config.yaml";
    if (is_user_file(path)) path = dir + "/run-config.yaml";
    write_text(path, std::string(kConfigHeader) + to_yaml(stored_settings(config)));
  }
}

void move_all_checkpoints(const std::string& dir) {
  const std::string to = move_steps(dir, -1);
  if (to.empty()) return;
  print_stderr("{}: the checkpoints of an earlier run were moved to {}\n", program_name(), to);
}

void move_checkpoints_after(const std::string& dir, int64_t step) {
  const std::string to = move_steps(dir, step);
  if (to.empty()) return;
  print_stderr("{}: the checkpoints after step {} were moved to {}\n", program_name(), step, to);
}

}  // namespace lockstep
