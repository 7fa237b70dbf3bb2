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

bool PredictionBatches::submit(Job job) {
  const int64_t examples = examples_of(job);
  {
    const std::lock_guard lock(mutex_);
    const int64_t together = queued_ + examples;
    if (together > limits_.queue) return false;
    if (queued_ > 0 && together * size_ * static_cast<int64_t>(sizeof(float)) > limits_.queue_bytes) return false;
    waiting_.push_back(std::move(job));
    queued_ = together;
  }
  arrived_.notify_all();
  return true;
}

// The jobs of the next batch; empty at the end, and if none that waited is wanted. A job with more examples than a
// batch is computed alone.
std::vector<PredictionBatches::Job> PredictionBatches::take(std::unique_lock<std::mutex>& lock) {
  arrived_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
  if (ended_) return {};
  arrived_.wait_for(lock, limits_.wait, [this] { return ended_ || queued_ >= limits_.examples; });
  std::vector<Job> out;
  int64_t examples = 0;
  while (!waiting_.empty() && (out.empty() || examples + examples_of(waiting_.front()) <= limits_.examples)) {
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    queued_ -= examples_of(job);
    if (!job.is_wanted()) continue;
    examples += examples_of(job);
    out.push_back(std::move(job));
  }
  return out;
}

void PredictionBatches::work() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const std::vector<Job> jobs = take(lock);
    if (jobs.empty()) continue;
    lock.unlock();
    const std::vector<Result> results = compute(jobs);
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].done(results[i]);
    lock.lock();
    ++batches_;
    for (const Job& job : jobs) examples_ += examples_of(job);
  }
}

// Batches are padded to powers of two, so that few versions are compiled.
std::vector<PredictionBatches::Result> PredictionBatches::compute(const std::vector<Job>& jobs) {
  int64_t examples = 0;
  for (const Job& job : jobs) examples += examples_of(job);
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(examples)));
  std::vector<Result> out(jobs.size());
  try {
    std::vector<float> values;
    values.reserve(static_cast<size_t>(padded * size_));
    for (const Job& job : jobs) values.insert(values.end(), job.values.begin(), job.values.end());
    values.resize(static_cast<size_t>(padded * size_));
    Shape shape = shape_;
    shape.insert(shape.begin(), padded);
    const char* field = model_.info.kind == ModelInfo::Kind::table ? "features" : "images";
    const Array outputs = predictor_.outputs({{field, Array::from(std::move(values), shape)}});
    const std::vector<float> all = (model_.info.classes > 0 ? softmax(outputs) : outputs).to_vector<float>();
    const int64_t width = std::max<int64_t>(model_.info.classes, 1);
    auto at = all.begin();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const int64_t count = examples_of(jobs[i]) * width;
      out[i].values.assign(at, at + count);
      at += count;
    }
  } catch (const std::exception& error) {
    for (Result& each : out) each.error = error.what();
  }
  return out;
}

void PredictionBatches::add_metrics(http::MetricsText& out) const {
  const std::lock_guard lock(mutex_);
  out.counter("lockstep_predictions_total", "Examples that were predicted.", static_cast<double>(examples_));
  out.counter("lockstep_batches_total", "Batches that were computed.", static_cast<double>(batches_));
  out.gauge("lockstep_queued_examples", "Examples that wait for a batch.", static_cast<double>(queued_));
}

}  // namespace lockstep::cli
