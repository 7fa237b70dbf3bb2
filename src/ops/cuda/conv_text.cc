#include "ops/cuda/conv_text.h"

#include <algorithm>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

constexpr int kRowWords = 16;  // of a row of a tile: its elements along the depth, two 16-bit floats a word

// The widest loads of neighbors, of at most `most` elements.
int64_t vector_of(int64_t channels, int64_t most) {
  int64_t v = 1;
  while (v * 2 <= most && channels % (v * 2) == 0) v *= 2;
  return v;
}

// The operands in memory: whether adjacent elements lie along the depth or along the rows (columns), and the number of
// adjacent channels.
struct Operands {
  bool a_along_k, b_along_k;
  int64_t a_vector, b_vector;
};

Operands operands_of(ConvPass pass, int64_t ci, int64_t co) {
  switch (pass) {
    case ConvPass::forward:
      return {true, false, ci, co};
    case ConvPass::input_grad:
      return {true, true, co, co};
    case ConvPass::filter_grad:
      break;
  }
  return {false, false, ci, co};
}

const char* enumerator(ConvMath math) {
  switch (math) {
    case ConvMath::fma:
      return "fma";
    case ConvMath::tf32:
      return "tf32";
    case ConvMath::half:
      break;
  }
  return "half";
}

// Adjacent results that a thread adds up.
int64_t sum_each(const ConvLayout& l) { return l.results % 2 == 0 ? 2 : 1; }

}  // namespace

const char* enumerator(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return "forward";
    case ConvPass::input_grad:
      return "input_grad";
    case ConvPass::filter_grad:
      break;
  }
  return "filter_grad";
}

ConvSpec::Pair conv_out(const ConvSpec& s) {
  ConvSpec::Pair out{};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t dilated = s.in[d] == 0 ? 0 : (s.in[d] - 1) * s.in_dilation[d] + 1;
    const int64_t room = dilated + s.pad_lo[d] + s.pad_hi[d] - (s.kernel[d] - 1) * s.kernel_dilation[d] - 1;
    out[d] = room / s.stride[d] + 1;
  }
  return out;
}

ConvLayout conv_layout(ConvPass pass, const ConvSpec& s, ConvMath math) {
  ConvLayout l;
  const ConvSpec::Pair out = conv_out(s);
  const int64_t ci = s.in_channels / s.groups, co = s.out_channels / s.groups, taps = s.kernel[0] * s.kernel[1];
  const int64_t in_pixels = s.batch * s.in[0] * s.in[1], out_pixels = s.batch * out[0] * out[1];
  l.rows = pass == ConvPass::forward ? out_pixels : pass == ConvPass::input_grad ? in_pixels : taps * ci;
  l.cols = pass == ConvPass::input_grad ? ci : co;
  l.depth = pass == ConvPass::forward ? taps * ci : pass == ConvPass::input_grad ? taps * co : out_pixels;
  l.tile_depth = math == ConvMath::half ? 2 * kRowWords : kRowWords;
  l.threads = math == ConvMath::fma ? 256 : 128;
  l.tile_cols = l.cols <= 16 ? 16 : l.cols <= 32 ? 32 : 64;
  const auto blocks_of = [&](int tile_rows) {
    return (l.rows + tile_rows - 1) / tile_rows * ((l.cols + l.tile_cols - 1) / l.tile_cols) * s.groups;
  };
  // Larger tiles are worth it where there is much to multiply; in f64 they do not fit the shared memory that every
  // kernel may have.
  const bool large = s.dtype != DType::f64 && l.tile_cols >= 32 && l.depth >= cost_model::kConvLongSum &&
                     blocks_of(128) >= cost_model::kConvBlocks;
  l.tile_rows = l.rows <= 32 ? 32 : large ? 128 : 64;
  const int64_t tiles = (l.depth + l.tile_depth - 1) / l.tile_depth, blocks = blocks_of(l.tile_rows);
  l.splits = std::clamp<int64_t>(cost_model::kConvBlocks / blocks, 1,
                                 std::max<int64_t>(tiles / cost_model::kConvTilesPerSplit, 1));
  l.tiles_each = (tiles + l.splits - 1) / l.splits;
  l.splits = (tiles + l.tiles_each - 1) / l.tiles_each;
  l.blocks = blocks * l.splits;
  l.results = l.rows * l.cols * s.groups;
  return l;
}

std::string conv_text(ConvPass pass, const ConvSpec& s, ConvMath math) {
  const ConvLayout l = conv_layout(pass, s, math);
  const ConvSpec::Pair out = conv_out(s);
  const int64_t ci = s.in_channels / s.groups, co = s.out_channels / s.groups;
  const Operands o = operands_of(pass, ci, co);
  const int64_t most =
      std::max({s.batch * s.in[0] * s.in[1] * s.in_channels, s.batch * out[0] * out[1] * s.out_channels,
                s.kernel[0] * s.kernel[1] * ci * s.out_channels, l.rows * l.cols, l.depth});
  // Positions, in dilated images and with their padding too, and what tiles reach beyond the edges.
  bool wide = most > INT32_MAX / 2;
  for (size_t d = 0; d < 2; ++d)
    wide = wide || s.in[d] * s.in_dilation[d] + s.pad_lo[d] + s.kernel[d] * s.kernel_dilation[d] > INT32_MAX / 2 ||
           out[d] * s.stride[d] > INT32_MAX / 2;
  const int64_t bytes = size_of(s.dtype), along = math == ConvMath::half ? 8 : std::min<int64_t>(16 / bytes, 4);
  const int64_t across = std::min<int64_t>(along, 4);
  const int warps = l.threads / 32, warp_cols = l.tile_rows >= 64 && l.tile_cols <= 32 ? 1 : 2;
  return fmt::format(
      R"(#include "conv_implicit.cuh"
using namespace lockstep;
struct Conv {{
  using T = {memory};
  using Out = {to};
  using I = {index};
  using U = {unsigned};
  static constexpr ConvPass kPass = ConvPass::{pass};
  static constexpr ConvMath kMath = ConvMath::{math};
  static constexpr U kRows = {rows}, kCols = {cols}, kDepth = {depth}, kResults = {results};
  static constexpr U kRowBlocks = {row_blocks}, kColBlocks = {col_blocks}, kSplits = {splits}, kTilesEach = {each}, kTiles = {tiles}, kDeep = {deep};
  static constexpr int kBM = {bm}, kBN = {bn}, kThreads = {threads}, kP = {pair}, kStride = {stride};
  static constexpr int kWarpRows = {warp_rows}, kWarpCols = {warp_cols};
  static constexpr bool kAlongA = {along_a}, kAlongB = {along_b};
  static constexpr int kVectorA = {vector_a}, kVectorB = {vector_b};
  static constexpr U kH = {h}, kW = {w}, kOH = {oh}, kOW = {ow}, kKW = {kw}, kCI = {ci}, kCO = {co};
  static constexpr I kC = {c}, kO = {o}, kSH = {sh}, kSW = {sw}, kDH = {dh}, kDW = {dw}, kLH = {lh}, kLW = {lw}, kPH = {ph}, kPW = {pw};
}};
extern "C" __global__ void __launch_bounds__({threads})
    {name}(const Conv::T* __restrict__ x, const Conv::T* __restrict__ y, Conv::Out* __restrict__ out) {{
  ConvImplicit<Conv>::run(x, y, out);
}}
)",
      fmt::arg("name", kernel_name("conv")), fmt::arg("memory", memory_type(s.dtype)),
      fmt::arg("to", l.splits > 1 ? register_name(s.dtype) : memory_type(s.dtype)),
      fmt::arg("index", wide ? "int64_t" : "int32_t"), fmt::arg("unsigned", wide ? "uint64_t" : "uint32_t"),
      fmt::arg("rows", l.rows), fmt::arg("cols", l.cols), fmt::arg("depth", l.depth), fmt::arg("results", l.results),
      fmt::arg("row_blocks", (l.rows + l.tile_rows - 1) / l.tile_rows),
      fmt::arg("col_blocks", (l.cols + l.tile_cols - 1) / l.tile_cols), fmt::arg("splits", l.splits),
      fmt::arg("each", l.tiles_each), fmt::arg("tiles", (l.depth + l.tile_depth - 1) / l.tile_depth),
      fmt::arg("deep", l.tile_depth), fmt::arg("bm", l.tile_rows), fmt::arg("bn", l.tile_cols),
      fmt::arg("threads", l.threads), fmt::arg("pair", math == ConvMath::half ? 2 : 1),
      fmt::arg("stride", s.dtype == DType::f64 ? kRowWords + 2 : kRowWords + 4),
      fmt::arg("warp_rows", warps / warp_cols), fmt::arg("warp_cols", warp_cols), fmt::arg("along_a", o.a_along_k),
      fmt::arg("along_b", o.b_along_k), fmt::arg("vector_a", vector_of(o.a_vector, o.a_along_k ? along : across)),
      fmt::arg("vector_b", vector_of(o.b_vector, o.b_along_k ? along : across)), fmt::arg("h", s.in[0]),
      fmt::arg("w", s.in[1]), fmt::arg("oh", out[0]), fmt::arg("ow", out[1]), fmt::arg("kw", s.kernel[1]),
      fmt::arg("ci", ci), fmt::arg("co", co), fmt::arg("c", s.in_channels), fmt::arg("o", s.out_channels),
      fmt::arg("sh", s.stride[0]), fmt::arg("sw", s.stride[1]), fmt::arg("dh", s.kernel_dilation[0]),
      fmt::arg("dw", s.kernel_dilation[1]), fmt::arg("lh", s.in_dilation[0]), fmt::arg("lw", s.in_dilation[1]),
      fmt::arg("ph", s.pad_lo[0]), fmt::arg("pw", s.pad_lo[1]), fmt::arg("pass", enumerator(pass)),
      fmt::arg("math", enumerator(math)));
}

std::string conv_sum_text(const ConvLayout& l, DType dtype) {
  return fmt::format(
      R"(#include "split_sum.cuh"
using namespace lockstep;
extern "C" __global__ void __launch_bounds__({threads}) {name}(const {sum}* __restrict__ parts, {memory}* __restrict__ out) {{
  SplitSum<{sum}, {memory}, {results}, {splits}, {each}, {down}>::run(parts, out);
}}
)",
      fmt::arg("name", kernel_name("conv_sum")), fmt::arg("sum", register_name(dtype)),
      fmt::arg("memory", memory_type(dtype)), fmt::arg("results", l.results), fmt::arg("splits", l.splits),
      fmt::arg("each", sum_each(l)), fmt::arg("threads", kConvSumThreads), fmt::arg("down", kConvSumThreads / 32));
}

int64_t conv_sum_blocks(const ConvLayout& l) { return (l.results / sum_each(l) + 31) / 32; }

}  // namespace lockstep
