// Enqueues work on an emulated stream: runs it at once, or stores it if the stream
// is being captured. Safe from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace emulated {

void enqueue(cudaStream_t stream, std::function<void()> work);
void trace(const char* what, size_t size);

}  // namespace emulated
