// AffineCopy: copies elements from one strided layout to another. The kernel of every op that only moves elements.
// Immutable after construction: any thread may run it.
#pragma once

#include <cstdint>
#include <vector>

#include "lane/pool.h"
#include "program/op.h"

namespace lockstep {

// out[sum(out_strides[d] * i[d])] = in[sum(in_strides[d] * i[d])] for every index i inside `shape`. Strides are in
// elements. The constructor collapses dimensions. Contiguous rows are copied as bytes; two transposed dimensions are
// copied in tiles.
class AffineCopy {
 public:
  AffineCopy(int64_t element_bytes, const Shape& shape, const std::vector<int64_t>& in_strides,
             const std::vector<int64_t>& out_strides);

  // `in` and `out` point at the element of index zero. The layouts must not overlap.
  void operator()(const void* in, void* out, Pool& pool) const;

 private:
  struct Dim {
    int64_t size, in, out;  // strides in bytes
  };
  enum class Mode { empty, rows, fill, strided, tiled };

  void collapse();
  void widen();
  void choose_mode();
  template <int kBytes>
  void run(const std::byte* in, std::byte* out, Pool& pool) const;
  template <int kBytes>
  void run_tiles(const std::byte* in, std::byte* out, Pool& pool) const;

  std::vector<Dim> dims_;  // the last two are the tile in tiled mode
  int64_t bytes_;          // of an element
  int64_t elements_ = 1;
  Mode mode_ = Mode::empty;
};

// The copy that produces a dense result from `in` read through `view`.
AffineCopy view_copy(DType dtype, const Shape& out, const View& view);

// The kernel of a row that is a view of its only operand.
template <View (*kView)(const Type&, const Type&, const Attrs&)>
Kernel view_kernel(const KernelSpec& spec) {
  const View view = kView(spec.in[0], spec.out[0], spec.attrs);
  const int64_t offset = view.offset * size_of(spec.in[0].dtype);
  return [copy = view_copy(spec.out[0].dtype, spec.out[0].shape, view), offset, pool = &spec.pool](
             const void* const* in, void* const* out) {
    if (in[0] != out[0]) copy(static_cast<const std::byte*>(in[0]) + offset, out[0], *pool);
  };
}

// Copies bytes, in parallel if there are many. Does nothing if `in` is `out`.
void copy_bytes(const void* in, void* out, int64_t bytes, Pool& pool);

}  // namespace lockstep
