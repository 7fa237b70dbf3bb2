// RunRecord: the file run.json in the folder of a run, with what `lockstep runs` shows: state, times, progress, metrics,
// and where and how the run was started. docs/reference/run-folder.md has the format. Plain values and pure functions,
// safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/os/environment.h"
#include "lockstep/loggers.h"

namespace lockstep {

enum class RunState { running, complete, stopped, failed };
std::string_view to_string(RunState state);

// The values of a metric during a run.
struct RecordedMetric {
  double last = 0;
  std::optional<double> best = {};  // of the evaluations; none for metrics that are only measured in steps
  int64_t best_step = 0;

  bool operator==(const RecordedMetric&) const = default;
};

struct RunRecord {
  RunState state = RunState::running;
  std::string error = {};  // why the run failed
  std::string task = {};   // the model, or the task of a user's program
  std::string dataset = {};
  std::map<std::string, std::string> settings = {};  // all settings as text, by key
  std::string program = {}, version = {};            // "lockstep", "0.1.0"
  std::vector<std::string> command = {};             // the command line
  std::string folder = {};                           // the working directory
  std::string host = {};
  int64_t pid = 0;
  // Seconds since 1970; 0: not yet. A run that is resumed starts again, and keeps the time when it was created.
  double created = 0, started = 0, updated = 0, ended = 0;
  int64_t step = 0, total_steps = 0;
  std::map<std::string, RecordedMetric> metrics = {};
  std::string git_commit = {};  // empty: the working directory is in no repository
  bool git_modified = false;    // files of the repository differ from the commit
  std::string platform = {};    // "cpu", "cuda"
  std::string hardware = {};    // "NVIDIA H200, ..."; empty if there is no choice
  int64_t devices = 0, processes = 1;
  detail::Environment environment = {};          // see environment_of_run()
  std::map<std::string, std::string> jobs = {};  // see job_attempts()

  bool operator==(const RunRecord&) const = default;
};

// Whether a smaller value of the metric is better: of losses, errors, perplexities and bits per byte, by their names.
bool is_lower_better(std::string_view metric);
// Sets the last value of metrics.
void set_metrics(RunRecord& record, const Scalars& metrics);
// Sets the last and the best value of metrics that were evaluated at a step. Values that are not finite are never best.
void set_evaluated_metrics(RunRecord& record, int64_t step, const Scalars& metrics);
// The metric that summarizes a run: accuracy or else loss of the validation set, else of the test set, else of training;
// else the first one that was evaluated. Empty if there is none.
std::string main_metric(const RunRecord& record);
// The best value, or the last one if there is no best one. None if the run has not measured it.
std::optional<double> value_of(const RunRecord& record, const std::string& metric);

std::string to_json(const RunRecord& record);
// Throws Error, naming `where`, for text that is not a record.
RunRecord parse_run_record(const std::string& text, const std::string& where);

// The record of a folder; none if it has no run.json. Throws Error for a damaged one, IoError if it is not readable.
std::optional<RunRecord> read_run_record(FileSystem& files, const std::string& folder);
// Replaces run.json so that readers see either the old or the new one. Does not force it to the disk.
void write_run_record(FileSystem& files, const std::string& folder, const RunRecord& record);

}  // namespace lockstep
