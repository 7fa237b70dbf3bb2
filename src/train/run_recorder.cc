#include "train/run_recorder.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "base/os/host_name.h"
#include "base/print_stderr.h"
#include "cluster/job_attempts.h"
#include "lane/platform_report.h"
#include "lockstep/devices.h"
#include "lockstep/version.h"
#include "train/run_origin.h"
#include "train/user_program.h"

namespace lockstep {

class RunRecorder::Progress final : public Logger {
 public:
  Progress(std::string folder, RunRecord record, FileSystem& files, detail::LogClock clock)
      : folder_(std::move(folder)), record_(std::move(record)), files_(files), clock_(std::move(clock)) {
    record_.created = record_.started = clock_.unix_seconds();
    take_from_earlier_record();
    write();
  }

  void begin(const RunInfo& info) override {
    record_.step = info.first_step;
    record_.total_steps = info.total_steps;
    drop_later_metrics(info.first_step);
    write();
  }
  void step(int64_t step, const Scalars& scalars) override {
    record_.step = step;
    if (!is_due()) return;
    set_metrics(record_, scalars);
    write();
  }
  void evaluation(int64_t step, const Scalars& scalars) override {
    record_.step = step;
    set_evaluated_metrics(record_, step, scalars);
    if (is_due()) write();
  }
  void end(int64_t step, const Scalars& metrics) override {
    record_.step = step;
    set_metrics(record_, metrics);
  }

  void end_run(RunState state, const std::string& error) {
    record_.state = state;
    record_.error = error;
    record_.ended = clock_.unix_seconds();
    write();
  }

 private:
  bool is_due() const {
    constexpr double kSeconds = 5;
    return clock_.steady_seconds() - written_ >= kSeconds;
  }

  void take_from_earlier_record() {
    try {
      const std::optional<RunRecord> before = read_run_record(files_, folder_);
      if (!before) return;
      record_.created = before->created;
      record_.metrics = before->metrics;
      record_.step = before->step;
      record_.total_steps = before->total_steps;
    } catch (const std::runtime_error&) {  // damaged: replaced
    }
  }

  // Metrics that a run has measured after the step that it resumes from are not its own.
  void drop_later_metrics(int64_t first_step) {
    if (first_step == 0) record_.metrics.clear();
    for (auto& [name, metric] : record_.metrics)
      if (metric.best && metric.best_step > first_step) metric.best.reset();
  }

  void write() {
    record_.updated = clock_.unix_seconds();
    written_ = clock_.steady_seconds();
    try {
      write_run_record(files_, folder_, record_);
    } catch (const std::runtime_error& error) {
      if (std::exchange(warned_, true)) return;
      print_stderr("lockstep: {}; training continues, and {}/run.json is updated when that succeeds again\n",
                   error.what(), folder_);
    }
  }

  const std::string folder_;
  RunRecord record_;
  FileSystem& files_;
  const detail::LogClock clock_;
  double written_ = 0;   // by the steady clock
  bool warned_ = false;  // that the file could not be written
};

RunRecorder::RunRecorder(std::string folder, RunRecord facts, FileSystem& files, detail::LogClock clock)
    : progress_(std::make_shared<Progress>(std::move(folder), std::move(facts), files, std::move(clock))) {}

RunRecorder::~RunRecorder() = default;

std::shared_ptr<Logger> RunRecorder::logger() { return progress_; }

void RunRecorder::end(RunState state, const std::string& error) { progress_->end_run(state, error); }

RunRecord facts_of_this_process() {
  const detail::Environment environment = own_environment();
  const std::string folder = std::filesystem::current_path().string();
  const GitCommit git = git_commit_of(folder);
  RunRecord out{.program = program_name(),
                .version = LOCKSTEP_VERSION,
                .command = own_command_line(),
                .folder = folder,
                .host = own_host_name(),
                .pid = ::getpid(),
                .git_commit = git.commit,
                .git_modified = git.modified,
                .platform = to_string(platform()),
                .hardware = platform_in_use(),
                .devices = device_count(),
                .processes = process_count(),
                .environment = environment_of_run(environment)};
  for (const JobAttempt& job : job_attempts(environment)) out.jobs[job.id] = job.attempt;
  return out;
}

}  // namespace lockstep
