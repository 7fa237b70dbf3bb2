// What is found out by measuring on a GPU: how long work takes there, and what was chosen by that, which is remembered
// in the process and, beside compiled kernels, on disk, so that runs to come compute the same bits. Measuring waits for
// the GPU, which is not counted (CudaLane::waits()). Choices are safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// Work that is queued many times over, to be timed.
class Timed {
 public:
  // Does the work, and records it that many times. Throws Error when it cannot be recorded.
  Timed(CudaLane& lane, const std::function<void()>& work, int times = 10);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

  // How long all of it takes, once the GPU has done what was queued before.
  double seconds() const;

 private:
  CudaLane& lane_;
  cudaGraphExec_t graph_ = nullptr;
};

// How long the work takes when it is queued now, and done.
double seconds_of(CudaLane& lane, const std::function<void()>& work);

// Does one take less time than the other, nearly each time? In turns: others may use the GPU meanwhile, now more and
// now less.
bool is_clearly_faster(const Timed& one, const Timed& other);

// Choices of one kind, by what was chosen for: a text that names it, the GPU and the library.
class Choices {
 public:
  // Their files end in .`kind`.
  explicit Choices(std::string kind) : kind_(std::move(kind)) {}

  // Empty when nothing was chosen, or it cannot be read, or is not what it should be: then it is to be chosen anew.
  std::string find(const std::string& what, const std::function<bool(const std::string&)>& is_choice);
  // Returns what is chosen from now on: what another thread chose, if it was the first.
  std::string keep(const std::string& what, const std::string& choice);
  // What the process remembers; what is on disk stays. For tests.
  void forget();

 private:
  std::string file_of(const std::string& what) const;

  const std::string kind_;
  std::mutex mutex_;
  std::map<std::string, std::string> chosen_;
};

}  // namespace lockstep
