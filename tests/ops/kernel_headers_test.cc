// The headers of GPU kernels (src/ops/cuda/kernels) compile by themselves, and so do their templates. Needs no GPU.
#ifdef LOCKSTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lane/cuda/code.h"
#include "ops/cuda/text.h"
#include "ops/cuda_compiler.h"

namespace lockstep {
namespace {

// A kernel for every header, which instantiates its main templates.
const std::map<std::string, std::string>& kernels_by_header() {
  static const std::string product = R"(
template <class Element, class Stored, int kShareOfSum>
struct Product {
  using T = Element;
  using InA = Element;
  using InB = Stored;
  static constexpr bool kTransposeA = false, kTransposeB = false, kSourceA = false, kSourceB = false;
  static constexpr int kM = 64, kN = 64, kK = 64, kLeadA = 64, kLeadB = 64, kAtOnceA = 16, kAtOnceB = 16;
  static constexpr int64_t kStrideA = 4096, kStrideB = 4096;
  static constexpr int kTall = 32, kWide = 32, kDeep = 32, kStages = 2, kWarpRows = 2, kWarpCols = 2, kParts = 2;
  static constexpr int kSplits = kShareOfSum, kSide = 2, kThreads = 256, kShared = 64 << 10;
};
)";
  static const std::string epilogue = R"(
struct Read { float bias; };
#define EPILOGUE [&](uint32_t i, Read& r) { r.bias = bias[i]; }, \
                 [&](uint32_t i, const auto& x, const Read& r) { out[i] = first(x) + r.bias; }
inline float first(float x) { return x; }
inline float first(const float* x) { return x[0]; }
)";
  static const std::string image = R"(
struct Image {
  using T = bf16;
  static constexpr int kThreads = 256, kImages = 8, kH = 8, kW = 8, kD = 16, kOH = 8, kOW = 8, kN = 16;
  static constexpr int kKH = 3, kKW = 3, kDH = 1, kDW = 1, kPadH = 1, kPadW = 1;
  static constexpr int kBand = 8, kPatchStep = 24, kPatchBytes = 4800;
  static constexpr bool kThin = false, kTransposeB = false, kVectorB = true;
  static constexpr int kWide = 16, kDeep = 16, kStages = 3, kTall = 1, kWarps = 4, kParts = 1;
  static constexpr int kGroups = 1, kTilesEach = 9, kSplits = 2, kSlots = 2, kSlotBytes = 8192;
};
)";
  static const std::string lines = R"(
struct Lines {
  using T = float;
  using R = float;
  using Sum = double;
  static constexpr uint64_t kN = 5000, kInner = 3, kLines = 6, kKept = 10;
  static constexpr uint32_t kThreads = 256, kStretch = 2048, kStretches = 3, kPadded = 2048, kTogether = 1, kTiles = 3;
  static constexpr bool kReverse = false, kDescending = true;
  static Sum none() { return 0; }
  static Sum both(Sum a, Sum b) { return a + b; }
};
)";
  static const std::string attention = R"(
template <class Element, bool kIsFull, int kOfE = 40, int kOfF = 24>
struct Attention {
  using T = Element;
  static constexpr bool kFull = kIsFull, kCausal = true, kSegments = true;
  static constexpr int kB = 2, kT = 100, kH = 6, kE = kOfE, kS = 90, kG = 3, kF = kOfF;
  static constexpr int kLeadQ = kH * kE, kLeadK = kG * kE, kLeadV = kG * kF, kLeadDq = kLeadQ, kLeadDk = kLeadK;
  static constexpr int kLeadDv = kLeadV;
  static constexpr int64_t kWindow = 30, kFirstQuery = 0;
  static constexpr uint32_t kFirstExample = 0, kFirstHead = 0, kDropout = 6554;
  static constexpr float kScale = 0.1f, kSoftcap = 20, kKeep = 1.1f;
};
template <class OfMachine, int kWalk = 32>
struct Blocks {
  using Machine = OfMachine;
  static constexpr int kWarps = 4, kTall = 1, kKeys = kWalk, kQueries = kWalk, kStages = 2, kTogether = 4;
  static constexpr bool kHold = true, kDk = true, kDv = true;
};
)";
  static const std::map<std::string, std::string> kernels = {
      {"machine.cuh", R"(__global__ void f(float* x, uint64_t* word) {
  __shared__ float near[32];
  wait_for_previous_kernel();
  copy_async<4>(near + threadIdx.x, x + threadIdx.x, true);
  commit();
  wait_for<0>();
  uint32_t words[4];
  load_matrices<true, 4>(words, near);
  float c[4] = {};
  multiply_one(0.0f, c, words, {words[0], words[1]});
  x[0] = c[0] + approx_tanh(full_div(approx_sqrt(near[0]), 3.0f));
  store_relaxed(word, load_relaxed(word));
  add_release(word);
  wait_acquire(word, 2);
  allow_next_kernel();
})"},
      {"elements.cuh", R"(__global__ void f(const Side<bf16, 8>* in, Side<f16, 8>* out) {
  for (int k = 0; k < 8; ++k) out->v[k] = Store<f16>::of(rounded<bf16>(load(in->v[k])));
})"},
      {"elementwise.cuh", R"(__global__ void f(float* x) {
  x[0] = select_(lt_(x[0], x[1]), quick_tanh_(exp_(x[2])), quick_div_(pow_(x[3], x[4]), quick_sqrt_(x[5])));
})"},
      {"epilogue.cuh", "__global__ void f(int* out) { while_waiting(); *out = group_of<4>(8, 16); }"},
      {"grid_barrier.cuh", R"(__global__ void f(uint64_t* word) {
  uint64_t all = load_relaxed(word) / gridDim.x * gridDim.x;
  arrive(word, all);
  wait_for_all(word, all);
})"},
      {"partial_sums.cuh", R"(__global__ void f(float* to, uint64_t* numbered) {
  publish(to, make_float4(1, 2, 3, 4));
  uint32_t words[4];
  poll(to, words);
  reset<4>(to);
  publish_numbered(numbered, decode(words[0]), 7);
})"},
      {"reduction.cuh", R"(__global__ void f(float* to) {
  __shared__ char shared[1024];
  float sum = 0;
  const SumOutput all{&sum};
  all[threadIdx.x] = 2.0f;
  write_block_sum<256, 16>(sum, to, blockIdx.x, gridDim.x, shared);
})"},
      {"shared_view.cuh", R"(__global__ void f(float* to) {
  __shared__ float block[8 * 16];
  const SharedAndGlobal<float, 64, 16> both{to, block, 8, 16};
  both[8 * 64 + 16] = 1.0f;
  const SharedView<float, 64, 16> near{block, 8, 16};
  to[0] = near[8 * 64 + 17];
})"},
      {"tile_load.cuh", R"(__global__ void f(const bf16* in, bf16* out) {
  __shared__ bf16 tile[32 * 40];
  TileLoader<bf16, 256, 32, 32, false, 40, 60, 60, 60, 4>(in, 0).fetch(tile, 1);
  using Computed = ComputedTile<bf16, 256, 32, 32, false, 40, 60, 60, 60>;
  const auto source = written<bf16>([&](uint32_t i, bf16 (&x)[4]) { x[0] = x[1] = x[2] = x[3] = in[i]; }, out);
  Computed::fill(source, tile, 0, 0);
  Computed::write_back<2>(tile, source.to, 0, 0, 32, 1);
})"},
      {"mma.cuh", R"(__global__ void f(float* out) {
  __shared__ float a[32 * 36], b[32 * 40];
  Fragments<float, 2, 4, false, false, 36, 40> now;
  float c[2][4][4] = {};
  now.load_a(a + now.lane_offset_a(threadIdx.x));
  now.load_b(b + now.lane_offset_b(threadIdx.x));
  now.multiply(c);
  now.store(c, out, 32, threadIdx.x);
})"},
      {"gemm.cuh", product + epilogue + R"(
template <class P>
inline void product(const typename P::InA* a, const typename P::InB* b, float* partial, const float* bias, float* out) {
  extern __shared__ __align__(128) char shared[];
  Gemm<P>::prefetch_a(blockIdx.x, a, shared);
  Gemm<P>::template run<Read>(blockIdx.x, a, b, partial, shared, EPILOGUE, 1u, while_waiting);
}
extern "C" __global__ void f(const float* a, const bf16* h, const float* b, float* partial, const float* bias, float* out) {
  product<Product<float, float, 1>>(a, b, partial, bias, out);
  product<Product<bf16, float, 2>>(h, b, partial, bias, out);
})"},
      {"row_product.cuh", epilogue + R"(
__global__ void f(const bf16* a, const float* b, const float* bias, float* out) {
  __shared__ char shared[1024];
  RowProduct<bf16, float, 256, 2, 10, 64, 64, 10, false>::run<Read>(blockIdx.x, a, b, nullptr, shared, EPILOGUE);
})"},
      {"spread.cuh", epilogue + R"(
__global__ void f(const float* a, const float* b, uint64_t* messages, const float* bias, float* out) {
  const SharedSums<float, float, 32, 4, 10> sums{messages, 1, blockIdx.x};
  sums.give(0, a, b);
  sums.take<Read>(0, a, b, nullptr, nullptr, EPILOGUE);
  SharedColumns<float, float, 32, 128, 10>{32}.run<Read>(0, a, b, nullptr, nullptr, EPILOGUE);
})"},
      {"conv_patch.cuh", image + R"(
__global__ void f(const bf16* x, bf16* out) {
  extern __shared__ __align__(128) bf16 patch[];
  Patch<Image>::fetch(patch, x, 0);
  out[0] = patch[Patch<Image>::window(9) + Patch<Image>::tap(4)];
})"},
      {"conv_image.cuh", image + epilogue + R"(
__global__ void f(const bf16* a, const bf16* b, const float* bias, float* out) {
  extern __shared__ __align__(128) char shared[];
  ConvImage<Image>::run<Read>(blockIdx.x, a, b, nullptr, shared, EPILOGUE);
})"},
      {"conv_filter.cuh", image + R"(
__global__ void f(const bf16* x, const bf16* dy, float* parts) {
  extern __shared__ __align__(128) char shared[];
  ConvFilter<Image>::run(blockIdx.x, x, dy, parts, shared);
})"},
      {"conv_places.cuh", R"(
struct Conv {
  using I = int32_t;
  using U = uint32_t;
  static constexpr ConvPass kPass = ConvPass::input_grad;
  static constexpr U kH = 9, kW = 7, kOH = 4, kOW = 6, kKW = 2, kCI = 3, kCO = 5;
  static constexpr I kC = 6, kO = 10, kSH = 2, kSW = 1, kDH = 2, kDW = 1, kLH = 1, kLW = 2, kPH = 1, kPW = 0;
};
using Places = ConvPlaces<Conv>;
__global__ void f(int32_t* out) { *out = Places::a(1, 2, 0) + Places::b(1, 2, 1) + Places::c(1, 2, 1); })"},
      {"conv_implicit.cuh", R"(
template <class Element, ConvMath kHow, int kPair>
struct Conv {
  using T = Element;
  using Out = Element;
  using I = int32_t;
  using U = uint32_t;
  static constexpr ConvPass kPass = ConvPass::forward;
  static constexpr ConvMath kMath = kHow;
  static constexpr U kRows = 128, kCols = 32, kDepth = 144, kResults = 4096;
  static constexpr U kRowBlocks = 2, kColBlocks = 1, kSplits = 1, kTilesEach = 9, kTiles = 9, kDeep = 16 * kPair;
  static constexpr int kBM = 64, kBN = 32, kThreads = kHow == ConvMath::fma ? 256 : 128, kP = kPair, kStride = 20;
  static constexpr int kWarpRows = 4, kWarpCols = 1, kVectorA = 4, kVectorB = 4;
  static constexpr bool kAlongA = true, kAlongB = false;
  static constexpr U kH = 8, kW = 8, kOH = 8, kOW = 8, kKW = 3, kCI = 16, kCO = 32;
  static constexpr I kC = 16, kO = 32, kSH = 1, kSW = 1, kDH = 1, kDW = 1, kLH = 1, kLW = 1, kPH = 1, kPW = 1;
};
__global__ void f(const float* x, const float* y, float* out, const f16* xh, const f16* yh, f16* outh) {
  ConvImplicit<Conv<float, ConvMath::fma, 1>>::run(x, y, out);
  ConvImplicit<Conv<float, ConvMath::tf32, 1>>::run(x, y, out);
  ConvImplicit<Conv<f16, ConvMath::half, 2>>::run(xh, yh, outh);
})"},
      {"graph_condition.cuh", R"(
__global__ void f(const bool* another, const int32_t* which, GraphConditions conditions, uint32_t* is_odd) {
  set_loop_conditions(another, conditions, is_odd, 1);
  set_branch_conditions(another, conditions, 0, 2);
  set_branch_conditions(which, conditions, 32, 40);
})"},
      {"split_sum.cuh",
       "__global__ void f(const float* parts, bf16* out) { SplitSum<float, bf16, 1000, 9, 2, 8>::run(parts, out); }"},
      {"pool.cuh", R"(
struct Pooling {
  using T = bf16;
  using R = float;
  using Index = uint32_t;
  using Pos = int32_t;
  static constexpr int kV = 1;
  static constexpr Pos kH = 6, kW = 6, kOH = 3, kOW = 3, kKH = 2, kKW = 2, kSH = 2, kSW = 2, kPH = 0, kPW = 0;
  static constexpr Index kC = 12;
};
using P = Pool<Pooling>;
struct Read {};
__global__ void f(const P::Pack* in, const P::Pack* dy, P::Pack* out, float* sums) {
  const uint32_t at = blockIdx.x * 256u + threadIdx.x;
  P::max(at, in, out), P::sum(at, in, out), P::pick(at, in, in, out);
  P::max_grad(at, in, dy, out), P::max_grad_tiles(at, in, dy, out), P::sum_grad(at, dy, out);
  const auto read = [](uint32_t, Read&) {};
  const auto finish = [&](uint32_t i, float x, const Read&) { sums[i] = x; };
  P::max_grad_finish<Read>(at, in, dy, read, finish), P::max_grad_tiles_finish<Read>(at, in, dy, read, finish);
})"},
      {"norm.cuh", R"(
template <uint32_t kWidth>
struct Rows {
  using T = bf16;
  using P = float;
  using R = float;
  static constexpr uint64_t kD = 1000, kRows = 50, kTotal = 100, kOwn = 8, kBlocks = 7;
  static constexpr uint32_t kVector = 8, kPacks = 4, kTeam = kWidth, kThreads = 256;
  static constexpr bool kKept = kWidth == 32, kCentered = kWidth == 32, kResidual = kCentered, kSums = kCentered;
  static constexpr double kEpsilon = 1e-5;
};
template <class S>
inline void norms(const bf16* x, const float* p, const bf16* dy, bf16* y, float* sums, float* out) {
  Norm<S>::forward(x, p, p, y, sums, sums);
  Norm<S>::backward({x, p, p, p, dy, x, y, sums, sums, sums});
  Norm<S>::add_blocks(0, sums, out);
}
__global__ void f(const bf16* x, const float* p, const bf16* dy, bf16* y, float* sums, float* out) {
  norms<Rows<32>>(x, p, dy, y, sums, out);
  norms<Rows<256>>(x, p, dy, y, sums, out);
})"},
      {"quantize.cuh", R"(
template <class T_, class E_, uint32_t kVector_, uint32_t kTurned_>
struct Matrix {
  using T = T_;
  using E = E_;
  static constexpr uint64_t kRows = 160, kColumns = 304;
  static constexpr uint32_t kVector = kVector_, kTurned = kTurned_;
};
__global__ void f(const bf16* x, const float* scale, uint8_t* y, uint8_t* transposed, uint32_t* largest) {
  Quantize<Matrix<bf16, e4m3, 8, 16>>::run(x, scale, y, transposed, largest);
  Quantize<Matrix<bf16, e5m2, 1, 1>>::run(x, scale, y, transposed, largest);
})"},
      {"rotary.cuh", R"(
struct Heads {
  using T = bf16;
  using R = float;
  static constexpr uint64_t kTokens = 10, kAllHeads = 6, kHeads = 4, kHeadGroups = 2, kVectors = 4, kTotal = 160;
  static constexpr int kVector = 8, kThreads = 256;
  static constexpr bool kInverse = true;
};
__global__ void f(const bf16* x, const int32_t* positions, const float* frequencies, bf16* y) {
  Rotary<Heads>::rotate(x, positions, frequencies, y);
})"},
      {"attention.cuh", attention + R"(
__global__ void f(AttentionOperands operands, uint32_t* out) {
  const AttentionPlace<3, 6, 12, 4, true> at(blockIdx.x);
  const AttentionMask<Attention<bf16, false>> mask(operands, at.b);
  const AttentionDropout<Attention<bf16, false>> dropout(operands, at.b, at.head);
  out[0] = mask.seen<true>(at.tile, 0) & dropout.kept<true>(at.tile, 0);
  out[1] = mask.seen<false>(at.tile, 0) & dropout.kept<false>(at.tile, 0);
})"},
      {"attention_forward.cuh", attention + R"(
template <class T, bool kFull>
inline void forward(const T* q, T* y, float* lse, AttentionOperands operands) {
  extern __shared__ __align__(16) char shared[];
  AttentionForward<Attention<T, kFull>, Blocks<AttentionWarps<T, kFull>>>::run(q, q, q, y, lse, operands, shared);
}
__global__ void f(const f16* q, const float* wide, f16* y, float* lse, AttentionOperands operands) {
  forward<f16, false>(q, y, lse, operands);
  forward<float, true>(wide, lse, lse, operands);
})"},
      {"attention_backward.cuh", attention + R"(
template <class T, bool kFull>
inline void backward(const T* q, T* dq, float* rows, AttentionOperands operands) {
  extern __shared__ __align__(16) char shared[];
  using A = Attention<T, kFull>;
  AttentionRowSums<A, 128>::run(q, q, rows, nullptr, rows);
  using S = Blocks<AttentionWarps<T, kFull>>;
  AttentionKeysGrad<A, S>::run(q, q, q, q, rows, dq, dq, operands, shared);
  AttentionQueriesGrad<A, S>::run(q, q, q, q, rows, dq, operands, shared);
}
__global__ void f(const bf16* q, const float* wide, bf16* dq, float* rows, AttentionOperands operands) {
  backward<bf16, false>(q, dq, rows, operands);
  backward<float, false>(wide, rows, rows, operands);
})"},
      {"attention_softmax.cuh", attention + R"(
__global__ void f(float* lse, f16* y) {
  AttentionSoftmax<Attention<f16, false>, 1, 4> softmax;
  float scores[1][4][4] = {}, by[1][2];
  softmax.weigh(scores, by);
  if (softmax.rescales(by)) softmax.rescale(by);
  softmax.finish(y, lse, 0);
})"},
      {"warpgroup.cuh", R"(
__global__ void f(const bf16* a, float* out) {
  float c[8][4] = {}, wide[16][4] = {};
  begin_products();
  multiply_started<false>(bf16{}, c, SharedMatrix(a, 64), SharedMatrix(a, 64), false);
  multiply_started<true>(f16{}, wide, SharedMatrix(a, 64), SharedMatrix(a, 64).at(32), false);
  commit_products();
  wait_for_products<0>();
  keep(c), keep(wide);
  out[threadIdx.x] = c[7][3] + wide[15][3];
})"},
      {"attention_warpgroup.cuh", attention + R"(
#include "attention_backward.cuh"
__global__ void f(const bf16* q, bf16* dq, float* rows, AttentionOperands operands) {
  extern __shared__ __align__(1024) char shared[];
  using A = Attention<bf16, false, 64, 128>;
  using S = Blocks<AttentionWarpgroups<bf16>, 64>;
  AttentionKeysGrad<A, S>::run(q, q, q, q, rows, dq, dq, operands, shared);
  AttentionQueriesGrad<A, S>::run(q, q, q, q, rows, dq, operands, shared);
})"},
      {"attention_forward_warpgroup.cuh", attention + R"(
__global__ void f(const f16* q, f16* y, float* lse, AttentionOperands operands) {
  extern __shared__ __align__(1024) char shared[];
  using S = Blocks<AttentionWarpgroups<f16>, 64>;
  AttentionForwardWarpgroups<Attention<f16, false, 64, 64>, S>::run(q, q, q, y, lse, operands, shared);
})"},
      {"scan.cuh", lines + R"(
using S = Scan<Lines>;
__global__ void f(const float* in, float* out, double* sums) {
  S::lines(in, out), S::range_sums(in, sums), S::sums_before(sums), S::ranges(in, sums, out);
})"},
      {"sort.cuh", lines + R"(
using S = Sort<Lines>;
__global__ void f(const float* in, S::Item* from, S::Item* to, float* out) {
  const auto take = [&](uint64_t line, uint64_t i, uint32_t index) { out[line * 10 + i] = in[line * 5000 + index]; };
  S::sort_lines(in, take), S::sort_runs(in, to), S::merge(from, to, 2048, 3), S::take_runs(from, take);
})"},
      {"scatter.cuh", R"(
#include "sort.cuh"
template <class Element>
struct Tables {
  using T = Element;
  using Index = int32_t;
  using Item = SortItem<uint32_t>;
  static constexpr uint64_t kLists = 2, kPre = 3, kN = 1000, kPost = 72, kPlaces = 500;
  static constexpr int kVector = 8;
  static constexpr uint32_t kThreads = 512;
  static float combined(float a, float b) { return a + b; }
};
extern "C" __global__ void f(const SortItem<uint32_t>* items, const int32_t* at, const bf16* x, const bf16* updates,
                             float* partial, bf16* out) {
  Scatter<Tables<bf16>>::combine_runs(items, at, x, updates, partial, out);
  Scatter<Tables<bf16>>::combine_parts(items, at, x, partial, out);
})"},
      {"conv_direct.cuh", R"(
struct Conv {
  using T = bf16;
  using R = float;
  using Out = bf16;
  using I = int32_t;
  using U = uint32_t;
  static constexpr int kV = 8, kThreads = 256;
  static constexpr U kResults = 2 * 14 * 14 * 64, kPixels = 2 * 14 * 14, kSplits = 1, kEach = 2 * 14 * 14;
  static constexpr U kH = 14, kW = 14, kOH = 14, kOW = 14, kKH = 3, kKW = 3, kCI = 1, kCO = 1;
  static constexpr I kC = 64, kO = 64, kSH = 1, kSW = 1, kDH = 1, kDW = 1, kPH = 1, kPW = 1;
};
extern "C" __global__ void f(const bf16* a, const bf16* b, bf16* out) {
  ConvDirect<Conv>::forward(a, b, out), ConvDirect<Conv>::input_grad(a, b, out), ConvDirect<Conv>::filter_grad(a, b, out);
})"},
      {"cross_entropy.cuh", R"(
template <class Element, class Wide, class I, I kCount, uint32_t kThreadsOfRow, bool kWhole>
struct Rows {
  using T = Element;
  using Label = int32_t;
  using Index = I;
  using R = Wide;
  static constexpr uint64_t kRows = 700;
  static constexpr Index kClasses = kCount;
  static constexpr uint32_t kWidth = kThreadsOfRow, kThreads = 512;
  static constexpr double kSmoothing = kWhole ? 0.1 : 0;
  static constexpr bool kAligned = kWhole, kApproximate = kWhole, kHeld = kWhole && kThreadsOfRow > 32;
};
template <class C>
inline void both(const typename C::T* logits, const int32_t* labels, typename C::R* loss, typename C::R* lse,
                 typename C::T* out) {
  CrossEntropy<C>::loss(logits, labels, loss, lse);
  CrossEntropy<C>::gradient(logits, labels, lse, loss, out);
  extern __shared__ __align__(16) char shared[];
  CrossEntropy<C>::loss_and_gradient(logits, labels, loss, loss, nullptr, out, shared);
}
extern "C" __global__ void f(bf16* x, double* y, const int32_t* labels, float* loss, double* wide) {
  both<Rows<bf16, float, uint32_t, 50304, 512, true>>(x, labels, loss, loss, x);
  both<Rows<double, double, uint64_t, 65, 32, false>>(y, labels, wide, wide, y);
})"},
      {"column_sums.cuh", R"(
struct Columns {
  using Index = uint32_t;
  static constexpr uint32_t kRows = 700, kColumns = 96, kOwn = 100, kAcross = 8, kThreads = 512, kWide = 8, kTogether = 2;
};
extern "C" __global__ void f(const bf16* x, bf16* y, float* partial, bf16* sums) {
  using Read = Side<bf16, 8>;
  ColumnSums<Columns>::run<Read>(
      blockIdx.x, partial, [&](uint32_t i, Read& r) { load_vector(r, x, i); },
      [&](uint32_t i, const Read& r, float (&all)[8]) { store_vector(SummedColumns<bf16, 8>{y, all}, i, r); });
  add_column_sums<7, 96>(threadIdx.x, partial, sums);
})"},
      {"matrices.cuh", R"(
template <class T>
inline void around(const MatrixMove<T>& move, const VectorSigns<T>& signs, T* x, int32_t* info, T** pointers) {
  copy_matrices(move), transpose_matrices(move), choose_signs(signs);
  find_not_finite(x, 30, 40, 2, 1, info), fill_failed(x, 40, 2, info, info);
  check_cholesky(x, 30, 2, info), finish_cholesky(x, 30, 2, info);
  permute_rows(info, 30, 20, info + 100, info + 200);
  write_pointers(x, 1200, 2, pointers);
}
__global__ void f(MatrixMove<float> move, VectorSigns<float> signs, MatrixMove<double> wide, VectorSigns<double> wide_signs,
                  float* x, double* y, int32_t* info, float** px, double** py) {
  around(move, signs, x, info, px);
  around(wide, wide_signs, y, info, py);
})"},
      {"small_matrices.cuh", R"(
__global__ void cholesky(float* x, double* y) { small_cholesky(x, 20, 9, x), small_cholesky(y, 20, 9, y); }
__global__ void solve(float* x) { small_triangular_solve(x, x, x, 20, 30, 1, 1, 0, 0); }
__global__ void solve_wide(double* x) { small_triangular_solve(x, x, x, 20, 30, 1, 1, 0, 0); }
__global__ void lu(float* x, double* y, int32_t* pivots) {
  small_lu(x, 20, 30, 9, x, pivots, pivots), small_lu(y, 20, 30, 9, y, pivots, pivots);
}
__global__ void qr(float* x) { small_qr(x, 20, 30, 20, 9, x, x); }
__global__ void qr_wide(double* x) { small_qr(x, 20, 30, 20, 9, x, x); })"},
      {"philox.cuh",
       "__global__ void f(const uint32_t* key, uint32_t* y) {\n"
       "  uint32_t x[4];\n  philox(key, threadIdx.x, x);\n  store_philox(y, x, 4);\n  y[4] = philox_word(x, threadIdx.x);\n}"},
      {"threefry.cuh", "__global__ void f(const uint32_t* key, uint32_t* x) { threefry(key, x[0], x[1]); }"},
  };
  return kernels;
}

TEST(KernelHeaders, CompileAlone) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  for (const CudaHeader& header : kernel_headers()) {
    SCOPED_TRACE(header.name);
    const std::string text = std::string("#include \"") + header.name + "\"\nextern \"C\" __global__ void f() {}\n";
    EXPECT_FALSE(compile_quickly(text, "sm_90").empty());
  }
}

// A new header needs a kernel above. Kernels are compiled alternately for an old and a new GPU.
TEST(KernelHeaders, TemplatesCompile) {
  LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER();
  size_t found = 0;
  for (const CudaHeader& header : kernel_headers()) {
    SCOPED_TRACE(header.name);
    if (!std::string_view(header.name).ends_with(".cuh")) continue;
    const auto kernel = kernels_by_header().find(header.name);
    if (kernel == kernels_by_header().end()) {
      ADD_FAILURE() << "no kernel instantiates the templates of " << header.name;
      continue;
    }
    ++found;
    const bool warpgroups = std::string_view(header.name).find("warpgroup") != std::string_view::npos;
    const char* const architecture = warpgroups ? "sm_90a" : found % 2 ? "sm_80" : "sm_90";
    const std::string text = std::string("#include \"") + header.name + "\"\nusing namespace lockstep;\n";
    EXPECT_FALSE(compile_quickly(text + kernel->second + "\n", architecture).empty());
  }
  EXPECT_EQ(found, kernels_by_header().size());
}

}  // namespace
}  // namespace lockstep
#endif
