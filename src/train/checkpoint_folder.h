// A folder of checkpoints: `step_00001000` and its like, each of which is whole, and hidden folders that are on their
// way to be one or to be removed. One process writes at a time; any number may read.
//
//   .step_00001000.tmp-<host>-<pid>-<n>   being written, or being removed
//   .step_00001000.old-<host>-<pid>-<n>   the checkpoint that step_00001000 is about to replace
//
// A crash leaves at most such hidden folders. Readers take the old one for step_00001000 while that is missing; the
// next writer puts it back, or removes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

// "step_00001000", and the step of such a name.
std::string step_name(int64_t step);
std::optional<int64_t> parse_step_name(std::string_view name);

enum class Listed {
  with_manifest,
  all,  // whatever has the name of a step: to find those that have lost theirs
};
// The steps there are, ascending. No error when there is no such folder.
std::vector<int64_t> list_steps(FileSystem& files, const std::string& dir, Listed listed = Listed::with_manifest);

// Where the checkpoint that `path` names really is: there, or in a hidden folder when its replacement was interrupted.
std::string locate_checkpoint(FileSystem& files, const std::string& path);

// Puts back what an interrupted replacement left, and removes what dead processes, or failed saves of this one, left
// half-written. Returns what failed.
std::vector<std::string> tidy(FileSystem& files, const std::string& dir);

// Removes a checkpoint; at no moment is there a part of it under its name. Throws IoError.
void remove_checkpoint(FileSystem& files, const std::string& dir, int64_t step);

// A hidden folder in which a checkpoint is written. It is removed at the end of the scope unless it was installed.
class StagedCheckpoint {
 public:
  StagedCheckpoint(FileSystem& files, const std::string& dir, int64_t step);
  ~StagedCheckpoint();
  StagedCheckpoint(const StagedCheckpoint&) = delete;
  StagedCheckpoint& operator=(const StagedCheckpoint&) = delete;

  const std::string& path() const { return path_; }
  // Gives it its name, replacing the checkpoint that has it. REQUIRES: all its files are written and synced. Throws
  // IoError; then the one before is still there. Returns what failed afterwards, when the new one was safe.
  std::vector<std::string> install();

 private:
  FileSystem& files_;
  std::string dir_, target_, name_, old_name_, path_;
  bool installed_ = false;
};

}  // namespace lockstep::detail
