#include "lane/cuda/fft_cuda.h"

#include "base/check.h"
#include "hardware/cuda/fft.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_CUFFT
namespace {

void check_fft(cufftResult result, const char* what) {
  if (result == CUFFT_SUCCESS) return;
  throw_library_error(result == CUFFT_ALLOC_FAILED, what,
                      fmt::format("cuFFT: error {}", static_cast<int>(result)).c_str());
}

cufftType fft_plan_type(FftKind kind, bool wide) {
  switch (kind) {
    case FftKind::real_forward:
      return wide ? CUFFT_D2Z : CUFFT_R2C;
    case FftKind::real_inverse:
      return wide ? CUFFT_Z2D : CUFFT_C2R;
    default:
      return wide ? CUFFT_Z2Z : CUFFT_C2C;
  }
}

}  // namespace

struct CudaFft::State {
  CudaStream& lane;
  FftKind kind;
  bool wide;
  bool has_plan = false;
  cufftHandle plan = 0;
  BufferPtr spectrum = {};  // of real_inverse, which overwrites its operand: a copy
  int64_t bytes = 0;

  State(CudaStream& l, FftKind k, bool w) : lane(l), kind(k), wide(w) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (has_plan) cuda_fft()->cufftDestroy(plan);
  }
};

std::optional<CudaFft> CudaFft::prepare(CudaStream& lane, FftKind kind, const std::vector<int64_t>& lengths,
                                        int64_t batch, DType dtype) {
  if (!cuda_fft()) return {};
  const CudaFftLibrary& fft = *cuda_fft();
  lane.enter();
  const auto state = std::make_shared<State>(lane, kind, dtype == DType::c128);
  if (fft.cufftCreate(&state->plan) != CUFFT_SUCCESS) return {};
  state->has_plan = true;
  std::vector<long long> n(lengths.begin(), lengths.end());
  size_t work = 0;
  const cufftResult planned = fft.cufftMakePlanMany64(state->plan, static_cast<int>(n.size()), n.data(), nullptr, 1, 0,
                                                      nullptr, 1, 0, fft_plan_type(kind, state->wide), batch, &work);
  if (planned == CUFFT_ALLOC_FAILED) check_fft(planned, "plan a Fourier transform");
  if (planned != CUFFT_SUCCESS || fft.cufftSetStream(state->plan, lane.stream()) != CUFFT_SUCCESS) return {};
  if (kind == FftKind::real_inverse) {
    state->bytes = batch * size_of(dtype) * (lengths.back() / 2 + 1);
    for (size_t d = 0; d + 1 < lengths.size(); ++d) state->bytes *= lengths[d];
    state->spectrum = lane.allocate(state->bytes, "the spectrum of a Fourier transform");
  }
  CudaFft out;
  out.state_ = state;
  return out;
}

void CudaFft::run(const void* in, void* out) const {
  const State& s = *state_;
  const CudaFftLibrary& fft = *cuda_fft();
  s.lane.enter();
  if (s.spectrum) {
    s.lane.copy(s.spectrum->data(), in, s.bytes);
    in = s.spectrum->data();
  }
  void* const from = const_cast<void*>(in);
  const int direction = s.kind == FftKind::inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
  const auto call = [&](auto function, auto* operand, auto* result, auto... more) {
    check_fft(function(s.plan, operand, result, more...), "run a Fourier transform");
  };
  switch (s.kind) {
    case FftKind::real_forward:
      return s.wide ? call(fft.cufftExecD2Z, static_cast<cufftDoubleReal*>(from), static_cast<cufftDoubleComplex*>(out))
                    : call(fft.cufftExecR2C, static_cast<cufftReal*>(from), static_cast<cufftComplex*>(out));
    case FftKind::real_inverse:
      return s.wide ? call(fft.cufftExecZ2D, static_cast<cufftDoubleComplex*>(from), static_cast<cufftDoubleReal*>(out))
                    : call(fft.cufftExecC2R, static_cast<cufftComplex*>(from), static_cast<cufftReal*>(out));
    default:
      return s.wide
                 ? call(fft.cufftExecZ2Z, static_cast<cufftDoubleComplex*>(from), static_cast<cufftDoubleComplex*>(out),
                        direction)
                 : call(fft.cufftExecC2C, static_cast<cufftComplex*>(from), static_cast<cufftComplex*>(out), direction);
  }
}
#else
struct CudaFft::State {};
std::optional<CudaFft> CudaFft::prepare(CudaStream&, FftKind, const std::vector<int64_t>&, int64_t, DType) {
  return {};
}
void CudaFft::run(const void*, void*) const { LOCKSTEP_CHECK(false, "built without cuFFT"); }
#endif

}  // namespace lockstep
