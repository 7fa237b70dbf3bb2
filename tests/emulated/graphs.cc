// Graphs of the emulated GPU: the captured work as a list, in the order in which it was captured.
#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <mutex>

#include "emulated/stream.h"

namespace emulated {
namespace {

// Work of a graph that runs if a condition holds, or while it does.
struct ConditionalNode {
  Work body;
  cudaGraph_t graph = nullptr;  // of the body
  const bool* condition = nullptr;
  bool repeats = false;

  void run() const {
    while (*condition) {
      for (const auto& work : body) work();
      if (!repeats) return;
    }
  }
};

}  // namespace
}  // namespace emulated

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  emulated::begin_capture(stream, new emulated::Work);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(emulated::end_capture(stream));
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, size_t, cudaStreamCaptureMode) {
  if (emulated::is_capturing(stream)) return cudaErrorIllegalState;
  emulated::begin_capture(stream, reinterpret_cast<emulated::Work*>(graph));
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* graph, const cudaGraphNode_t** last, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  *status = emulated::is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *graph = reinterpret_cast<cudaGraph_t>(emulated::captured_by(stream));
  *last = nullptr, *edges = nullptr, *count = 0;  // work runs in the order in which it was captured
  return cudaSuccess;
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* made, cudaGraph_t, unsigned, unsigned) {
  static auto* const all = new std::deque<bool>;  // in which elements stay where they are
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  *made = reinterpret_cast<cudaGraphConditionalHandle>(&all->emplace_back(false));
  return cudaSuccess;
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t* made, cudaGraph_t graph, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                             size_t, cudaGraphNodeParams* parameters) {
  if (parameters->type != cudaGraphNodeTypeConditional) return cudaErrorNotSupported;
  const auto node = std::make_shared<emulated::ConditionalNode>();
  node->graph = reinterpret_cast<cudaGraph_t>(&node->body);
  node->condition = reinterpret_cast<const bool*>(parameters->conditional.handle);
  node->repeats = parameters->conditional.type == cudaGraphCondTypeWhile;
  parameters->conditional.phGraph_out = &node->graph;
  *made = reinterpret_cast<cudaGraphNode_t>(node.get());
  reinterpret_cast<emulated::Work*>(graph)->push_back([node] { node->run(); });
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new emulated::Work(*reinterpret_cast<emulated::Work*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<emulated::Work*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  emulated::block_if_hanging();
  delete reinterpret_cast<emulated::Work*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return emulated::launch_graph(*reinterpret_cast<emulated::Work*>(graph), stream);
}

}  // extern "C"
