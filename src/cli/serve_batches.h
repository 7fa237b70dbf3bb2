// PredictionBatches: computes the predictions of requests that arrive at about the same time in one batch. submit() is
// safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/stored_run.h"
#include "http/metrics_text.h"
#include "train/predictor.h"

namespace lockstep::cli {

struct BatchLimits {
  int64_t examples = 64;                    // in a batch
  std::chrono::microseconds wait{2000};     // for more requests after the first
  int64_t queue = 1024;                     // examples that wait, and of a request
  int64_t queue_bytes = int64_t{64} << 20;  // of the examples that wait; a larger request is taken if none do
};

class PredictionBatches {
 public:
  PredictionBatches(const StoredModel& model, DType compute, const BatchLimits& limits);
  // Ends the thread, and drops the jobs that wait. REQUIRES: no submit() is in progress.
  ~PredictionBatches();

  struct Result {
    std::vector<float> values = {};  // probabilities [n, classes], or numbers [n]
    std::string error = {};          // why they could not be computed; else empty
  };
  struct Job {
    std::vector<float> values;
    std::function<bool()> is_wanted;          // whether to compute it when its turn comes
    std::function<void(const Result&)> done;  // called by the thread that computes; throws nothing
  };
  // Returns false if too many examples wait. REQUIRES: job.values.size() is a multiple of the size of an example.
  bool submit(Job job);

  // Elements of an example.
  int64_t example_size() const { return size_; }
  // Examples of a request.
  int64_t most_examples() const { return limits_.queue; }

  void add_metrics(http::MetricsText& out) const;

 private:
  int64_t examples_of(const Job& job) const { return std::ssize(job.values) / size_; }
  void work();
  std::vector<Job> take(std::unique_lock<std::mutex>& lock);
  std::vector<Result> compute(const std::vector<Job>& jobs);

  const StoredModel& model_;
  const BatchLimits limits_;
  Shape shape_;  // of an example
  int64_t size_ = 1;
  Predictor predictor_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Job> waiting_;
  int64_t queued_ = 0, batches_ = 0, examples_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::cli
