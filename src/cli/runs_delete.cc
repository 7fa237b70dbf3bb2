#include "cli/runs_delete.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "command/help.h"
#include "command/number_check.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct DeleteRunsArguments {
  std::vector<std::string> names;
  int keep = 0;
  bool yes = false, dry_run = false;
};

int64_t bytes_in(const std::string& folder) {
  std::error_code error;
  int64_t out = 0;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (const auto size = at->file_size(ignored); !ignored) out += static_cast<int64_t>(size);
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", number / 1e3);
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", number / 1e6) : fmt::format("{:.1f} GB", number / 1e9);
}

bool is_alive(const ListedRun& run) { return run.record.state == RunState::running && !run.lost; }

// Asks on a terminal. Throws UsageError where there is none.
bool is_confirmed(const std::string& command, const std::string& question) {
  if (::isatty(STDIN_FILENO) != 1)
    throw UsageError(fmt::format("{}: standard input is not a terminal to ask on; give --yes to delete", command));
  write_stderr(question + " [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int delete_runs(const std::string& command, const std::vector<ListedRun>& runs, bool yes) {
  int64_t bytes = 0;
  std::string names;
  for (const ListedRun& run : runs) {
    bytes += bytes_in(run.folder);
    names += fmt::format("  {}\n", run.folder);
  }
  const std::string what = fmt::format("{} ({})", counted(static_cast<int64_t>(runs.size()), "run"), bytes_text(bytes));
  if (!yes) {
    print_stderr("{}", names);
    if (!is_confirmed(command, fmt::format("delete {} with checkpoints and metrics?", what))) {
      print_stderr("lockstep: nothing was deleted\n");
      return kFailed;
    }
  }
  for (const ListedRun& run : runs) {
    FileSystem::real().remove_tree(run.folder);
    fmt::print("deleted {}\n", run.folder);
    std::fflush(stdout);
  }
  return kDone;
}

int delete_named(const DeleteRunsArguments& arguments) {
  const std::string command = "runs delete";
  std::vector<ListedRun> runs;
  for (const std::string& name : arguments.names) {
    const std::string folder = find_run(command, name);
    std::optional<ListedRun> run = read_run(folder);
    if (!run)
      throw_error("{}: {} has no run.json, so it is not the folder of a run; remove it yourself if you want to",
                  command, folder);
    if (is_alive(*run))
      throw_error("{}: {} is running (process {} on host {}); stop it first", command, run->name, run->record.pid,
                  run->record.host);
    const auto same = [&](const ListedRun& other) {
      std::error_code ignored;
      return std::filesystem::equivalent(other.folder, run->folder, ignored);
    };
    if (std::ranges::none_of(runs, same)) runs.push_back(std::move(*run));
  }
  return delete_runs(command, runs, arguments.yes);
}

// All runs but the newest ones, the best one and those that are running.
std::vector<ListedRun> runs_to_prune(int keep) {
  std::vector<std::string> problems;
  const std::vector<ListedRun> all = list_runs(problems);
  for (const std::string& problem : problems) print_stderr("lockstep: {}; it is kept\n", problem);
  const ListedRun* const best = best_run(all);
  std::vector<ListedRun> out;
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i)
    if (&all[i] != best && !is_alive(all[i])) out.push_back(all[i]);
  return out;
}

int prune(const DeleteRunsArguments& arguments) {
  const std::vector<ListedRun> runs = runs_to_prune(arguments.keep);
  if (runs.empty()) {
    print_stderr("lockstep: there is nothing to delete\n");
    return kDone;
  }
  if (!arguments.dry_run) return delete_runs("runs prune", runs, arguments.yes);
  for (const ListedRun& run : runs) fmt::print("would delete {} ({})\n", run.folder, bytes_text(bytes_in(run.folder)));
  return kDone;
}

}  // namespace

void add_runs_delete_command(CLI::App& runs, Action& action) {
  CLI::App* command = runs.add_subcommand("delete", "delete runs with their checkpoints and metrics");
  auto arguments = std::make_shared<DeleteRunsArguments>();
  command->add_option("RUN", arguments->names, "runs: names, folders, last, best")->required()->type_name("RUN");
  command->add_flag("-y,--yes", arguments->yes, "do not ask");
  add_examples(*command, {"lockstep runs delete last", "lockstep runs delete 2026-01-31-mlp-1 --yes"});
  command->callback([arguments, &action] { action = [arguments] { return delete_named(*arguments); }; });
}

void add_runs_prune_command(CLI::App& runs, Action& action) {
  CLI::App* command =
      runs.add_subcommand("prune", "delete old runs, except for the best one and those that are running");
  auto arguments = std::make_shared<DeleteRunsArguments>();
  command->add_option("--keep", arguments->keep, "number of newest runs to keep")
      ->required()
      ->type_name("N")
      ->check(integer_between(0, std::numeric_limits<int>::max()));
  command->add_flag("--dry-run", arguments->dry_run, "only print what would be deleted");
  command->add_flag("-y,--yes", arguments->yes, "do not ask");
  add_examples(*command, {"lockstep runs prune --keep 10 --dry-run", "lockstep runs prune --keep 10 --yes"});
  command->callback([arguments, &action] { action = [arguments] { return prune(*arguments); }; });
}

}  // namespace lockstep::cli
