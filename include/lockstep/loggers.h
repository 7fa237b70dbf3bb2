// Where a run's numbers go: the terminal, JSON lines, CSV, TensorBoard. Loggers are called by the thread that trains.
// A logger that cannot write any more (disk full) says so once and is silent from then on; training goes on.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class FileSystem;
struct LoaderBatch;

using Scalars = std::vector<std::pair<std::string, double>>;  // "loss", "accuracy", "examples_per_second", ...

// What a run is, said once at its start.
struct RunInfo {
  std::map<std::string, std::string> config = {};
  std::string title = {};   // "mlp on mnist, 8 devices"
  int64_t total_steps = 0;  // of the whole run
  int64_t first_step = 0;   // > 0 when resumed
  int64_t steps_per_epoch = 0;
};

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void begin(const RunInfo&) {}
  // Before every step: what it will be made of.
  virtual void batch(const LoaderBatch&) {}
  // After every step. Terminal loggers choose which ones to show.
  virtual void step(int64_t step, const Scalars&) = 0;
  // After every evaluation: names start with "test_".
  virtual void evaluation(int64_t step, const Scalars&) = 0;
  // A message for people: "saved ...", alarms (`alarm` is true).
  virtual void message(int64_t step, const std::string& text, bool alarm) { (void)step, (void)text, (void)alarm; }
  virtual void end(int64_t step, const Scalars& final_metrics) { (void)step, (void)final_metrics; }
};
using Loggers = std::vector<std::shared_ptr<Logger>>;

// A progress bar with rate, loss, accuracy and time left when `stream` is a terminal; else a line for the first step
// and then every `every` steps. Evaluations and messages are lines of their own. The stream is not closed. Throws Error
// when `every` is less than 1.
struct ConsoleOptions {
  std::FILE* stream = stderr;
  int64_t every = 100;
  bool color = true;  // on a terminal, unless NO_COLOR is set
};
std::shared_ptr<Logger> console_logger(const ConsoleOptions& options = {});
// One short line per evaluation, per alarm and at the end.
std::shared_ptr<Logger> compact_logger(std::FILE* stream = stderr);
// Every batch and the mean loss of every epoch, of each process of a job: `Rank 0: epoch: 8/8, batch: 468/469, batch
// size: 128, batch per host size: 64`, `Rank 0: epoch 8/8, average epoch loss=0.0182`, `Rank 0: training completed.`.
// Of an epoch that was resumed the mean is that of the batches since.
std::shared_ptr<Logger> batch_logger(std::FILE* stream = stderr);
// Tells Kubeflow Trainer how far the run is, at most every five seconds and by a thread of its own; null unless
// KUBEFLOW_TRAINER_SERVER_URL is set, as in the pods of a TrainJob. One that is no https address is a line on stderr.
std::shared_ptr<Logger> trainer_status_logger();
// Files in `dir`, which is made: metrics.jsonl, metrics.csv, events.out.tfevents.*. A resumed run appends (CSV, JSON
// lines: after dropping lines of later steps than `RunInfo::first_step`); a new run moves what it finds to
// metrics.jsonl.previous and metrics.csv.previous. Throw IoError at once when the folder cannot be written. `files`
// null: the disk.
std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem* files = nullptr);
std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem* files = nullptr);
std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem* files = nullptr);

// By name: "console", "compact", "batches", "jsonl", "csv", "tensorboard", comma separated; "none" or nothing is no
// logger. Throws Error with the list for another, and when one of the last three is named and `dir` is empty.
Loggers make_loggers(const std::string& names, const std::string& dir, const ConsoleOptions& console = {});

}  // namespace lockstep
