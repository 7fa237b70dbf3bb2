#include "jobs/slurm/client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/os/process.h"
#include "base/os/run_program.h"

namespace lockstep {
namespace {

// Runs a Slurm program with times as Unix seconds and messages in English.
ProgramResult run_slurm(std::vector<std::string> argv) {
  const std::vector<std::string> prefix = {"env", "SLURM_TIME_FORMAT=%s", "LC_ALL=C"};
  argv.insert(argv.begin(), prefix.begin(), prefix.end());
  return run_program(argv);
}

// The error message of a program, on one line.
std::string error_text(const ProgramResult& result) {
  std::string out = result.err.empty() ? fmt::format("exit code {}", result.code) : result.err;
  while (!out.empty() && out.back() == '\n') out.pop_back();
  for (size_t at; (at = out.find('\n')) != out.npos;) out.replace(at, 1, "; ");
  return out;
}

bool is_unknown_job(const ProgramResult& result) { return result.err.find("Invalid job id") != std::string::npos; }

// Escapes % in a file name, which Slurm would expand.
std::string escape_percent(const std::string& path) {
  std::string out;
  for (const char c : path) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

SlurmClient::SlurmClient() {
  for (const char* program : {"sbatch", "scontrol", "squeue", "scancel"})
    if (find_program(program).empty())
      throw_error("slurm: {} was not found on the PATH; run this on a login node of the cluster", program);
}

std::string SlurmClient::submit(const Submission& submission) {
  const ProgramResult result = run_slurm({"sbatch", "--parsable", "--chdir=" + submission.folder,
                                          "--output=" + escape_percent(submission.output), "--open-mode=append",
                                          "--comment=" + submission.comment, submission.script});
  const std::string id = result.out.substr(0, result.out.find_first_of(";\n"));  // "12", "12;cluster"
  if (result.code != 0 || !is_number(id))
    throw_error("apply: Slurm rejected the job: {}; the script is {}", error_text(result), submission.script);
  return id;
}

void SlurmClient::check_controller() {
  const ProgramResult result = run_slurm({"squeue", "--noheader", fmt::format("--user={}", ::geteuid())});
  if (result.code != 0)
    throw IoError(
        fmt::format("slurm: the controller does not respond: {}; check it with `scontrol ping`, or use --on "
                    "local to run on this machine",
                    error_text(result)));
}

std::optional<std::string> SlurmClient::find_by_comment(const std::string& comment) {
  const ProgramResult result =
      run_slurm({"squeue", "--noheader", fmt::format("--user={}", ::geteuid()), "--format=%A %k"});
  if (result.code != 0)
    throw IoError(fmt::format("list Slurm's jobs: {}; check the controller with `scontrol ping`", error_text(result)));
  std::string_view rest = result.out;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t space = line.find(' ');
    if (space != line.npos && line.substr(space + 1) == comment) return std::string(line.substr(0, space));
  }
  return std::nullopt;
}

std::optional<SlurmJobInfo> SlurmClient::query(const std::string& id) {
  const ProgramResult result = run_slurm({"scontrol", "--oneliner", "show", "job", id});
  if (result.code == 0) return parse_scontrol(result.out);
  if (!is_unknown_job(result))
    throw IoError(
        fmt::format("query Slurm job {}: {}; check the controller with `scontrol ping`", id, error_text(result)));
  if (find_program("sacct").empty()) return std::nullopt;
  // Older versions have no field Restarts. Without accounting both calls fail.
  for (const char* fields : {"State,ExitCode,Start,End,NodeList,Restarts", "State,ExitCode,Start,End,NodeList"}) {
    const ProgramResult past = run_slurm(
        {"sacct", "--parsable2", "--noheader", "--allocations", "--jobs=" + id, std::string("--format=") + fields});
    if (past.code == 0)
      if (std::optional<SlurmJobInfo> info = parse_sacct(past.out)) return info;
  }
  return std::nullopt;
}

void SlurmClient::cancel(const std::string& id) {
  const ProgramResult result = run_slurm({"scancel", id});
  if (result.code != 0 && !is_unknown_job(result))
    throw IoError(
        fmt::format("cancel Slurm job {}: {}; check the controller with `scontrol ping`", id, error_text(result)));
}

}  // namespace lockstep
