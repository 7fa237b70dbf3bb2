// Enqueues work on an emulated stream: runs it at once, or stores it if the stream
// is being captured. Safe from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace emulated {

void enqueue(cudaStream_t stream, std::function<void()> work);
void trace(const char* what, size_t size);

// Work of a graph. A stream that is being captured appends to one.
using Work = std::vector<std::function<void()>>;
bool is_capturing(cudaStream_t stream);
Work* captured_by(cudaStream_t stream);
void begin_capture(cudaStream_t stream, Work* graph);
Work* end_capture(cudaStream_t stream);
cudaError_t launch_graph(const Work& graph, cudaStream_t stream);
// Returns when the test that hangs the GPU lets it go on.
void block_if_hanging();

}  // namespace emulated
