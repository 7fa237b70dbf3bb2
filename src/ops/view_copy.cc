#include "ops/view_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr size_t kMaxRank = 32;
constexpr int64_t kPiece = 32768;      // elements of a row per task
constexpr int64_t kCopyGrain = 16384;  // minimum elements per task
constexpr int64_t kByteGrain = 1 << 18;
constexpr int64_t kTileBytes = 128;  // per side of a tile

template <int kBytes>
void move_one(const std::byte* in, std::byte* out) {
  std::memcpy(out, in, kBytes);
}

// to[c][r] = from[r][c] for r < rows, c < columns; strides between rows are in bytes.
template <int kBytes>
void turn(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows, int64_t columns) {
  int64_t r = 0;
  if constexpr (kBytes == 4) {
    // Four by four in registers needs a quarter of the loads and stores.
    using Four = uint32_t __attribute__((vector_size(16)));
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        std::array<Four, 4> x;
        for (int64_t i = 0; i < 4; ++i) std::memcpy(&x[i], from + (r + i) * from_stride + c * 4, 16);
        const Four a = __builtin_shufflevector(x[0], x[2], 0, 4, 1, 5),
                   b = __builtin_shufflevector(x[1], x[3], 0, 4, 1, 5);
        const Four d = __builtin_shufflevector(x[0], x[2], 2, 6, 3, 7),
                   e = __builtin_shufflevector(x[1], x[3], 2, 6, 3, 7);
        const std::array<Four, 4> y = {
            __builtin_shufflevector(a, b, 0, 4, 1, 5), __builtin_shufflevector(a, b, 2, 6, 3, 7),
            __builtin_shufflevector(d, e, 0, 4, 1, 5), __builtin_shufflevector(d, e, 2, 6, 3, 7)};
        for (int64_t i = 0; i < 4; ++i) std::memcpy(to + (c + i) * to_stride + r * 4, &y[i], 16);
      }
      for (; c < columns; ++c)
        for (int64_t i = r; i < r + 4; ++i) move_one<4>(from + i * from_stride + c * 4, to + c * to_stride + i * 4);
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      move_one<kBytes>(from + r * from_stride + c * kBytes, to + c * to_stride + r * kBytes);
}

// The offsets of an index in both layouts, in bytes.
struct CopyOffsets {
  int64_t in = 0, out = 0;
};

// Visits the indices [begin, end) of the row-major space of the first `rank` dims.
template <class Dim, class F>
void walk(const Dim* dims, size_t rank, int64_t begin, int64_t end, F&& f) {
  std::array<int64_t, kMaxRank> index;
  CopyOffsets place;
  int64_t rest = begin;
  for (size_t d = rank; d-- > 0;) {
    index[d] = rest % dims[d].size;
    rest /= dims[d].size;
    place.in += index[d] * dims[d].in;
    place.out += index[d] * dims[d].out;
  }
  for (int64_t i = begin; i < end; ++i) {
    f(place);
    for (size_t d = rank; d-- > 0;) {
      place.in += dims[d].in;
      place.out += dims[d].out;
      if (++index[d] < dims[d].size) break;
      index[d] = 0;
      place.in -= dims[d].in * dims[d].size;
      place.out -= dims[d].out * dims[d].size;
    }
  }
}

}  // namespace

AffineCopy::AffineCopy(int64_t element_bytes, const Shape& shape, const std::vector<int64_t>& in_strides,
                       const std::vector<int64_t>& out_strides)
    : bytes_(element_bytes) {
  LOCKSTEP_CHECK(in_strides.size() == shape.size() && out_strides.size() == shape.size());
  elements_ = count(shape);
  if (elements_ == 0) return;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) dims_.push_back({shape[d], in_strides[d] * bytes_, out_strides[d] * bytes_});
  collapse();
  widen();
  choose_mode();
}

void AffineCopy::collapse() {
  std::vector<Dim> merged;
  for (const Dim& d : dims_) {
    if (!merged.empty() && merged.back().in == d.in * d.size && merged.back().out == d.out * d.size) {
      merged.back() = {merged.back().size * d.size, d.in, d.out};
    } else {
      merged.push_back(d);
    }
  }
  if (merged.empty()) merged.push_back({1, bytes_, bytes_});
  dims_ = std::move(merged);
  LOCKSTEP_CHECK(dims_.size() <= kMaxRank, "a copy of rank {}", dims_.size());
}

// Makes a short contiguous row of 2 to 16 bytes one wide element, so that tiles and strides work on rows.
void AffineCopy::widen() {
  const Dim inner = dims_.back();
  const int64_t row = inner.size * bytes_;
  if (dims_.size() < 2 || inner.in != bytes_ || inner.out != bytes_) return;
  if (row != 2 && row != 4 && row != 8 && row != 16) return;
  dims_.pop_back();
  elements_ /= inner.size;
  bytes_ = row;
}

void AffineCopy::choose_mode() {
  const Dim inner = dims_.back();
  if (inner.in == bytes_ && inner.out == bytes_) {
    mode_ = Mode::rows;
    return;
  }
  if (inner.in == 0 && inner.out == bytes_) {
    mode_ = Mode::fill;
    return;
  }
  mode_ = Mode::strided;
  for (size_t d = 0; d + 1 < dims_.size(); ++d) {
    if (dims_[d].in != bytes_ || inner.out != bytes_ || dims_[d].size < 4 || inner.size < 4) continue;
    const Dim across = dims_[d];
    dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(d));
    dims_.insert(dims_.end() - 1, across);
    mode_ = Mode::tiled;
    return;
  }
}

void AffineCopy::operator()(const void* in, void* out, Pool& pool) const {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  if (mode_ == Mode::empty) return;
  switch (bytes_) {
    case 1:
      return run<1>(from, to, pool);
    case 2:
      return run<2>(from, to, pool);
    case 4:
      return run<4>(from, to, pool);
    case 8:
      return run<8>(from, to, pool);
    default:
      break;
  }
  LOCKSTEP_CHECK(bytes_ == 16, "an element of {} bytes", bytes_);
  run<16>(from, to, pool);
}

template <int kBytes>
void AffineCopy::run(const std::byte* in, std::byte* out, Pool& pool) const {
  if (mode_ == Mode::tiled) return run_tiles<kBytes>(in, out, pool);
  const Dim inner = dims_.back();
  auto copy_row = [&](const std::byte* from, std::byte* to, int64_t n) {
    if (mode_ == Mode::rows) {
      std::memcpy(to, from, static_cast<size_t>(n * kBytes));
    } else if (mode_ == Mode::fill) {
      std::array<std::byte, kBytes> element;
      move_one<kBytes>(from, element.data());
      for (int64_t i = 0; i < n; ++i) move_one<kBytes>(element.data(), to + i * kBytes);
    } else if (inner.out == kBytes) {
      for (int64_t i = 0; i < n; ++i) move_one<kBytes>(from + i * inner.in, to + i * kBytes);
    } else {
      for (int64_t i = 0; i < n; ++i) move_one<kBytes>(from + i * inner.in, to + i * inner.out);
    }
  };
  const int64_t rows = elements_ / inner.size;
  const size_t outer = dims_.size() - 1;
  if (inner.size <= kPiece) {
    pool.parallel_range(rows, std::max<int64_t>(kCopyGrain / inner.size, 1), [&](int64_t begin, int64_t end, int) {
      walk(dims_.data(), outer, begin, end, [&](CopyOffsets p) { copy_row(in + p.in, out + p.out, inner.size); });
    });
    return;
  }
  const int64_t pieces = (inner.size + kPiece - 1) / kPiece;
  pool.parallel_for(rows * pieces, [&](int64_t task, int) {
    const int64_t begin = task % pieces * kPiece, n = std::min(kPiece, inner.size - begin);
    walk(dims_.data(), outer, task / pieces, task / pieces + 1,
         [&](CopyOffsets p) { copy_row(in + p.in + begin * inner.in, out + p.out + begin * inner.out, n); });
  });
}

// Dimension `across` is contiguous in the source and `along` in the result. A tile passes through a buffer in the L1
// cache, so that every cache line of source and result is touched once, whatever the strides.
template <int kBytes>
void AffineCopy::run_tiles(const std::byte* in, std::byte* out, Pool& pool) const {
  constexpr int64_t kSide = std::max<int64_t>(kTileBytes / kBytes, 16);
  const Dim across = dims_[dims_.size() - 2], along = dims_.back();
  const int64_t across_tiles = (across.size + kSide - 1) / kSide, along_tiles = (along.size + kSide - 1) / kSide;
  const size_t outer = dims_.size() - 2;
  const int64_t tiles = elements_ / (across.size * along.size) * across_tiles * along_tiles;
  const int64_t tile_elements = std::min(kSide, across.size) * std::min(kSide, along.size);
  pool.parallel_range(tiles, std::max<int64_t>(kCopyGrain / tile_elements, 1), [&](int64_t begin, int64_t end, int) {
    std::array<std::byte, kSide * kSide * kBytes> buffer;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t a0 = tile / along_tiles % across_tiles * kSide, a1 = std::min(a0 + kSide, across.size);
      const int64_t b0 = tile % along_tiles * kSide, b1 = std::min(b0 + kSide, along.size);
      const int64_t where = tile / (along_tiles * across_tiles);
      walk(dims_.data(), outer, where, where + 1, [&](CopyOffsets p) {
        turn<kBytes>(in + p.in + a0 * kBytes + b0 * along.in, along.in, buffer.data(), kSide * kBytes, b1 - b0,
                     a1 - a0);
        for (int64_t a = a0; a < a1; ++a)
          std::memcpy(out + p.out + a * across.out + b0 * kBytes, buffer.data() + (a - a0) * kSide * kBytes,
                      static_cast<size_t>((b1 - b0) * kBytes));
      });
    }
  });
}

AffineCopy view_copy(DType dtype, const Shape& out, const View& view) {
  return AffineCopy(size_of(dtype), out, view.strides, dense_strides(out));
}

void copy_bytes(const void* in, void* out, int64_t bytes, Pool& pool) {
  if (in == out || bytes == 0) return;
  pool.parallel_range(bytes, kByteGrain, [&](int64_t begin, int64_t end, int) {
    std::memcpy(static_cast<std::byte*>(out) + begin, static_cast<const std::byte*>(in) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace lockstep
