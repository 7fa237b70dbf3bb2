// Fourier transforms on the GPU, by cuFFT; on the host if it cannot be loaded or has no plan.
#include "lane/cuda/fft_cuda.h"

#include "ops/cuda/kernels.h"
#include "ops/dims.h"

namespace lockstep {

Kernel fft_cuda(const KernelSpec& spec) {
  const Type &x = spec.in[0], &y = spec.out[0];
  if (count(x.shape) == 0) return {};
  const std::string& kind = spec.attrs.get<std::string>("kind");
  const Shape& whole = kind == "irfft" ? y.shape : x.shape;
  const int64_t first = x.rank() - spec.attrs.integer("dims");
  const std::optional<CudaFft> fft =
      CudaFft::prepare(*spec.cuda,
                       kind == "fft"    ? FftKind::forward
                       : kind == "ifft" ? FftKind::inverse
                       : kind == "rfft" ? FftKind::real_forward
                                        : FftKind::real_inverse,
                       Dims(whole.begin() + first, whole.end()), extent(whole, 0, first), complex_of(x.dtype));
  if (!fft) return {};
  return [fft = *fft](const void* const* in, void* const* out) { fft.run(in[0], out[0]); };
}

}  // namespace lockstep
