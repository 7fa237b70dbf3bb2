// Loggers receive the metrics of a run: terminal, JSON lines, CSV, TensorBoard. The training thread calls them; they
// are not thread-safe. A logger that cannot write (disk full) prints one warning and stops logging; training
// continues.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/meter.h"

namespace lockstep {

class FileSystem;
struct LoaderBatch;

using Scalars = std::vector<std::pair<std::string, double>>;  // "loss", "accuracy", "examples_per_second", ...

// Describes a run; passed to loggers at its start.
struct RunInfo {
  std::map<std::string, std::string> config = {};
  std::string title = {};   // "mlp on mnist, 8 devices"
  std::string task = {};    // "mlp"
  int64_t total_steps = 0;  // including steps before a restart
  int64_t first_step = 0;   // > 0 for a resumed run
  int64_t steps_per_epoch = 0;
  std::vector<std::string> sets = {"test"};  // that are evaluated: "validation", "test"
};

// Pixels (rows, cols, channels), 0 to 255. One channel is gray, three are RGB.
struct LogImage {
  int64_t rows = 0, cols = 0, channels = 0;
  std::vector<uint8_t> pixels = {};
};

// How often values occur: counts[i] are between limits[i - 1] and limits[i]. The first and the last bucket are not empty.
struct Histogram {
  int64_t count = 0;
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits = {};
  std::vector<int64_t> counts = {};
};
// Counts the finite values. A bucket is as wide as an eighth of the power of two below it; magnitudes below 2^-40 share
// one bucket.
Histogram make_histogram(std::span<const float> values);

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void begin(const RunInfo&) {}
  // Before every step, with its batch.
  virtual void batch(const LoaderBatch&) {}
  // After every step. The loss and the metrics of the task come first, then "learning_rate" and others. Terminal loggers
  // show only some of them.
  virtual void step(int64_t step, const Scalars&) = 0;
  // Before step(): where the time of the run has gone.
  virtual void timing(const Meter::Report&) {}
  // After a checkpoint is complete.
  virtual void checkpoint(int64_t step) { (void)step; }
  // After every evaluation of a set. Names start with "test_" or "validation_".
  virtual void evaluation(int64_t step, const Scalars&) = 0;
  // A message for the user, such as an alarm (`alarm` is true).
  virtual void message(int64_t step, const std::string& text, bool alarm) { (void)step, (void)text, (void)alarm; }
  virtual void end(int64_t step, const Scalars& final_metrics) { (void)step, (void)final_metrics; }

  // Images, histograms and texts by name, such as "gradients/dense/0/w". TensorBoard shows them; other loggers ignore
  // them. The text is Markdown.
  virtual void log_image(const std::string& tag, int64_t step, const LogImage& image) {
    (void)tag, (void)step, (void)image;
  }
  virtual void log_histogram(const std::string& tag, int64_t step, const Histogram& histogram) {
    (void)tag, (void)step, (void)histogram;
  }
  virtual void log_text(const std::string& tag, int64_t step, const std::string& text) {
    (void)tag, (void)step, (void)text;
  }
  // Whether this logger uses images and histograms. The trainer computes them only then.
  virtual bool shows_media() const { return false; }
};
using Loggers = std::vector<std::shared_ptr<Logger>>;

// On a terminal: a progress bar with epoch, loss, metrics of the task, rate and remaining time, as many of them as its
// width allows. On other streams: a line for the first step and then every `every` steps. Evaluations and messages are
// printed as separate lines. Does not close the stream. Throws Error when `every` is less than 1.
struct ConsoleOptions {
  std::FILE* stream = stderr;
  int64_t every = 100;
  bool color = true;  // on a terminal, unless NO_COLOR is set
  bool title = true;  // begin with a line such as "mlp on 8 devices: 4690 steps"
};
std::shared_ptr<Logger> console_logger(const ConsoleOptions& options = {});
// One short line per evaluation, per alarm and at the end.
std::shared_ptr<Logger> compact_logger(std::FILE* stream = stderr);
// In each process of a job, a line per batch and the mean loss of every epoch:
//   Rank 0: epoch: 8/8, batch: 468/469, batch size: 128, batch per host size: 64
//   Rank 0: epoch 8/8, average epoch loss=0.0182
//   Rank 0: training completed.
// After resuming within an epoch, its mean covers the batches since then.
std::shared_ptr<Logger> batch_logger(std::FILE* stream = stderr);
// Reports progress to Kubeflow Trainer from a background thread, at most every five seconds. Null unless
// KUBEFLOW_TRAINER_SERVER_URL is set, as in the pods of a TrainJob; null with a warning if it is not an https URL.
std::shared_ptr<Logger> trainer_status_logger();
// Serves the newest metrics at http://HOST:PORT/metrics in the text format of Prometheus, and /healthz, from a thread of
// its own. Port 0: a free one. Listens at once; throws Error when that is not possible. `labels`: of every sample, such
// as {"run", "2026-01-31"}; "model" and "rank" are added. Every process of a job may have one, at a port of its own.
struct MetricsServerOptions {
  int port = 0;
  std::string host = "127.0.0.1";
  std::map<std::string, std::string> labels = {};
};
class MetricsServer : public Logger {
 public:
  virtual int port() const = 0;
  virtual void set_label(const std::string& name, const std::string& value) = 0;
};
std::shared_ptr<MetricsServer> metrics_server(const MetricsServerOptions& options);
// Write metrics.jsonl, metrics.csv or events.out.tfevents.* in `dir`, which is created. A resumed run appends; CSV and
// JSON lines first drop lines of steps after RunInfo::first_step. A new run renames existing files to
// metrics.jsonl.previous and metrics.csv.previous. Throw IoError immediately when the folder is not writable. `files`
// null: the real file system.
std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem* files = nullptr);
std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem* files = nullptr);
std::shared_ptr<Logger> tensorboard_logger(const std::string& dir, FileSystem* files = nullptr);

// Makes loggers from a comma-separated list of "console", "compact", "batches", "jsonl", "csv", "tensorboard"; "none"
// and an empty list make none. Throws Error for an unknown name, listing the known ones, and when one of the last three
// is given but `dir` is empty.
Loggers make_loggers(const std::string& names, const std::string& dir, const ConsoleOptions& console = {});

}  // namespace lockstep
