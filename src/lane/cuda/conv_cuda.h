// CudaConv: a convolution on the GPU, by cuDNN. Images are NHWC, filters [co, kh, kw, ci]. The algorithm is measured
// when it is first prepared, among those that give the same bits every time. Any thread may run it, one at a time.
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
  // An algorithm of cuDNN's, which may be kept and used again.
  struct Algorithm {
    int number = 0, math = 0;
    int64_t space = 0;  // bytes it needs while it runs
  };

  // The version of cuDNN; 0 when it is not there.
  static int64_t version();

  // Nothing when cuDNN is not there or cannot do it: f64, dilated images, padding that differs before and after in a
  // way that matters, more than 2^31 elements. Otherwise the fastest for these arrays, which it overwrites.
  // REQUIRES: the lane is not recording; nothing is empty.
  static std::optional<Algorithm> find(CudaLane&, ConvPass, const ConvSpec&, CudaMath, const void* a, const void* b,
                                       void* out);

  // REQUIRES: find() gave the algorithm, in this process or another with the same version of cuDNN.
  CudaConv(CudaLane&, ConvPass, const ConvSpec&, CudaMath, const Algorithm&);

  // a and b are the operands in the order of the pass.
  void run(const void* a, const void* b, void* out) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace lockstep
