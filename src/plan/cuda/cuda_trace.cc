#include "plan/cuda/cuda_trace.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Frees its event.
struct TimedEvent {
  TimedEvent() { check_cuda(cuda().cudaEventCreateWithFlags(&event, cudaEventDefault), "create an event"); }
  ~TimedEvent() { cuda().cudaEventDestroy(event); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  void record(CudaStream& stream) const {
    const auto lock = stream.enqueue_lock();
    check_cuda(cuda().cudaEventRecord(event, stream.stream()), "mark an instruction");
  }
  cudaEvent_t event = nullptr;
};

struct TimedInstruction {
  TraceSpan span;
  std::unique_ptr<TimedEvent> begin, end;
};

// The instructions of a stream since the trace began.
struct StreamTrace {
  std::unique_ptr<TimedEvent> reference;  // at the time `host` of the host
  int64_t host = 0;
  std::vector<TimedInstruction> instructions;
};

struct StreamTraces {
  std::mutex mutex;
  std::map<CudaStream*, StreamTrace> all;
};
StreamTraces& stream_traces() {
  static auto* const traces = new StreamTraces;
  return *traces;
}

int64_t time_of(const StreamTrace& trace, const TimedEvent& event) {
  float milliseconds = 0;
  check_cuda(cuda().cudaEventElapsedTime(&milliseconds, trace.reference->event, event.event), "time an instruction");
  return trace.host + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

void finish_traces() {
  StreamTraces& traces = stream_traces();
  const std::lock_guard lock(traces.mutex);
  for (auto& [stream, trace] : traces.all) {
    stream->enter();
    if (!trace.instructions.empty()) stream->wait_for(trace.instructions.back().end->event);
    for (TimedInstruction& each : trace.instructions) {
      each.span.begin = time_of(trace, *each.begin);
      each.span.end = time_of(trace, *each.end);
      Trace::add(std::move(each.span));
    }
  }
  traces.all.clear();
}

void begin_trace(StreamTrace& trace, CudaStream& stream) {
  const CudaStream::UncountedWaits uncounted;
  stream.wait();
  trace.reference = std::make_unique<TimedEvent>();
  trace.reference->record(stream);
  stream.wait_for(trace.reference->event);
  trace.host = Trace::now();
}

}  // namespace

void enqueue_traced(CudaStream& stream, TraceSpan::Kind kind, std::string name, const std::function<void()>& enqueue) {
  StreamTraces& traces = stream_traces();
  StreamTrace* trace = nullptr;
  {
    const std::lock_guard lock(traces.mutex);
    if (traces.all.empty()) Trace::at_stop(finish_traces);
    trace = &traces.all[&stream];
  }
  if (!trace->reference) begin_trace(*trace, stream);
  TimedInstruction timed{
      {kind, std::move(name), 0, 0, Trace::lane()}, std::make_unique<TimedEvent>(), std::make_unique<TimedEvent>()};
  timed.begin->record(stream);
  enqueue();
  timed.end->record(stream);
  trace->instructions.push_back(std::move(timed));
}

}  // namespace lockstep
