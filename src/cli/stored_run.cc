#include "cli/stored_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "command/checkpoint_argument.h"
#include "train/run_folders.h"
#include "train/state.h"

namespace lockstep::cli {

Checkpoint load_stored_run(const std::string& command, const std::string& path) {
  check_checkpoint_argument(command, path);
  const auto renamed = [&](const std::string& text) {
    constexpr std::string_view kResume = "resume: ";
    return text.starts_with(kResume) ? command + ": " + text.substr(kResume.size()) : text;
  };
  const auto print_note = [&](const std::string& text) { print_stderr("lockstep: {}\n", renamed(text)); };
  // find_checkpoint() reads a value of --resume: without the slash, "100" is a step and "auto" is not a path.
  const bool is_keyword = path == "auto" || path == "none" || path.find_first_not_of("0123456789") == path.npos;
  const LoadOptions options{
      .wanted = [](const std::string& name) { return name.starts_with("params/") || name.starts_with("average/"); }};
  try {
    return find_checkpoint("", is_keyword ? path + "/" : path, print_note, options).value();
  } catch (const Error& error) {
    throw Error(renamed(error.what()));
  }
}

StoredModel load_stored_model(const std::string& command, const std::string& argument, bool average) {
  StoredModel out;
  out.path = find_run(command, argument);
  out.checkpoint = load_stored_run(command, out.path);
  out.step = out.checkpoint.step;
  out.config = from_map(out.checkpoint.config, out.path);
  out.info = load_model_info(out.path, out.config);
  if (!average)
    std::erase_if(out.checkpoint.arrays, [](const auto& each) { return each.first.starts_with("average/"); });
  if (out.info.kind == ModelInfo::Kind::text) return out;
  check_model_info(out.info, out.checkpoint, fmt::format("{}: {}", command, out.path));
  out.task = task_of(out.config, out.info);
  out.params = detail::params_of(out.checkpoint, out.task);
  return out;
}

void check_new_folder(const std::string& command, const std::string& dir) {
  if (dir.empty()) throw_error("{}: the name of the new folder is empty; give one", command);
  std::error_code ignored;
  if (!FileSystem::real().exists(dir)) return;
  if (!std::filesystem::is_directory(dir, ignored))
    throw_error("{}: {} is a file; choose the name of a new folder", command, dir);
  if (!FileSystem::real().list(dir).empty())
    throw_error("{}: the folder {} is not empty; choose another one, or remove it", command, dir);
}

}  // namespace lockstep::cli
