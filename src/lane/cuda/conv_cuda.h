// CudaConv: a convolution on the GPU by cuDNN. Images are NHWC, filters [co, kh, kw, ci]. find() autotunes among the
// deterministic algorithms. Any thread may run it, one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lane/conv_pass.h"
#include "lane/cpu/conv.h"
#include "lane/cuda/gemm_cuda.h"

namespace lockstep {

class CudaConv {
 public:
  // An algorithm of cuDNN; may be stored and reused.
  struct Algorithm {
    int number = 0, math = 0;
    int64_t space = 0;  // bytes of workspace
  };

  // The version of cuDNN; 0 if it cannot be loaded.
  static int64_t version();

  // Returns the fastest algorithm, measured on these arrays; overwrites `out`. Returns nullopt if cuDNN cannot be
  // loaded or does not support the convolution: f64, dilated images, asymmetric padding that affects the result, or
  // more than 2^31 elements. REQUIRES: the lane is not capturing; no array is empty.
  static std::optional<Algorithm> find(CudaStream&, ConvPass, const ConvSpec&, CudaMath, const void* a, const void* b,
                                       void* out);

  // REQUIRES: find() returned the algorithm, in this process or in another with the same version of cuDNN.
  CudaConv(CudaStream&, ConvPass, const ConvSpec&, CudaMath, const Algorithm&);

  // a and b are the operands in the order of the pass.
  void run(const void* a, const void* b, void* out) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace lockstep
