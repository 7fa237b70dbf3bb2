// Conditional nodes of captured graphs.
#include "base/check.h"
#include "lane/cuda/cuda_stream.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_CONDITIONAL_NODES

namespace {

struct Captured {
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> last;  // what the next work would follow
};

Captured captured_so_far(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Captured out;
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;  // asked for because edges may be programmatic; the node's are not
  size_t count = 0;
  check_cuda(cuda_graphs()->cudaStreamGetCaptureInfo(stream, &status, nullptr, &out.graph, &last, &edges, &count),
             "query a graph capture");
  LOCKSTEP_CHECK(status == cudaStreamCaptureStatusActive, "no graph is being captured");
  out.last.assign(last, last + count);
  return out;
}

void continue_capture(cudaStream_t stream, const Captured& so_far) {
  check_cuda(cuda_graphs()->cudaStreamBeginCaptureToGraph(stream, so_far.graph, so_far.last.data(), nullptr,
                                                          so_far.last.size(), cudaStreamCaptureModeThreadLocal),
             "continue a graph capture");
}

cudaError_t interrupt_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  return cuda().cudaStreamEndCapture(stream, &graph);
}

}  // namespace

bool CudaStream::has_graph_conditions() { return cuda_graphs() != nullptr; }

CudaStream::GraphCondition CudaStream::make_graph_condition() {
  cudaGraphConditionalHandle condition = 0;
  check_cuda(cuda_graphs()->cudaGraphConditionalHandleCreate(&condition, captured_so_far(stream_).graph, 0, 0),
             "make a condition of a graph");
  return condition;
}

// A stream captures one graph at a time: the outer capture is interrupted while the work of the node is captured.
void CudaStream::capture_conditional(GraphCondition condition, bool repeats, const std::function<void()>& enqueue) {
  Captured outer = captured_so_far(stream());
  check_cuda(interrupt_capture(stream()), "interrupt a graph capture");
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = condition;
  params.conditional.type = repeats ? cudaGraphCondTypeWhile : cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  const cudaError_t added =
      cuda_graphs()->cudaGraphAddNode(&node, outer.graph, outer.last.data(), nullptr, outer.last.size(), &params);
  if (added != cudaSuccess) {
    continue_capture(stream(), outer);
    check_cuda(added, "add conditional work to a graph");
  }
  outer.last = {node};
  continue_capture(stream(), {params.conditional.phGraph_out[0], {}});
  try {
    enqueue();
  } catch (...) {
    if (interrupt_capture(stream()) == cudaSuccess) continue_capture(stream(), outer);
    throw;
  }
  check_cuda(interrupt_capture(stream()), "end the capture of conditional work");
  continue_capture(stream(), outer);
}

#else

bool CudaStream::has_graph_conditions() { return false; }
CudaStream::GraphCondition CudaStream::make_graph_condition() { throw_error("cuda: conditional work needs CUDA 13"); }
void CudaStream::capture_conditional(GraphCondition, bool, const std::function<void()>&) {
  throw_error("cuda: conditional work needs CUDA 13");
}

#endif

}  // namespace lockstep
