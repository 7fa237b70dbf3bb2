#include "ops/cuda/conv_text.h"

#include <algorithm>

#include "ops/cuda/text.h"

namespace lockstep {
namespace {

constexpr int kRowWords = 16;             // of a row of a tile: its elements along the depth, two 16-bit floats a word
constexpr int64_t kConvBlocks = 4 * 132;  // that keep a large GPU busy; more stretches are not made
constexpr int64_t kLeastTiles = 8;        // along the depth, that are worth a stretch

ConvSpec::Pair out_of(const ConvSpec& s) {
  ConvSpec::Pair out{};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t dilated = s.in[d] == 0 ? 0 : (s.in[d] - 1) * s.in_dilation[d] + 1;
    const int64_t room = dilated + s.pad_lo[d] + s.pad_hi[d] - (s.kernel[d] - 1) * s.kernel_dilation[d] - 1;
    out[d] = room / s.stride[d] + 1;
  }
  return out;
}

// The widest loads of neighbors, of at most `most` elements.
int64_t vector_of(int64_t channels, int64_t most) {
  int64_t v = 1;
  while (v * 2 <= most && channels % (v * 2) == 0) v *= 2;
  return v;
}

// Sizes, and where elements of x, w and y lie.
constexpr const char* kPlaces = R"(
// Where window position `tap` = (a, b, channel) of pixel `pixel` of y lies in x, or -1.
inline I in_x(U pixel, U tap, I group) {
  const U ab = tap / kCI;
  const I h = I(pixel / kOW % kOH) * kSH + I(ab / kKW) * kDH - kPH;
  const I v = I(pixel % kOW) * kSW + I(ab % kKW) * kDW - kPW;
  if (h < 0 || v < 0 || h % kLH != 0 || v % kLW != 0 || h / kLH >= I(kH) || v / kLW >= I(kW)) return -1;
  return ((I(pixel / (kOW * kOH)) * I(kH) + h / kLH) * I(kW) + v / kLW) * kC + group * I(kCI) + I(tap % kCI);
}
// Where the result whose window position `tap` = (a, b, channel of y) is pixel `pixel` of x lies in y, or -1.
inline I in_y(U pixel, U tap, I group) {
  const U ab = tap / kCO;
  const I h = I(pixel / kW % kH) * kLH + kPH - I(ab / kKW) * kDH;
  const I v = I(pixel % kW) * kLW + kPW - I(ab % kKW) * kDW;
  if (h < 0 || v < 0 || h % kSH != 0 || v % kSW != 0 || h / kSH >= I(kOH) || v / kSW >= I(kOW)) return -1;
  return ((I(pixel / (kW * kH)) * I(kOH) + h / kSH) * I(kOW) + v / kSW) * kO + group * I(kCO) + I(tap % kCO);
}
)";

struct Operands {
  const char *a, *b;           // where A(row, k) and B(col, k) lie, or -1
  const char* out;             // where C(row, col) lies
  bool a_along_k, b_along_k;   // do neighbors lie along the depth, or along the rows (columns)?
  int64_t a_vector, b_vector;  // channels that lie side by side
};

Operands operands_of(ConvPass pass, int64_t ci, int64_t co) {
  switch (pass) {
    case ConvPass::forward:
      return {"in_x(row, k, group)",
              "I(k) * kO + group * I(kCO) + I(row)",
              "I(row) * kO + group * I(kCO) + I(col)",
              true,
              false,
              ci,
              co};
    case ConvPass::input_grad:
      return {"in_y(row, k, group)",
              "(I(k / kCO) * I(kCI) + I(row)) * kO + group * I(kCO) + I(k % kCO)",
              "I(row) * kC + group * I(kCI) + I(col)",
              true,
              true,
              co,
              co};
    case ConvPass::filter_grad:
      break;
  }
  return {"in_x(k, row, group)",
          "I(k) * kO + group * I(kCO) + I(row)",
          "I(row) * kO + group * I(kCO) + I(col)",
          false,
          false,
          ci,
          co};
}

// Moves a tile of an operand to shared memory: rows (columns) of it, each kRowWords words along the depth. A unit is
// what one thread moves at once; threads side by side write words that lie in different banks.
constexpr const char* kTileText = R"(
template <int kV>
struct alignas(kV * sizeof(T)) Pack { T v[kV]; };
template <int kCount>
struct alignas(kCount * sizeof(Word)) Group { Word v[kCount]; };
template <int kCount>
struct alignas(kCount * sizeof(Out)) Results { Out v[kCount]; };

template <int kRows, bool kAlongK, int kV>
struct Tile {
  static constexpr int kE = kAlongK ? (kV > kP ? kV : kP) : kP;  // elements along the depth of a unit
  static constexpr int kU = kAlongK ? 1 : kV;                    // rows of a unit
  static constexpr int kWide = kE / kP;                          // words along the depth of a unit
  static constexpr int kLoads = kAlongK ? kE / kV : kP;
  static constexpr int kAcross = 16 / kWide;
  static constexpr int kUnits = kRows / kU * kAcross;
  static constexpr int kEach = (kUnits + kThreads - 1) / kThreads;
  Pack<kV> held[kEach][kLoads];

  template <class Place>
  void load(const T* __restrict__ from, U row0, U k0, Place place) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int u = int(threadIdx.x) + e * kThreads;
      const U row = row0 + U(u / kAcross * kU), k = k0 + U(u % kAcross * kE);
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        Pack<kV> p{};
        const I at = u < kUnits ? place(row, k + U(l * (kAlongK ? kV : 1))) : I(-1);
        if (at >= 0) p = *reinterpret_cast<const Pack<kV>*>(from + at);
        held[e][l] = p;
      }
    }
  }

  void store(Word (*to)[kStride]) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int u = int(threadIdx.x) + e * kThreads;
      if (u >= kUnits) break;
      const int row = u / kAcross * kU, at = u % kAcross * kWide;
      if constexpr (kAlongK) {
        Group<kWide> words;
#pragma unroll
        for (int w = 0; w < kWide; ++w)
          words.v[w] = word(held[e][w * kP / kV].v[w * kP % kV], held[e][(w * kP + kP - 1) / kV].v[(w * kP + kP - 1) % kV]);
        *reinterpret_cast<Group<kWide>*>(&to[row][at]) = words;
      } else {
#pragma unroll
        for (int r = 0; r < kV; ++r) to[row + r][at] = word(held[e][0].v[r], held[e][kP - 1].v[r]);
      }
    }
  }
};
)";

constexpr const char* kFma = R"(
// A thread computes rows ty, ty + 16, ... and columns tx, tx + 16, ... of the tile.
struct Sums {
  static constexpr int kTM = kBM / 16, kTN = kBN / 16, kQ = 16 / sizeof(Word);
  Word v[kTM][kTN] = {};
  void add(const Word (*a)[kStride], const Word (*b)[kStride]) {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int k = 0; k < 16; k += kQ) {
      Group<kQ> x[kTM], y[kTN];
#pragma unroll
      for (int i = 0; i < kTM; ++i) x[i] = *reinterpret_cast<const Group<kQ>*>(&a[ty + 16 * i][k]);
#pragma unroll
      for (int j = 0; j < kTN; ++j) y[j] = *reinterpret_cast<const Group<kQ>*>(&b[tx + 16 * j][k]);
#pragma unroll
      for (int q = 0; q < kQ; ++q)
#pragma unroll
        for (int i = 0; i < kTM; ++i)
#pragma unroll
          for (int j = 0; j < kTN; ++j) v[i][j] = multiply_add(x[i].v[q], y[j].v[q], v[i][j]);
    }
  }
  template <class F>
  void each(F f) const {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; ++j) f(ty + 16 * i, tx + 16 * j, v[i][j]);
  }
};
)";

constexpr const char* kMma = R"(
// A warp computes kTM x kTN products of 16 x 8.
struct Sums {
  static constexpr int kTM = kBM / kWarpRows / 16, kTN = kBN / kWarpCols / 8;
  float v[kTM][kTN][4] = {};
  static int row0() { return int(threadIdx.x) / 32 / kWarpCols * (kTM * 16) + int(threadIdx.x) % 32 / 4; }
  static int col0() { return int(threadIdx.x) / 32 % kWarpCols * (kTN * 8); }
  void add(const Word (*a)[kStride], const Word (*b)[kStride]) {
    const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
    for (int k = 0; k < 16; k += 8) {
      Word x[kTM][4], y[kTN][2];
#pragma unroll
      for (int i = 0; i < kTM; ++i) {
        const int row = row0() + 16 * i;
        x[i][0] = a[row][k + t];
        x[i][1] = a[row + 8][k + t];
        x[i][2] = a[row][k + t + 4];
        x[i][3] = a[row + 8][k + t + 4];
      }
#pragma unroll
      for (int j = 0; j < kTN; ++j) {
        const int col = col0() + 8 * j + g;
        y[j][0] = b[col][k + t];
        y[j][1] = b[col][k + t + 4];
      }
#pragma unroll
      for (int i = 0; i < kTM; ++i)
#pragma unroll
        for (int j = 0; j < kTN; ++j) mma(v[i][j], x[i], y[j]);
    }
  }
  template <class F>
  void each(F f) const {
    const int t = int(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = row0() + 16 * i + 8 * h, col = col0() + 8 * j + 2 * t;
          if constexpr (kCols % 2 == 0) {
            f(row, col, v[i][j][2 * h], v[i][j][2 * h + 1]);
          } else {
            f(row, col, v[i][j][2 * h]);
            f(row, col + 1, v[i][j][2 * h + 1]);
          }
        }
  }
};
)";

constexpr const char* kMain = R"(
extern "C" __global__ void __launch_bounds__(kThreads) f(const T* __restrict__ x, const T* __restrict__ y, Out* __restrict__ out) {
  alignas(16) __shared__ Word as[2][kBM][kStride];
  alignas(16) __shared__ Word bs[2][kBN][kStride];
  U block = blockIdx.x;
  const U col0 = block % kColBlocks * kBN;
  block /= kColBlocks;
  const U row0 = block % kRowBlocks * kBM;
  block /= kRowBlocks;
  const U split = block % kSplits;
  const I group = I(block / kSplits);
  const auto in_a = [=](U row, U k) { return row < kRows && k < kDepth ? a_place(row, k, group) : I(-1); };
  const auto in_b = [=](U row, U k) { return row < kCols && k < kDepth ? b_place(row, k, group) : I(-1); };
  Tile<kBM, kAlongA, kVectorA> a;
  Tile<kBN, kAlongB, kVectorB> b;
  Sums sums;
  const U first = split * kTilesEach, end = first + kTilesEach < kTiles ? first + kTilesEach : kTiles;
  a.load(x, row0, first * kDeep, in_a);
  b.load(y, col0, first * kDeep, in_b);
  a.store(as[0]);
  b.store(bs[0]);
  __syncthreads();
  for (U tile = first; tile < end; ++tile) {
    const U now = (tile - first) % 2;
    if (tile + 1 < end) {
      a.load(x, row0, (tile + 1) * kDeep, in_a);
      b.load(y, col0, (tile + 1) * kDeep, in_b);
    }
    sums.add(as[now], bs[now]);
    if (tile + 1 < end) {
      a.store(as[1 - now]);
      b.store(bs[1 - now]);
    }
    __syncthreads();
  }
  Out* to = out + uint64_t(split) * kResults;
  // One element, or neighbors that lie side by side.
  sums.each([&](int r, int c, auto... sum) {
    const U row = row0 + U(r), col = col0 + U(c);
    using Some = Results<sizeof...(sum)>;
    if (row < kRows && col < kCols) *reinterpret_cast<Some*>(to + out_place(row, col, group)) = Some{{Store<Out>::of(sum)...}};
  });
}
)";

// Results that a thread adds up side by side.
int64_t sum_each(const ConvLayout& l) { return l.results % 2 == 0 ? 2 : 1; }

std::string word_text(DType dtype, ConvMath math) {
  const char* sum = dtype == DType::f64 ? "double" : "float";
  if (math == ConvMath::fma)
    return fmt::format(
        "using Word = {};\ninline Word word(T x, T) {{ return load(x); }}\n"
        "inline Word multiply_add(Word a, Word b, Word c) {{ return {}(a, b, c); }}\n",
        sum, dtype == DType::f64 ? "__fma_rn" : "__fmaf_rn");
  const char* word = math == ConvMath::tf32
                         ? "inline Word word(float x, float) { return nearest_tf32(x); }\n"
                         : "inline Word word(T low, T high) { return Word(low.bits) | Word(high.bits) << 16; }\n";
  return fmt::format(
      "using Word = uint32_t;\n{}"
      "inline void mma(float (&c)[4], const Word (&a)[4], const Word (&b)[2]) {{ multiply_one(T{{}}, c, a, b); }}\n",
      word);
}

}  // namespace

ConvLayout conv_layout(ConvPass pass, const ConvSpec& s, ConvMath math) {
  ConvLayout l;
  const ConvSpec::Pair out = out_of(s);
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
  const bool large = s.dtype != DType::f64 && l.tile_cols >= 32 && l.depth >= 128 && blocks_of(128) >= kConvBlocks;
  l.tile_rows = l.rows <= 32 ? 32 : large ? 128 : 64;
  const int64_t tiles = (l.depth + l.tile_depth - 1) / l.tile_depth, blocks = blocks_of(l.tile_rows);
  l.splits = std::clamp<int64_t>(kConvBlocks / blocks, 1, std::max<int64_t>(tiles / kLeastTiles, 1));
  l.tiles_each = (tiles + l.splits - 1) / l.splits;
  l.splits = (tiles + l.tiles_each - 1) / l.tiles_each;
  l.blocks = blocks * l.splits;
  l.results = l.rows * l.cols * s.groups;
  return l;
}

std::string conv_text(ConvPass pass, const ConvSpec& s, ConvMath math) {
  const ConvLayout l = conv_layout(pass, s, math);
  const ConvSpec::Pair out = out_of(s);
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
  std::string text = fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
using T = {memory};
using Out = {to};
using I = {index};
using U = {unsigned};
constexpr U kRows = {rows}, kCols = {cols}, kDepth = {depth}, kResults = {results};
constexpr U kRowBlocks = {row_blocks}, kColBlocks = {col_blocks}, kSplits = {splits}, kTilesEach = {each}, kTiles = {tiles}, kDeep = {deep};
constexpr int kBM = {bm}, kBN = {bn}, kThreads = {threads}, kP = {pair}, kStride = {stride};
constexpr int kWarpRows = {warp_rows}, kWarpCols = {warp_cols};
constexpr bool kAlongA = {along_a}, kAlongB = {along_b};
constexpr int kVectorA = {vector_a}, kVectorB = {vector_b};
constexpr U kH = {h}, kW = {w}, kOH = {oh}, kOW = {ow}, kKW = {kw}, kCI = {ci}, kCO = {co};
constexpr I kC = {c}, kO = {o}, kSH = {sh}, kSW = {sw}, kDH = {dh}, kDW = {dw}, kLH = {lh}, kLW = {lw}, kPH = {ph}, kPW = {pw};
)",
      fmt::arg("memory", memory_type(s.dtype)),
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
      fmt::arg("ph", s.pad_lo[0]), fmt::arg("pw", s.pad_lo[1]));
  text += word_text(s.dtype, math) + kPlaces;
  text += fmt::format("inline I a_place(U row, U k, I group) {{ return {}; }}\n", o.a);
  text += fmt::format("inline I b_place(U row, U k, I group) {{ return {}; }}\n", o.b);
  text += fmt::format("inline I out_place(U row, U col, I group) {{ return {}; }}\n", o.out);
  return text + kTileText + (math == ConvMath::fma ? kFma : kMma) + kMain;
}

std::string conv_sum_text(const ConvLayout& l, DType dtype) {
  return fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
using Sum = {sum};
// A thread adds up every {down}th part of {each} results, {together} at a time on their way.
struct alignas({each} * sizeof(Sum)) Some {{ Sum v[{each}]; }};
extern "C" __global__ void __launch_bounds__({threads}) f(const Sum* __restrict__ parts, {memory}* __restrict__ out) {{
  __shared__ Some all[{down}][32];
  const uint32_t tx = threadIdx.x % 32u, ty = threadIdx.x / 32u;
  const uint64_t i = (uint64_t(blockIdx.x) * 32u + tx) * {each}u;
  Some sum{{}};
  if (i < {results}u)
#pragma unroll {together}
    for (uint32_t s = ty; s < {splits}u; s += {down}u) {{
      const Some x = *reinterpret_cast<const Some*>(parts + s * uint64_t({results}u) + i);
#pragma unroll
      for (int e = 0; e < {each}; ++e) sum.v[e] += x.v[e];
    }}
  all[ty][tx] = sum;
  __syncthreads();
  if (ty > 0 || i >= {results}u) return;
  for (uint32_t y = 1; y < {down}u; ++y)
#pragma unroll
    for (int e = 0; e < {each}; ++e) sum.v[e] += all[y][tx].v[e];
#pragma unroll
  for (int e = 0; e < {each}; ++e) out[i + e] = Store<{memory}>::of(sum.v[e]);
}}
)",
      fmt::arg("sum", register_name(dtype)), fmt::arg("memory", memory_type(dtype)), fmt::arg("results", l.results),
      fmt::arg("splits", l.splits), fmt::arg("each", sum_each(l)), fmt::arg("threads", kConvSumThreads),
      fmt::arg("down", kConvSumThreads / 32), fmt::arg("together", 8));
}

int64_t conv_sum_blocks(const ConvLayout& l) { return (l.results / sum_each(l) + 31) / 32; }

}  // namespace lockstep
