#include "train/shared_run_folder.h"

#include <functional>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/os/host_name.h"
#include "cluster/job_attempts.h"
#include "cluster/session.h"
#include "lockstep/devices.h"
#include "train/run_folders.h"
#include "train/run_origin.h"

namespace lockstep {
namespace {

// The result of `decide` in the first process, in all processes. Throws its error in all of them.
std::string decide_in_first_process(const std::function<std::string()>& decide) {
  const auto session = current_session();
  if (!session) return decide();
  std::string text;
  try {
    if (process_index() == 0) text = "+" + decide();
  } catch (const std::runtime_error& error) {
    text = std::string("-") + error.what();
  }
  const std::string decided = session->exchange("run folder", text)[0];
  if (decided.starts_with('-')) throw IoError(decided.substr(1));
  return decided.substr(1);
}

// Throws Error in all processes, and removes the new folder, unless all of them see it.
void check_all_see_folder(const std::string& folder) {
  const auto session = current_session();
  if (!session) return;
  const std::vector<std::string> seen =
      session->exchange("run folder", FileSystem::real().exists(folder) ? "" : own_host_name());
  for (size_t p = 0; p < seen.size(); ++p) {
    if (seen[p].empty()) continue;
    if (process_index() == 0) FileSystem::real().remove_tree(folder);
    throw_error(
        "train: process {} on host {} does not see the folder {} that process 0 has created; give --run-dir with a "
        "folder that all hosts share, or keep nothing with --no-save",
        p, seen[p], folder);
  }
}

}  // namespace

std::string find_shared_run_folder() {
  return decide_in_first_process(
      [] { return find_restarted_run(job_attempts(own_environment()), own_command_line()); });
}

std::string make_shared_run_folder(const std::string& task) {
  const std::string folder = decide_in_first_process([&] { return create_run_folder(task); });
  check_all_see_folder(folder);
  return folder;
}

}  // namespace lockstep
