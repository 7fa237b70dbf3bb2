#include "train/run_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "base/file.h"
#include "base/os/run_program.h"

namespace lockstep {
namespace {

constexpr std::string_view kSecretWords[] = {"TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY"};
constexpr std::string_view kRecordedPrefixes[] = {"LOCKSTEP_", "CUDA_", "OMP_", "OPENBLAS_", "NCCL_"};
constexpr std::string_view kRecordedNames[] = {
    "SLURM_JOB_ID",  "SLURM_JOB_NAME", "SLURM_CLUSTER_NAME",  "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST",
    "SLURM_NTASKS",  "SLURM_STEP_ID",  "SLURM_RESTART_COUNT", "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX",
    "NUM_PROCESSES", "PROCESS_ID",     "COORDINATOR_ADDRESS", "OMPI_COMM_WORLD_SIZE"};

bool is_in_repository(const std::string& folder) {
  std::error_code ignored;
  for (std::filesystem::path at = std::filesystem::absolute(folder, ignored);; at = at.parent_path()) {
    if (std::filesystem::exists(at / ".git", ignored)) return true;
    if (!at.has_parent_path() || at == at.parent_path()) return false;
  }
}

}  // namespace

GitCommit git_commit_of(const std::string& folder) {
  if (!is_in_repository(folder)) return {};
  GitCommit out;
  try {
    // Without optional locks, git does not write to the repository.
    const ProgramResult result = run_program({"git", "--no-optional-locks", "-C", folder, "status", "--porcelain=v2",
                                              "--branch", "--untracked-files=no", "--ignore-submodules"},
                                             {.deadline = std::chrono::seconds(2)});
    if (result.code != 0) return {};
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kCommit = "# branch.oid ";
      if (line.starts_with(kCommit))
        out.commit = line.substr(kCommit.size());
      else if (!line.starts_with("#"))
        out.modified = true;
    }
  } catch (const std::exception&) {  // no git, or no answer in time: the run does not depend on it
    return {};
  }
  if (out.commit == "(initial)") return {};  // a repository without a commit
  return out;
}

std::vector<std::string> own_command_line() {
  std::vector<std::string> out;
  try {
    constexpr int64_t kMaxBytes = int64_t{4} << 20;
    std::istringstream words(read_user_file("/proc/self/cmdline", kMaxBytes));
    for (std::string word; std::getline(words, word, '\0');) out.push_back(word);
  } catch (const std::runtime_error&) {  // a system without /proc
  }
  return out;
}

detail::Environment environment_of_run(const detail::Environment& environment) {
  detail::Environment out;
  for (const auto& [name, value] : environment) {
    const auto holds = [&name = name](std::string_view word) { return name.find(word) != name.npos; };
    const auto starts = [&name = name](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kSecretWords, holds)) continue;
    if (std::ranges::any_of(kRecordedPrefixes, starts) ||
        std::ranges::find(kRecordedNames, name) != std::end(kRecordedNames))
      out.emplace(name, value);
  }
  return out;
}

}  // namespace lockstep
