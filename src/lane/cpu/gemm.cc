#include "lane/cpu/gemm.h"

#include <limits>
#include <vector>

#include "base/check.h"
#include "base/dispatch.h"
#include "lane/buffer.h"
#include "lane/cpu/gemm_tile.h"

namespace lockstep {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Costs in units of one multiplication. Packing an element of A costs `a`; of B, `b` if its rows are stored and
// `columns` if its columns are. Starting a tile costs `start`. A product of at most `one_thread` does not justify a
// second thread; small products are combined into tasks of cost `task`. Measured on Neoverse V1; wide tiles beat tall
// ones elsewhere too.
struct Costs {
  double a, b, columns, start;
  int64_t one_thread, task;
};
constexpr Costs kBlasCosts{11, 3, 10, 20000, int64_t{1} << 18, int64_t{1} << 16};
Costs costs_of(const HalfKernel* kernel) {
  if (!kernel) return kBlasCosts;
  // Packing takes a quarter of a cycle per element, whatever the speed of the multiplications.
  const auto speed = static_cast<double>(kernel->speed);
  return {speed / 4, speed / 3, speed / 4, 300 * speed, kernel->speed << 14, kernel->speed << 12};
}
// Half of a 1 MiB second-level cache.
constexpr int64_t kTileBytes = int64_t{512} << 10;
constexpr int64_t kEdge = 16;

// If the bits of an element depend on the tiles, these numbers of threads replace the real one. On some machines
// OpenBLAS uses other kernels for products below 10^6, so tiles must not be smaller than kSmall either: products below
// twice that are tiled for kFewThreads.
constexpr int64_t kSmall = int64_t{1} << 20;
constexpr int kFewThreads = 4, kSomeThreads = 16;

// The k chunks of a product whose result is one tile and whose sums are long. They depend on the shape alone.
constexpr int64_t kLongSum = 8192, kShortChunk = 2048, kChunks = 16;

// From this number of tiles of rows on, B is packed once for all of them. A task packs kPanelsPerTask panels.
constexpr int64_t kShareRight = 3, kPanelsPerTask = 4;

struct TileExtents {
  int64_t rows, cols;
};

// Candidate tile extents for a dimension of `extent`: equal shares of 1, 2, ... parts, with larger steps between large
// numbers of parts.
std::vector<int64_t> candidates(int64_t extent) {
  std::vector<int64_t> shares;
  const int64_t most = ceil_div(extent, kEdge);
  for (int64_t parts = 1; parts <= most; parts += 1 + parts / 16) {
    const int64_t share = std::min(extent, round_up(ceil_div(extent, parts), kEdge));
    if (shares.empty() || shares.back() != share) shares.push_back(share);
  }
  return shares;
}

// The tiles for which `workers` threads finish first, among those where every tile has at least `min_product`
// multiplications; {0, 0} if there are none.
TileExtents best_tiles(const GemmSpec& spec, const Costs& costs, int64_t element, int64_t depth, int64_t workers,
                       int64_t min_product) {
  const double pack_b = spec.transpose_b ? costs.columns : costs.b;
  TileExtents best{0, 0};
  double best_cost = std::numeric_limits<double>::infinity();
  const std::vector<int64_t> widths = candidates(spec.n);
  for (const int64_t rows : candidates(spec.m)) {
    for (const int64_t cols : widths) {
      if (rows * cols * element > kTileBytes) continue;
      const int64_t row_tiles = ceil_div(spec.m, rows), col_tiles = ceil_div(spec.n, cols);
      const int64_t last_rows = spec.m - (row_tiles - 1) * rows, last_cols = spec.n - (col_tiles - 1) * cols;
      if (row_tiles * col_tiles > 1 && last_rows * last_cols * depth < min_product) continue;
      const auto r = static_cast<double>(rows), c = static_cast<double>(cols), d = static_cast<double>(spec.k);
      const double tile = r * c * d + d * (costs.a * r + pack_b * c) + costs.start;
      const double cost = tile * static_cast<double>(ceil_div(row_tiles * col_tiles * spec.batch, workers));
      if (cost < best_cost) {
        best_cost = cost;
        best = {rows, cols};
      }
    }
  }
  return best;
}

TileExtents choose_tiles(const GemmSpec& spec, const HalfKernel* kernel, int64_t element, int threads) {
  // The length of the sums in one call of OpenBLAS.
  const int64_t depth = is_floating(spec.dtype) && size_of(spec.dtype) == 2 ? detail::half_panel(spec.k) : spec.k;
  const Costs costs = costs_of(kernel);
  const auto tiles = [&](int64_t workers, int64_t min_product) {
    return best_tiles(spec, costs, element, depth, workers, min_product);
  };
  const int64_t product = spec.m * spec.n * spec.k;
  if (product * spec.batch <= costs.one_thread) return tiles(1, 0);
  if (kernel || is_integer(spec.dtype)) return tiles(threads, 0);
  if (spec.m * spec.n * depth <= 2 * kSmall) return tiles(kFewThreads, 0);
  if (blas_is_position_independent(element == 8)) {
    const TileExtents best = tiles(threads, kSmall);
    if (best.rows > 0) return best;
  }
  return tiles(kSomeThreads, 0);
}

// Calls f(T{}) for the C++ type of a dtype.
template <class F>
void dispatch_gemm(DType dtype, F f) {
  with_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool> || is_converted_integer<T>)
      throw_error("matrix product: operands of dtype {}; convert them to i32, i64 or a float first", name(dtype));
    else
      f(T{});
  });
}

}  // namespace

Gemm Gemm::prepare(const GemmSpec& spec, int threads, const HalfKernel* kernel) {
  prepare_blas();
  LOCKSTEP_CHECK(!kernel || kernel->dtype == spec.dtype, "a kernel for another dtype");
  Gemm gemm;
  gemm.kernel_ = kernel;
  GemmSpec& s = gemm.spec_ = spec;
  dispatch_gemm(s.dtype, [](auto) {});
  const bool half = s.dtype == DType::bf16 || s.dtype == DType::f16;
  if (!s.out) s.out = s.dtype;
  if (*s.out != s.dtype && !(half && *s.out == DType::f32))
    throw_error("matrix product: a result of dtype {} from operands of dtype {}; convert the operands first",
                name(*s.out), name(s.dtype));
  LOCKSTEP_CHECK(s.m >= 0 && s.n >= 0 && s.k >= 0 && s.batch >= 0, "a negative extent");
  if (s.lda == GemmSpec::kDense) s.lda = std::max<int64_t>(1, s.transpose_a ? s.m : s.k);
  if (s.ldb == GemmSpec::kDense) s.ldb = std::max<int64_t>(1, s.transpose_b ? s.k : s.n);
  if (s.ldc == GemmSpec::kDense) s.ldc = std::max<int64_t>(1, s.n);
  if (s.stride_a == GemmSpec::kDense) s.stride_a = s.m * s.k;
  if (s.stride_b == GemmSpec::kDense) s.stride_b = s.k * s.n;
  if (s.stride_c == GemmSpec::kDense) s.stride_c = s.m * s.n;
  for (const int64_t extent : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc})
    if (extent > std::numeric_limits<int32_t>::max())
      throw_error("matrix product: an extent of {} exceeds 2^31 - 1; split the operands", extent);
  if (s.m == 0 || s.n == 0 || s.batch == 0) return gemm;

  const bool sums_in_memory = half && !(kernel && detail::half_depth(*kernel, s.k) >= s.k);
  const int64_t element = sums_in_memory ? 4 : size_of(*s.out);
  gemm.k_chunk_ = s.k;
  if (s.k >= kLongSum && s.m * s.n * s.batch * element <= kTileBytes) {
    gemm.k_chunk_ = std::max(kShortChunk, round_up(ceil_div(s.k, kChunks), 64));
    gemm.k_chunks_ = ceil_div(s.k, gemm.k_chunk_);
    gemm.tile_rows_ = s.m;
    gemm.tile_cols_ = s.n;
  } else {
    const TileExtents extents = choose_tiles(s, kernel, element, std::max(threads, 1));
    gemm.tile_rows_ = extents.rows;
    gemm.tile_cols_ = extents.cols;
  }
  gemm.row_tiles_ = ceil_div(s.m, gemm.tile_rows_);
  gemm.col_tiles_ = ceil_div(s.n, gemm.tile_cols_);
  const int64_t tile = std::max<int64_t>(1, gemm.tile_rows_ * gemm.tile_cols_ * s.k);
  const int64_t all = gemm.row_tiles_ * gemm.col_tiles_ * s.batch;
  const Costs costs = costs_of(kernel);
  gemm.tiles_per_task_ = all * tile <= costs.one_thread ? all : std::max<int64_t>(1, costs.task / tile);
  return gemm;
}

// One run of a Gemm: T is the dtype of the operands, Out that of the result.
template <class T, class Out>
class GemmRun {
  static constexpr bool kHasKernels = is_half<T> || std::is_same_v<T, float>;

 public:
  GemmRun(const Gemm& gemm, Pool& pool, const void* a, const void* b, void* c, Epilogue epilogue)
      : g_(gemm),
        s_(gemm.spec_),
        pool_(pool),
        a_(static_cast<const T*>(a)),
        b_(static_cast<const T*>(b)),
        c_(static_cast<Out*>(c)),
        epilogue_(epilogue) {}

  void run() {
    if (g_.k_chunks_ > 1) return run_chunked();
    BufferPtr packed;
    if constexpr (kHasKernels) {
      if (g_.kernel_ && s_.batch == 1 && g_.row_tiles_ >= kShareRight && s_.k > 0) packed = pack_right_tiles();
    }
    packed_ = packed ? packed->as<char>() : nullptr;
    const int64_t tiles = g_.row_tiles_ * g_.col_tiles_;
    pool_.parallel_range(s_.batch * tiles, g_.tiles_per_task_, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        // Neighboring tasks share columns of B, the larger operand in a forward pass.
        const int64_t batch = i / tiles, row = i % tiles % g_.row_tiles_, col = i % tiles / g_.row_tiles_;
        run_tile(batch, row * g_.tile_rows_, col * g_.tile_cols_, thread);
      }
    });
  }

 private:
  using Sum = detail::Sum<T>;
  static constexpr bool kSumIsOut = sizeof(Sum) == sizeof(Out) && !(is_half<T> && !std::is_same_v<Out, float>);

  // The matrices of one batch entry.
  detail::GemmOperand<T> a(int64_t batch) const { return {a_ + batch * s_.stride_a, s_.lda, s_.transpose_a}; }
  detail::GemmOperand<T> b(int64_t batch) const { return {b_ + batch * s_.stride_b, s_.ldb, s_.transpose_b}; }

  // The tile with its memory: in C or in scratch.
  Tile make_tile(int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int thread) {
    Tile tile{batch, row0, rows, col0, cols, nullptr, cols, thread};
    if (c_) {
      tile.data = c_ + batch * s_.stride_c + row0 * s_.ldc + col0;
      tile.ld = s_.ldc;
    } else {
      tile.data = pool_.scratch(thread, detail::kOutSlot, rows * cols * static_cast<int64_t>(sizeof(Out)));
    }
    return tile;
  }

  // Columns [0, cols) of a tile of B, packed once for all tiles of rows.
  int64_t packed_tile_bytes() const { return detail::packed_right_bytes(*g_.kernel_, g_.tile_cols_, s_.k); }
  BufferPtr pack_right_tiles() {
    const HalfKernel& kernel = *g_.kernel_;
    const BufferPtr out = allocate(g_.col_tiles_ * packed_tile_bytes());
    const int64_t share = kernel.cols * kPanelsPerTask, shares = ceil_div(g_.tile_cols_, share);
    pool_.parallel_for(g_.col_tiles_ * shares, [&](int64_t i, int) {
      const int64_t tile = i / shares, col0 = tile * g_.tile_cols_, cols = std::min(g_.tile_cols_, s_.n - col0);
      const int64_t begin = i % shares * share, end = std::min(begin + share, cols);
      if (begin >= cols) return;
      detail::pack_right_columns<T>(kernel, b(0).at(0, col0), begin, end, cols, s_.k,
                                    out->as<char>() + tile * packed_tile_bytes());
    });
    return out;
  }

  void run_tile(int64_t batch, int64_t row0, int64_t col0, int thread) {
    const int64_t rows = std::min(g_.tile_rows_, s_.m - row0), cols = std::min(g_.tile_cols_, s_.n - col0);
    const Tile tile = make_tile(batch, row0, rows, col0, cols, thread);
    const auto left = a(batch).at(row0, 0);
    const auto right = b(batch).at(0, col0);
    if constexpr (kHasKernels) {
      if (g_.kernel_) {
        HalfResult result;
        if constexpr (kSumIsOut)
          result.sums = static_cast<Sum*>(tile.data), result.ld = tile.ld;
        else
          result.rounded = tile.data, result.rounded_ld = tile.ld;
        const char* const packed = packed_ ? packed_ + col0 / g_.tile_cols_ * packed_tile_bytes() : nullptr;
        detail::multiply_half<T>(*g_.kernel_, pool_, thread, left, {right, packed}, rows, cols, s_.k, result);
        if (epilogue_) epilogue_(tile);
        return;
      }
    }
    if constexpr (kSumIsOut) {
      detail::multiply<T>(pool_, thread, left, right, rows, cols, s_.k, static_cast<Sum*>(tile.data), tile.ld);
    } else {
      auto* const sums =
          static_cast<Sum*>(pool_.scratch(thread, detail::kSumSlot, rows * cols * static_cast<int64_t>(sizeof(Sum))));
      detail::multiply<T>(pool_, thread, left, right, rows, cols, s_.k, sums, cols);
      detail::convert(sums, cols, rows, cols, static_cast<Out*>(tile.data), tile.ld);
    }
    if (epilogue_) epilogue_(tile);
  }

  // For sums too long for one task: computes chunks of k into a workspace [batch, chunk, m, n], then adds them in the
  // order of the chunks.
  void run_chunked() {
    const int64_t matrix = s_.m * s_.n, chunks = g_.k_chunks_;
    const BufferPtr workspace = allocate(s_.batch * chunks * matrix * static_cast<int64_t>(sizeof(Sum)));
    Sum* const partial = workspace->as<Sum>();
    pool_.parallel_for(s_.batch * chunks, [&](int64_t i, int thread) {
      const int64_t batch = i / chunks, k0 = i % chunks * g_.k_chunk_, k = std::min(g_.k_chunk_, s_.k - k0);
      const auto left = a(batch).at(0, k0), right = b(batch).at(k0, 0);
      Sum* const sums = partial + i * matrix;
      if constexpr (kHasKernels) {
        if (g_.kernel_)
          return detail::multiply_half<T>(*g_.kernel_, pool_, thread, left, {right}, s_.m, s_.n, k,
                                          {.sums = sums, .ld = s_.n});
      }
      detail::multiply<T>(pool_, thread, left, right, s_.m, s_.n, k, sums, s_.n);
    });
    const int64_t rows_per_tile = std::max<int64_t>(1, 4096 / s_.n), tiles = ceil_div(s_.m, rows_per_tile);
    pool_.parallel_for(s_.batch * tiles, [&](int64_t i, int thread) {
      const int64_t batch = i / tiles, row0 = i % tiles * rows_per_tile, rows = std::min(rows_per_tile, s_.m - row0);
      const Tile tile = make_tile(batch, row0, rows, 0, s_.n, thread);
      Sum* const total = partial + batch * chunks * matrix + row0 * s_.n;
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        const Sum* const more = total + chunk * matrix;
        for (int64_t e = 0; e < rows * s_.n; ++e) total[e] = static_cast<Sum>(total[e] + more[e]);
      }
      detail::convert(total, s_.n, rows, s_.n, static_cast<Out*>(tile.data), tile.ld);
      if (epilogue_) epilogue_(tile);
    });
  }

  const Gemm& g_;
  const GemmSpec& s_;
  Pool& pool_;
  const T* a_;
  const T* b_;
  Out* c_;
  Epilogue epilogue_;
  const char* packed_ = nullptr;  // tiles of B, if they are shared
};

void Gemm::run(Pool& pool, const void* a, const void* b, void* c, Epilogue epilogue) const {
  if (spec_.m == 0 || spec_.n == 0 || spec_.batch == 0) return;
  dispatch_gemm(spec_.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_half<T>) {
      if (*spec_.out == DType::f32) return GemmRun<T, float>(*this, pool, a, b, c, epilogue).run();
    }
    GemmRun<T, T>(*this, pool, a, b, c, epilogue).run();
  });
}

}  // namespace lockstep
