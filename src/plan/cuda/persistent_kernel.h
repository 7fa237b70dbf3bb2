// PersistentKernel: a schedule's kernel on a GPU. It combines many small rows of a program, because launching kernels
// one after another would cost more than they compute. One thread block per multiprocessor; see CudaFunction::launch()
// for why all of them are resident. Use it from one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plan/cuda/kernel_text.h"

namespace lockstep {
class CudaStream;
}

namespace lockstep::detail {

class PersistentKernel {
 public:
  // Allocates zeroed workspaces for the steps. REQUIRES: phases, and pointer_count(kernel) <= kMostPointers.
  PersistentKernel(CudaStream& stream, KernelSchedule kernel);

  const KernelSchedule& schedule() const;
  // The values that it reads or writes, each once. Pointers are given in this order.
  const std::vector<TaskValue>& values() const;

  void run(void* const* values) const;
  // Starts to compile it on another thread. A later call waits for it.
  void compile_in_background() const;

  // The kernel for several rounds. `run` takes the pointers of round 0, which even rounds advance from; those of odd
  // rounds, given as if for round 0; and the number of rounds, or with a condition where to write it.
  struct Rounds {
    KernelSchedule schedule;
    std::function<void(void* const* even, void* const* odd, int64_t count, uint32_t* executed)> run;
  };
  // Returns nullopt if it would need too many pointers.
  std::optional<Rounds> rounds(const RoundStrides& strides) const;

  // Whether launches may prefetch ahead (prefetch_ahead.h).
  bool prefetches_ahead() const;
  // The number of this thread's launches that did. For tests.
  static int64_t ahead_launch_count();
  // The number of kernels of several rounds made by this thread whose last phase overlaps the next round. For tests.
  static int64_t late_phase_count();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
