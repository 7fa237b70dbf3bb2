#include "plan/cuda/cuda_plan.h"

#include "hardware/gpu_launch.h"
#include "passes/passes.h"
#include "plan/cuda/combine.h"
#include "plan/cuda/cuda_planner.h"
#include "plan/cuda/cuda_trace.h"
#include "plan/cuda/gather_small.h"

namespace lockstep {

namespace {

// Programs in which nothing is combined stay as they are: most are one persistent kernel.
Program prepared(const Program& program) {
  Program combined = combine(program);
  return combined == program ? combined : gather_small(combined);
}

}  // namespace

CudaPlan::CudaPlan(const Program& program, Pool& pool, CudaStream& stream, const PlannerOptions& options, bool combines)
    : Plan(options.arena), stream_(stream), inputs_(program.inputs.size()), device_arena_(stream) {
  stream.enter();
  const Program ordered = combines ? prepared(program) : program;
  CudaPlanner(ordered, pool, options, *this).run();
}

bool CudaPlan::make_sections() {
  // Launching a graph costs as much as launching a few kernels.
  constexpr size_t kGraphCost = 3;
  bool captured = false;
  for (size_t begin = 0, end = 0; begin < instructions_.size(); begin = end) {
    while (end < instructions_.size() && instructions_[end].waits == instructions_[begin].waits) ++end;
    const bool capture = !instructions_[begin].waits && end - begin > kGraphCost;
    sections_.push_back({begin, end, capture ? std::make_unique<GraphCache>(stream_) : nullptr});
    captured |= capture;
  }
  return captured;
}

void CudaPlan::compile_in_background() const {
  for (const auto& kernel : persistent_kernels_) kernel->compile_in_background();
}

void CudaPlan::run(const void* const* in, void* const* out) {
  const CudaArena::Run arena(device_arena_, work_bytes_);
  if (work_bytes_ > 0) move_arena(arena.data());
  if (instructions_.empty()) return;
  try {
    enqueue_all(in, out);
  } catch (...) {
    abandon();
    throw;
  }
}

void CudaPlan::enqueue_one_by_one(const Section& section, const std::function<void(size_t, size_t)>& enqueue) {
  for (size_t i = section.begin; i < section.end; ++i) {
    const Op* const op = instructions_[i].op;
    const auto kind = op && op->is_collective() ? TraceSpan::Kind::collective : TraceSpan::Kind::compute;
    enqueue_traced(stream_, kind, std::string(name_of(instructions_[i])), [&] { enqueue(i, i + 1); });
  }
}

void CudaPlan::enqueue_all(const void* const* in, void* const* out) {
  stream_.enter();
  if (!ran_ && instructions_.size() > 1) compile_in_background();  // in parallel, not one by one as they are enqueued
  GpuLaunch launch(instructions_.size(), name_of(instructions_.front()), name_of(instructions_.back()));
  const auto enqueue = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      launch.set_current_op(i, name_of(instructions_[i]));
      instructions_[i].kernel(instructions_[i].in.data(), instructions_[i].out.data());
    }
  };
  const bool traces = Trace::is_on() && !stream_.capturing();
  if (stream_.capturing()) {
    set_pointers(in, out);
    return enqueue(0, instructions_.size());
  }
  pointers_.assign(in, in + inputs_);
  pointers_.insert(pointers_.end(), out, out + donated_input_.size());
  for (const StableBuffer& buffer : stable_buffers_) {
    const void*& pointer = pointers_[buffer.is_input ? buffer.index : inputs_ + buffer.index];
    if (buffer.is_input) stream_.copy(buffer.memory->data(), pointer, buffer.memory->size());
    pointer = buffer.memory->data();
  }
  outs_.resize(donated_input_.size());
  for (size_t j = 0; j < outs_.size(); ++j) outs_[j] = const_cast<void*>(pointers_[inputs_ + j]);
  set_pointers(pointers_.data(), outs_.data());
  pointers_.push_back(arena_base_);
  for (const Section& section : sections_) {
    if (traces) [[unlikely]]
      enqueue_one_by_one(section, enqueue);
    else if (section.graphs)
      section.graphs->run(pointers_, [&] { enqueue(section.begin, section.end); });
    else
      enqueue(section.begin, section.end);
    // The first run loads kernels, one lane at a time, and loading may synchronize with the GPU. It must not wait for a
    // collective with a lane that loads later, so drain the GPU first.
    if (!ran_ && instructions_[section.begin].waits) stream_.wait_for_all();
  }
  ran_ = true;
  for (const StableBuffer& buffer : stable_buffers_)
    if (!buffer.is_input) stream_.copy(out[buffer.index], buffer.memory->data(), buffer.memory->size());
}

std::shared_ptr<CudaPlan> compile(const Program& program, Pool& pool, CudaStream& stream,
                                  const PlannerOptions& options) {
  return std::make_shared<CudaPlan>(lower(program), pool, stream, options);
}

}  // namespace lockstep
