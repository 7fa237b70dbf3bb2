// CudaTrace: the spans of the instructions that a plan enqueues on a GPU, measured by events in its stream. Used while
// the trace is on, by the thread that enqueues.
#pragma once

#include <functional>
#include <string>

#include "lane/cuda/cuda_stream.h"
#include "lane/trace.h"

namespace lockstep {

// Enqueues an instruction between two events. Trace::stop() adds its span, once the GPU has executed it. The first call
// of a trace waits for the GPU, to relate its clock to that of the host. REQUIRES: the stream is not being captured.
void enqueue_traced(CudaStream& stream, TraceSpan::Kind kind, std::string name, const std::function<void()>& enqueue);

}  // namespace lockstep
