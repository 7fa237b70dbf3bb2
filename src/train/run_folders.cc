#include "train/run_folders.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/os/host_name.h"
#include "base/printable.h"
#include "train/folder_lock.h"

namespace lockstep {
namespace {

// The local date, such as "2026-01-31".
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

// The name of a task as a part of a file name.
std::string file_name_of(const std::string& task) {
  std::string out;
  for (const char c : task) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    out += plain ? c : '-';
  }
  constexpr size_t kMost = 64;
  return out.empty() ? "run" : out.substr(0, kMost);
}

// One more than the largest number after the prefix among the names of a folder.
int64_t next_number(const std::string& root, const std::string& prefix) {
  int64_t largest = 0;
  for (const std::string& name : FileSystem::real().list(root)) {
    if (!name.starts_with(prefix)) continue;
    const std::string digits = name.substr(prefix.size());
    constexpr size_t kDigits = 9;
    if (digits.empty() || digits.size() > kDigits || digits.find_first_not_of("0123456789") != digits.npos) continue;
    largest = std::max<int64_t>(largest, std::stoll(digits));
  }
  return largest + 1;
}

// Whether the process of a run that has not ended is gone.
bool is_lost(const std::string& folder, const RunRecord& record) {
  if (record.state != RunState::running || is_folder_locked(folder)) return false;
  if (record.host == own_host_name()) return true;
  // The file system may not share the locks of other hosts. A run there updates its record every few seconds.
  constexpr double kSilence = 600;
  return static_cast<double>(std::time(nullptr)) - record.updated > kSilence;
}

constexpr size_t kMaxProblem = 2000;  // bytes

std::string newest_run(const std::string& command) {
  FileSystem& files = FileSystem::real();
  const std::string root = kRunsFolder;
  std::vector<std::string> found;
  if (files.exists(root))
    for (const std::string& name : files.list(root))
      if (files.exists(root + "/" + name + "/config.yaml")) found.push_back(root + "/" + name);
  if (found.empty()) throw_error("{}: there are no runs in {}/; train one first", command, root);
  const auto written = [](const std::string& run) { return std::filesystem::last_write_time(run + "/config.yaml"); };
  return *std::max_element(found.begin(), found.end(),
                           [&](const std::string& a, const std::string& b) { return written(a) < written(b); });
}

std::string folder_of_best_run(const std::string& command) {
  std::vector<std::string> problems;
  const std::vector<ListedRun> runs = list_runs(problems);
  const ListedRun* const best = best_run(runs);
  if (!best) throw_error("{}: no run in {}/ has a metric yet; name a run", command, kRunsFolder);
  return best->folder;
}

// Whether the run may be an earlier try of a command in this attempt of the job.
bool is_earlier_try(const RunRecord& record, const JobAttempt& job) {
  const auto at = record.jobs.find(job.id);
  if (at == record.jobs.end()) return false;
  return at->second != job.attempt || (!job.may_repeat && record.state != RunState::complete);
}

}  // namespace

std::string create_run_folder(const std::string& task) {
  const std::string root = kRunsFolder, prefix = fmt::format("{}-{}-", today(), file_name_of(task));
  std::string folder = root;
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (!error) {
    for (int64_t n = next_number(root, prefix);; ++n) {
      folder = fmt::format("{}/{}{}", root, prefix, n);
      if (std::filesystem::create_directory(folder, error)) return folder;  // false if another process has created it
      if (error) break;
    }
  }
  throw IoError(fmt::format(
      "train: cannot create {} in {}: {}; choose the folder of the run with --run-dir, or keep nothing with --no-save",
      folder, std::filesystem::current_path().string(), error.message()));
}

std::string find_restarted_run(const std::vector<JobAttempt>& jobs, const std::vector<std::string>& command) {
  if (jobs.empty()) return "";
  std::vector<std::string> problems;
  const std::vector<ListedRun> runs = list_runs(problems);
  for (const JobAttempt& job : jobs)
    for (const ListedRun& run : runs)
      if (run.record.command == command && is_earlier_try(run.record, job)) return run.folder;
  return "";
}

std::string find_run(const std::string& command, const std::string& argument) {
  FileSystem& files = FileSystem::real();
  if (argument.empty())
    throw_error("{}: the name of the run is empty; give a folder, a run of {}/, last, or best", command, kRunsFolder);
  if (files.exists(argument)) return argument;
  const std::string root = kRunsFolder;
  if (argument == "last") return newest_run(command);
  if (argument == "best") return folder_of_best_run(command);
  if (argument.find('/') == argument.npos && files.exists(root + "/" + argument)) return root + "/" + argument;
  throw_error("{}: {} does not exist, and {}/ has no run of that name; `lockstep runs` lists them", command, argument,
              root);
}

std::string state_of(const ListedRun& run) { return run.lost ? "lost" : std::string(to_string(run.record.state)); }

std::optional<ListedRun> read_run(const std::string& folder) {
  std::optional<RunRecord> record = read_run_record(FileSystem::real(), folder);
  if (!record) return std::nullopt;
  const bool lost = is_lost(folder, *record);
  const std::string name = std::filesystem::path(folder).lexically_normal().filename().string();
  return ListedRun{.name = name.empty() ? folder : name, .folder = folder, .record = std::move(*record), .lost = lost};
}

std::vector<ListedRun> list_runs(std::vector<std::string>& problems) {
  FileSystem& files = FileSystem::real();
  const std::string root = kRunsFolder;
  std::vector<ListedRun> out;
  if (!files.exists(root)) return out;
  for (const std::string& name : files.list(root)) {
    try {
      if (std::optional<ListedRun> run = read_run(root + "/" + name)) out.push_back(std::move(*run));
    } catch (const std::runtime_error& error) {                  // Error, IoError
      problems.push_back(printable(error.what(), kMaxProblem));  // it has the name of a folder
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ListedRun& a, const ListedRun& b) { return a.record.created < b.record.created; });
  return out;
}

const ListedRun* best_run(const std::vector<ListedRun>& runs, std::string metric) {
  const ListedRun *best = nullptr, *newest = nullptr;
  for (const ListedRun& run : runs)
    if (!main_metric(run.record).empty() && (metric.empty() || run.record.metrics.contains(metric))) newest = &run;
  if (!newest) return nullptr;
  if (metric.empty()) metric = main_metric(newest->record);
  for (const ListedRun& run : runs) {
    const std::optional<double> value = value_of(run.record, metric);
    if (!value || std::isnan(*value) || run.record.dataset != newest->record.dataset) continue;
    const double before = best ? *value_of(best->record, metric) : *value;
    if (!best || (is_lower_better(metric) ? *value < before : *value > before)) best = &run;
  }
  return best;
}

}  // namespace lockstep
