#include "cli/serve_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/start_thread.h"
#include "lockstep/reduce.h"

namespace lockstep::cli {
namespace {

Shape shape_of_example(const ModelInfo& info) {
  if (info.kind == ModelInfo::Kind::table) return {std::ssize(info.features)};
  return {info.rows, info.cols, info.channels};
}

}  // namespace

PredictionBatches::PredictionBatches(const StoredModel& model, DType compute, const BatchLimits& limits)
    : model_(model),
      limits_(limits),
      shape_(shape_of_example(model.info)),
      size_(count(shape_)),
      predictor_(model.task, model.params, compute),
      thread_(start_thread([this] { work(); })) {}

PredictionBatches::~PredictionBatches() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  arrived_.notify_all();
  thread_.join();
}

PredictionBatches::Result PredictionBatches::submit(std::vector<float> values) {
  const auto job = std::make_shared<Job>();
  job->examples = std::ssize(values) / size_;
  job->values = std::move(values);
  std::unique_lock lock(mutex_);
  if (queued_ + job->examples > limits_.queue) return {.outcome = Outcome::queue_full, .values = {}};
  waiting_.push_back(job);
  queued_ += job->examples;
  arrived_.notify_all();
  if (!finished_.wait_for(lock, limits_.deadline, [&] { return job->done; })) {
    if (const auto at = std::ranges::find(waiting_, job); at != waiting_.end()) {
      waiting_.erase(at);
      queued_ -= job->examples;
    }
    return {.outcome = Outcome::timed_out, .values = {}};
  }
  if (!job->error.empty()) throw Error(job->error);
  return {.outcome = Outcome::done, .values = std::move(job->results)};
}

// The jobs of the next batch; empty at the end. A job with more examples than a batch is computed alone.
std::vector<PredictionBatches::JobPtr> PredictionBatches::take(std::unique_lock<std::mutex>& lock) {
  arrived_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
  if (ended_) return {};
  arrived_.wait_for(lock, limits_.wait, [this] { return ended_ || queued_ >= limits_.examples; });
  std::vector<JobPtr> out;
  int64_t examples = 0;
  while (!waiting_.empty() && (out.empty() || examples + waiting_.front()->examples <= limits_.examples)) {
    examples += waiting_.front()->examples;
    out.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  queued_ -= examples;
  return out;
}

void PredictionBatches::work() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const std::vector<JobPtr> jobs = take(lock);
    if (jobs.empty()) continue;
    lock.unlock();
    compute(jobs);
    lock.lock();
    ++batches_;
    for (const JobPtr& job : jobs) {
      job->done = true;
      examples_ += job->examples;
    }
    finished_.notify_all();
  }
}

// Batches are padded to powers of two, so that few versions are compiled.
void PredictionBatches::compute(const std::vector<JobPtr>& jobs) {
  int64_t examples = 0;
  for (const JobPtr& job : jobs) examples += job->examples;
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(examples)));
  std::vector<float> values;
  values.reserve(static_cast<size_t>(padded * size_));
  for (const JobPtr& job : jobs) values.insert(values.end(), job->values.begin(), job->values.end());
  values.resize(static_cast<size_t>(padded * size_));
  Shape shape = shape_;
  shape.insert(shape.begin(), padded);
  try {
    const char* field = model_.info.kind == ModelInfo::Kind::table ? "features" : "images";
    const Array outputs = predictor_.outputs({{field, Array::from(std::move(values), shape)}});
    const std::vector<float> all = (model_.info.classes > 0 ? softmax(outputs) : outputs).to_vector<float>();
    const int64_t width = std::max<int64_t>(model_.info.classes, 1);
    auto at = all.begin();
    for (const JobPtr& job : jobs) {
      job->results.assign(at, at + job->examples * width);
      at += job->examples * width;
    }
  } catch (const std::exception& error) {
    for (const JobPtr& job : jobs) job->error = error.what();
  }
}

void PredictionBatches::add_metrics(http::MetricsText& out) const {
  const std::lock_guard lock(mutex_);
  out.counter("lockstep_predictions_total", "Examples that were predicted.", static_cast<double>(examples_));
  out.counter("lockstep_batches_total", "Batches that were computed.", static_cast<double>(batches_));
  out.gauge("lockstep_queued_examples", "Examples that wait for a batch.", static_cast<double>(queued_));
}

}  // namespace lockstep::cli
