#include "array/pieces.h"

#include <cstring>

namespace lockstep::detail {
namespace {

// copy(offset in the whole, offset in the piece, bytes) for every stretch of the box.
template <class Copy>
void for_each_stretch(const Shape& shape, const IndexBox& box, int64_t size, Copy copy) {
  // Dimensions from `inner` on are taken whole, so that one stretch spans them and the one before.
  size_t inner = shape.size();
  int64_t run = size;
  while (inner > 0 && box[inner - 1].size() == shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= box[inner - 1].size();
  const size_t outer = inner > 0 ? inner - 1 : 0;
  int64_t stretches = 1;
  for (size_t d = 0; d < outer; ++d) stretches *= box[d].size();
  if (run == 0 || stretches == 0) return;
  std::vector<int64_t> strides(shape.size(), size);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  int64_t base = 0;
  for (size_t d = 0; d < shape.size(); ++d) base += box[d].begin * strides[d];
  std::vector<int64_t> at(outer, 0);
  for (int64_t i = 0; i < stretches; ++i) {
    int64_t offset = base;
    for (size_t d = 0; d < outer; ++d) offset += at[d] * strides[d];
    copy(offset, i * run, run);
    for (size_t d = outer; d-- > 0 && ++at[d] == box[d].size();) at[d] = 0;
  }
}

}  // namespace

int64_t stretch(const Shape& shape, const IndexBox& box) {
  int64_t offset = 0, inner = 1;
  bool whole = true;  // all dimensions behind this one are
  for (size_t d = shape.size(); d-- > 0;) {
    if (!whole && box[d].size() != 1) return -1;
    offset += box[d].begin * inner;
    whole = whole && box[d].size() == shape[d];
    inner *= shape[d];
  }
  return offset;
}

void copy_out(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece) {
  for_each_stretch(shape, box, size, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(piece + to, whole + from, static_cast<size_t>(bytes));
  });
}

void copy_in(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole) {
  for_each_stretch(shape, box, size, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(whole + to, piece + from, static_cast<size_t>(bytes));
  });
}

BufferPtr put_together(const LanePieces& pieces, const Type& type) {
  bool cut = false;
  for (const auto& axes : pieces.cuts) cut |= !axes.empty();
  if (!cut) return pieces.buffers[0];
  BufferPtr whole = allocate(type.bytes());
  for (size_t lane = 0; lane < pieces.buffers.size(); ++lane)
    copy_in(pieces.buffers[lane]->data(), type.shape,
            lane_box(pieces.grid, pieces.cuts, type.shape, static_cast<int64_t>(lane)), size_of(type.dtype),
            whole->data());
  return whole;
}

}  // namespace lockstep::detail
