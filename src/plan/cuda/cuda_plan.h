// CudaPlan: the execution plan of a lowered program on a GPU. Small instructions are joined into persistent kernels
// (schedule.h, persistent_kernel.h), and the stretches between collectives are captured as graphs. run() returns when
// the work is enqueued. Run it from one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lane/cuda/cuda_arena.h"
#include "lane/cuda/graph_cache.h"
#include "ops/cuda/rounds.h"
#include "plan/cuda/persistent_kernel.h"
#include "plan/cuda/schedule.h"
#include "plan/plan.h"

namespace lockstep {

class CudaPlan final : public Plan {
 public:
  // REQUIRES: `program` came from lower(). `combines`: whether kernels may compute several equations (combine.h).
  CudaPlan(const Program& program, Pool& pool, CudaStream& stream, const PlannerOptions& options = {},
           bool combines = true);

  void run(const void* const* in, void* const* out) override;
  void compile_in_background() const override;
  std::string schedule() const override { return print(schedule_); }

  // Makes the kernel of SubProgram::rounds: a sub-program repeated for several rounds. Returns nullopt if each round
  // must be launched separately.
  struct Rounds {
    RoundsKernel kernel;
    detail::KernelSchedule schedule;
  };
  static std::optional<Rounds> rounds(const Program&, Pool&, CudaStream&, const CudaRounds&);

 private:
  friend class CudaPlanner;
  // Instructions that are enqueued together; captured as a graph if none of them waits.
  struct Section {
    size_t begin = 0, end = 0;
    std::unique_ptr<GraphCache> graphs;  // null: enqueued one by one in every run
  };
  // Device memory for a small input or output that is the same in every run, so that one captured graph serves runs
  // with different pointers. Inputs are copied in before a run, outputs out after it.
  struct StableBuffer {
    bool is_input;
    size_t index;
    BufferPtr memory;
  };
  // Divides the instructions into sections. Returns whether any section is captured.
  bool make_sections();
  // For a trace: without a graph, and timed.
  void enqueue_one_by_one(const Section& section, const std::function<void(size_t, size_t)>& enqueue);
  void enqueue_all(const void* const* in, void* const* out);

  CudaStream& stream_;
  const size_t inputs_;
  detail::GpuSchedule schedule_;
  std::vector<std::shared_ptr<detail::PersistentKernel>> persistent_kernels_;
  std::vector<BufferPtr> device_constants_;
  CudaArena device_arena_;
  std::vector<Section> sections_;
  std::vector<StableBuffer> stable_buffers_;
  bool ran_ = false;
  std::vector<const void*> pointers_;  // of the current run: the key of the captured graphs
  std::vector<void*> outs_;
};

// Lowers a program and makes its plan.
std::shared_ptr<CudaPlan> compile(const Program&, Pool&, CudaStream&, const PlannerOptions& = {});

}  // namespace lockstep
