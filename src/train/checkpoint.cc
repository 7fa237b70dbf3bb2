#include "lockstep/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "cluster/session.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/collective_save.h"
#include "train/manifest.h"

namespace lockstep {
namespace {

using Warn = std::function<void(const std::string&)>;

std::string known_steps(const std::string& dir) {
  if (dir.empty()) return "the run has no checkpoint folder: set --checkpoint-dir";
  const std::vector<int64_t> steps = list_checkpoints(dir);
  return steps.empty() ? fmt::format("{} has no checkpoints", dir)
                       : fmt::format("steps available in {}: {}", dir, fmt::join(steps, ", "));
}

// The steps of all checkpoints in `dir`, complete or not.
std::vector<int64_t> all_steps(const std::string& dir) {
  return detail::list_steps(FileSystem::real(), dir, detail::ListedSteps::all);
}

// Collects a text from every process, so that all of them resume from the same checkpoint.
std::vector<std::string> exchange(const std::string& own) {
  const std::shared_ptr<Session> session = current_session();
  return session ? session->exchange("resume", own) : std::vector<std::string>{own};
}

// The steps that the first process finds, newest first.
std::vector<int64_t> steps_to_try(const std::string& dir) {
  std::vector<int64_t> steps = all_steps(dir);
  std::string text;
  for (const int64_t step : steps) text += std::to_string(step) + " ";
  std::istringstream agreed(exchange(text)[0]);
  steps.assign(std::istream_iterator<int64_t>(agreed), {});
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// The complete checkpoint in `dir` with the highest step.
std::optional<Checkpoint> load_newest(const std::string& dir, const Warn& warn, const LoadOptions& options) {
  for (const int64_t step : steps_to_try(dir)) {
    std::string reason;
    std::optional<Checkpoint> found;
    try {
      found = load_checkpoint(checkpoint_path(dir, step), options);
    } catch (const Error& error) {
      reason = error.what();
    } catch (const IoError& error) {
      reason = error.what();
    }
    for (const std::string& theirs : exchange(reason))
      if (reason.empty()) reason = theirs;
    if (reason.empty()) return found;
    if (warn) warn(fmt::format("resume: skipping step {}: {}", step, reason));
  }
  return std::nullopt;
}

Checkpoint load_step(const std::string& dir, int64_t step, const LoadOptions& options) {
  const std::vector<int64_t> steps = all_steps(dir);
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    throw_error("resume: no checkpoint of step {}; {}", step, known_steps(dir));
  return load_checkpoint(checkpoint_path(dir, step), options);
}

std::optional<int64_t> parse_step(const std::string& text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (text.find_first_not_of("0123456789") != std::string::npos || error != std::errc()) return std::nullopt;
  return step;
}

}  // namespace

std::string save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, const SaveOptions& options) {
  if (dir.empty()) throw_error("save_checkpoint: the folder name is empty; give one");
  if (options.shard_bytes < 1) throw_error("save_checkpoint: shard_bytes is {}; give at least 1", options.shard_bytes);
  FileSystem& files = options.files ? *options.files : FileSystem::real();
  detail::CheckpointContents contents = detail::contents_of(checkpoint, {process_index(), process_count()});
  const std::shared_ptr<Session> session = current_session();
  if (!session) return detail::write_checkpoint(files, dir, std::move(contents), options.shard_bytes).path;
  const auto exchange_texts = [&](const std::string& own) { return session->exchange("save", own); };
  return detail::write_collectively(files, dir, std::move(contents), options.shard_bytes, exchange_texts).path;
}

Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options) {
  return detail::read_checkpoint(options.files ? *options.files : FileSystem::real(), path, options.sharding,
                                 detail::lanes_of, options.wanted);
}

CheckpointInfo inspect_checkpoint(const std::string& path, bool verify) {
  return detail::read_info(FileSystem::real(), path, verify);
}

std::vector<int64_t> list_checkpoints(const std::string& dir) { return detail::list_steps(FileSystem::real(), dir); }

std::string checkpoint_path(const std::string& dir, int64_t step) { return dir + "/" + detail::step_name(step); }

std::optional<Checkpoint> find_checkpoint(const std::string& dir, const std::string& resume, const Warn& warn,
                                          const LoadOptions& options) {
  if (resume.empty() || resume == "none") return std::nullopt;
  if (resume == "auto") {
    std::optional<Checkpoint> found = load_newest(dir, warn, options);
    // A crash cannot damage all checkpoints. Stop, so that the user can check the disk before the run is overwritten.
    if (const size_t damaged = found ? 0 : all_steps(dir).size(); damaged > 0)
      throw_error(
          "resume: {} in {}, but none is complete; restore a backup, or start a new run with --resume none or another "
          "--checkpoint-dir",
          counted(static_cast<int64_t>(damaged), "checkpoint"), dir);
    return found;
  }
  if (const std::optional<int64_t> step = parse_step(resume)) return load_step(dir, *step, options);
  FileSystem& files = FileSystem::real();
  const std::string folder = detail::locate_checkpoint(files, resume);
  if (!files.exists(folder)) {
    if (const std::optional<int64_t> step = detail::parse_step_name(resume)) return load_step(dir, *step, options);
    throw_error("resume: {} does not exist; give \"auto\", \"none\", a step or the path of a checkpoint; {}", resume,
                known_steps(dir));
  }
  if (files.exists(folder + "/" + detail::kManifest)) return load_checkpoint(folder, options);
  if (all_steps(folder).empty())
    throw_error(
        "resume: {} is neither a complete checkpoint (it has no {}) nor a folder of checkpoints; check the path",
        resume, detail::kManifest);
  std::optional<Checkpoint> found = load_newest(folder, warn, options);
  if (!found) throw_error("resume: no checkpoint in {} is complete; use another folder", resume);
  return found;
}

}  // namespace lockstep
