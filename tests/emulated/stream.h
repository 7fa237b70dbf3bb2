// What is put on a stream: done at once, or kept where the stream is being recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace emulated {

void put(cudaStream_t stream, std::function<void()> work);
void trace(const char* what, size_t size);

}  // namespace emulated
