// A folder of checkpoints. It contains complete checkpoints such as `step_00001000`, and temporary hidden folders:
//
//   .step_00001000.tmp-<host>-<pid>-<n>   being written, or being removed
//   .step_00001000.old-<host>-<pid>-<n>   a checkpoint that is being replaced by a new step_00001000
//
// A crash leaves at most such hidden folders. While step_00001000 is missing, readers use its old folder. The next
// writer restores or removes it. One process may write at a time, any number may read. Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

// Convert between a step and a folder name such as "step_00001000".
std::string step_name(int64_t step);
std::optional<int64_t> parse_step_name(std::string_view name);

enum class ListedSteps {
  with_manifest,
  all,  // all folders with the name of a step, including checkpoints that have lost their manifest
};
// The steps of the checkpoints in `dir`, ascending; empty if the folder does not exist.
std::vector<int64_t> list_steps(FileSystem& files, const std::string& dir,
                                ListedSteps listed = ListedSteps::with_manifest);

// The folder of the checkpoint `path`: the path itself, or a hidden folder if replacing it was interrupted.
std::string locate_checkpoint(FileSystem& files, const std::string& path);

// Cleans up after crashes: restores checkpoints whose replacement was interrupted, and removes partial checkpoints of
// dead processes and of failed saves of this process. Returns the errors.
std::vector<std::string> recover_folder(FileSystem& files, const std::string& dir);

// Removes a checkpoint. Readers never see a part of it under its name. Throws IoError.
void remove_checkpoint(FileSystem& files, const std::string& dir, int64_t step);

// A hidden folder in which a checkpoint is written. The destructor removes it unless it was installed.
class StagedCheckpoint {
 public:
  StagedCheckpoint(FileSystem& files, const std::string& dir, int64_t step);
  ~StagedCheckpoint();
  StagedCheckpoint(const StagedCheckpoint&) = delete;
  StagedCheckpoint& operator=(const StagedCheckpoint&) = delete;

  const std::string& path() const { return path_; }
  // Renames it to its final name, replacing an existing checkpoint. Throws IoError; then the existing one is intact.
  // Returns errors that happened after the new checkpoint was safe. REQUIRES: all its files are written and synced.
  std::vector<std::string> install();

 private:
  FileSystem& files_;
  std::string dir_, target_, name_, old_name_, path_;
  bool installed_ = false;
};

}  // namespace lockstep::detail
