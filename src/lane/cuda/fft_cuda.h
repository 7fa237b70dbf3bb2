// CudaFft: Fourier transforms of the last dimensions of an array on the GPU, by cuFFT. Not normalized. Any thread may run
// it, one at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lane/cpu/fft.h"
#include "lane/cuda/cuda_stream.h"

namespace lockstep {

class CudaFft {
 public:
  // `lengths`: the extents of the transformed dimensions, 1 to 3, of the real array if one is real. `dtype`: c64 or c128.
  // nullopt if cuFFT cannot be loaded or has no plan for them. Throws OutOfMemory. REQUIRES: the lane is not capturing;
  // batch and lengths are positive.
  static std::optional<CudaFft> prepare(CudaStream&, FftKind, const std::vector<int64_t>& lengths, int64_t batch,
                                        DType dtype);

  void run(const void* in, void* out) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace lockstep
