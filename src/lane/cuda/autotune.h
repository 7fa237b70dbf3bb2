// Autotuning: timing work on a GPU, and a cache of the choices made by it. The cache is kept in the process and, beside
// compiled kernels, on disk, so that later runs compute the same bits. Timing waits for the GPU; these waits are not
// counted (CudaStream::wait_count()). AutotuneCache is safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "lane/cuda/cuda_stream.h"

namespace lockstep {

// Work captured as a graph of several repetitions, for timing.
class TimedGraph {
 public:
  // Runs the work once, then captures it `times` times. Throws Error if it cannot be captured.
  TimedGraph(CudaStream& lane, const std::function<void()>& work, int times = 10);
  ~TimedGraph();
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;

  // Waits for earlier work, then replays the graph and returns the time of all repetitions.
  double seconds() const;

 private:
  CudaStream& lane_;
  cudaGraphExec_t graph_ = nullptr;
};

// Waits for earlier work, then returns the time to enqueue and finish `work`.
double measure_seconds(CudaStream& lane, const std::function<void()>& work);

// Whether `one` takes less time than `other` in nearly every round. Measures them alternately, because the load on a
// shared GPU changes.
bool is_clearly_faster(const TimedGraph& one, const TimedGraph& other);

// Choices of one kind, keyed by a text that names the problem, the GPU and the library.
class AutotuneCache {
 public:
  // `kind` is the extension of the files.
  explicit AutotuneCache(std::string kind) : kind_(std::move(kind)) {}

  // Returns the choice for `key`; empty if there is none, if it cannot be read, or if is_valid() rejects it.
  std::string find(const std::string& key, const std::function<bool(const std::string&)>& is_valid);
  // Stores a choice unless another thread was first. Returns the choice that is in effect.
  std::string store(const std::string& key, const std::string& choice);
  // Clears the choices in memory; those on disk stay. For tests.
  void clear();

 private:
  std::string file_of(const std::string& key) const;

  const std::string kind_;
  std::mutex mutex_;
  std::map<std::string, std::string> choices_;
};

}  // namespace lockstep
