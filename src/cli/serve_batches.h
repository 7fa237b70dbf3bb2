// PredictionBatches: computes the predictions of requests that arrive at about the same time in one batch. submit() is
// safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/stored_run.h"
#include "http/metrics_text.h"
#include "train/predictor.h"

namespace lockstep::cli {

struct BatchLimits {
  int64_t examples = 64;                       // in a batch
  std::chrono::microseconds wait{2000};        // for more requests after the first
  int64_t queue = 1024;                        // examples that wait
  std::chrono::milliseconds deadline{10'000};  // of a request
};

class PredictionBatches {
 public:
  PredictionBatches(const StoredModel& model, DType compute, const BatchLimits& limits);
  // Ends the thread. REQUIRES: no submit() is in progress.
  ~PredictionBatches();

  enum class Outcome { done, queue_full, timed_out };
  struct Result {
    Outcome outcome = Outcome::done;
    std::vector<float> values;  // probabilities [n, classes], or numbers [n]
  };
  // Returns when the examples are computed. Throws Error when computing them failed. REQUIRES: values.size() is a
  // multiple of the size of an example.
  Result submit(std::vector<float> values);

  // Elements of an example.
  int64_t example_size() const { return size_; }

  void add_metrics(http::MetricsText& out) const;

 private:
  struct Job {
    std::vector<float> values;
    int64_t examples = 0;
    std::vector<float> results = {};
    std::string error = {};
    bool done = false;
  };
  using JobPtr = std::shared_ptr<Job>;

  void work();
  std::vector<JobPtr> take(std::unique_lock<std::mutex>& lock);
  void compute(const std::vector<JobPtr>& jobs);

  const StoredModel& model_;
  const BatchLimits limits_;
  Shape shape_;  // of an example
  int64_t size_ = 1;
  Predictor predictor_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, finished_;
  std::deque<JobPtr> waiting_;
  int64_t queued_ = 0, batches_ = 0, examples_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::cli
