#include "array/index_plan.h"

#include <algorithm>
#include <cstring>

#include "array/promote.h"
#include "base/check.h"
#include "ops/index_ops.h"

namespace lockstep::detail {
namespace {

bool is_mask(const Index& index) { return index.kind() == Index::Kind::array && index.array().dtype() == boolean; }

// How many dimensions of x an index takes.
int64_t dims_of(const Index& index) {
  if (index.kind() == Index::Kind::rest || index.kind() == Index::Kind::inserted) return 0;
  return is_mask(index) ? index.array().rank() : 1;
}

// For each dimension of a mask, the indices of its true elements, as integers of type T.
template <class T>
std::vector<Array> mask_places(const Array& mask) {
  const std::span<const bool> is_true = mask.data<bool>();
  const Shape& shape = mask.shape();
  std::vector<std::vector<T>> places(shape.size());
  for (size_t i = 0; i < is_true.size(); ++i) {
    uint64_t eight = 1;
    if (i % 8 == 0 && i + 8 <= is_true.size()) std::memcpy(&eight, &is_true[i], 8);
    if (eight == 0) i += 7;
    if (!is_true[i]) continue;
    auto rest = static_cast<int64_t>(i);
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) places[d].push_back(static_cast<T>(rest % shape[d]));
  }
  std::vector<Array> out;
  for (std::vector<T>& each : places) {
    const auto n = static_cast<int64_t>(each.size());
    out.push_back(Array::from(std::move(each), {n}));
  }
  return out;
}

class Planner {
 public:
  Planner(const Array& x, std::span<const Index> indices) : x_(x) {
    for (const Index& index : indices)
      if (index.kind() == Index::Kind::array) add_shapes(index.array());
    plan_.points_shape = broadcast_shape("index", shapes_);
    int64_t taken = 0, ellipses = 0;
    for (const Index& index : indices) {
      taken += dims_of(index);
      ellipses += index.kind() == Index::Kind::rest ? 1 : 0;
    }
    if (ellipses > 1)
      throw_error("index: {} ellipses; at most one can stand for the dimensions without an index", ellipses);
    if (taken > x.rank())
      throw_error("index: {} indices for {}, which has {} dimension{}; leave some out", taken, to_string(x.type()),
                  x.rank(), x.rank() == 1 ? "" : "s");
    for (const Index& index : indices) add(index, x.rank() - taken);
    while (dim() < x.rank()) add_range({});
    finish();
  }

  IndexPlan take() { return std::move(plan_); }

 private:
  // A place in the list of indices, with the ellipsis expanded.
  enum class Part : uint8_t { kept, inserted, integer, points };

  int64_t dim() const { return static_cast<int64_t>(plan_.sizes.size()); }

  // Masks count once for their dimensions; their places are found later.
  void add_shapes(const Array& array) {
    if (array.dtype() != boolean) {
      shapes_.push_back(array.shape());
      return;
    }
    if (array.rank() == 0)
      throw_error("index: the index is bool[]; a mask needs at least one dimension: use where(condition, a, b)");
    masks_.push_back(places_of(array));
    shapes_.push_back(masks_.back()[0].shape());
  }

  void add(const Index& index, int64_t left) {
    switch (index.kind()) {
      case Index::Kind::integer:
        return add_integer(index.integer());
      case Index::Kind::range:
        return add_range(index.range());
      case Index::Kind::rest:
        for (int64_t k = 0; k < left; ++k) add_range({});
        return;
      case Index::Kind::inserted:
        parts_.push_back(Part::inserted);
        return;
      case Index::Kind::array:
        break;
    }
    if (!is_mask(index)) return add_points(index.array());
    check_mask(x_, index.array(), dim());
    for (const Array& places : masks_[used_masks_]) add_points(places);
    ++used_masks_;
  }

  void add_dim(int64_t start, int64_t size, int64_t step, Part part) {
    plan_.starts.push_back(start);
    plan_.sizes.push_back(size);
    plan_.steps.push_back(step);
    plan_.dropped.push_back(part == Part::integer);
    parts_.push_back(part);
    sizes_.push_back(size);
  }

  void add_integer(int64_t index) {
    const int64_t n = x_.shape(dim()), i = index < 0 ? index + n : index;
    if (n == 0)
      throw_error("index: index {} into dimension {} of {}, which is empty", index, dim(), to_string(x_.shape()));
    if (i < 0 || i >= n)
      throw_error("index: {} is out of range for dimension {} of {}; valid indices: {} to {}", index, dim(),
                  to_string(x_.shape()), -n, n - 1);
    add_dim(i, 1, 1, Part::integer);
  }

  void add_range(const IndexRange& range) {
    if (range.step == 0) throw_error("index: a range with step 0; use a positive or a negative step");
    const int64_t n = x_.shape(dim());
    const bool up = range.step > 0;
    const int64_t lowest = up ? 0 : -1, highest = up ? n : n - 1;
    const auto bound = [&](const std::optional<int64_t>& at, int64_t otherwise) {
      return at ? std::clamp(*at < 0 ? *at + n : *at, lowest, highest) : otherwise;
    };
    const int64_t begin = bound(range.begin, up ? 0 : n - 1), end = bound(range.end, up ? n : -1);
    const int64_t length = up ? end - begin : begin - end;
    // Steps beyond the extent select one element.
    const int64_t stride =
        std::clamp<int64_t>(up ? range.step : -std::max(range.step, -INT64_MAX), 1, std::max<int64_t>(n, 1));
    const int64_t size = length <= 0 ? 0 : (length - 1) / stride + 1;
    add_dim(size == 0 ? 0 : begin, size, up ? stride : -stride, Part::kept);
  }

  void add_points(const Array& array) {
    if (!is_integer(array.dtype()))
      throw_error("index: the index is {}; an index must be an integer or a mask: use astype(index, i32)",
                  to_string(array.type()));
    plan_.point_dims.push_back(dim());
    plan_.points.push_back(array);
    add_dim(0, x_.shape(dim()), 1, Part::points);
  }

  // Integers count among the arrays if these have dimensions.
  bool is_point(Part part) const {
    return part == Part::points || (part == Part::integer && !plan_.points.empty() && !plan_.points_shape.empty());
  }

  void finish() {
    const auto first = std::find_if(parts_.begin(), parts_.end(), [&](Part p) { return is_point(p); });
    const auto last = std::find_if(parts_.rbegin(), parts_.rend(), [&](Part p) { return is_point(p); }).base();
    const bool in_place = first == parts_.end() || std::all_of(first, last, [&](Part p) { return is_point(p); });
    plan_.points_first = !in_place;
    const auto add_point_dims = [&](Shape& to) {
      to.insert(to.end(), plan_.points_shape.begin(), plan_.points_shape.end());
    };
    for (Shape* shape : {&plan_.result, &plan_.plain})
      if (!in_place) add_point_dims(*shape);
    size_t d = 0;
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      for (Shape* shape : {&plan_.result, &plan_.plain}) {
        if (in_place && part == first) add_point_dims(*shape);
        if (*part == Part::kept) shape->push_back(sizes_[d]);
      }
      if (*part == Part::inserted)
        plan_.result.push_back(1);
      else
        ++d;
    }
  }

  const Array& x_;
  IndexPlan plan_;
  std::vector<Part> parts_;
  std::vector<int64_t> sizes_;  // of the parts that are dimensions of x
  std::vector<Shape> shapes_;   // of the arrays
  std::vector<std::vector<Array>> masks_;
  size_t used_masks_ = 0;
};

}  // namespace

std::vector<Array> places_of(const Array& mask) {
  if (mask.is_traced())
    throw_error(
        "index: the mask {} is computed in a traced function, so the number of its true elements is not known; use "
        "where(mask, a, b), or nonzero(mask, {{.size = n}}) for indices",
        to_string(mask.type()));
  const Shape& shape = mask.shape();
  const bool narrow = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return index_dtype(n) == DType::i32; });
  return narrow ? mask_places<int32_t>(mask) : mask_places<int64_t>(mask);
}

Array index_vector(std::vector<int64_t> positions, int64_t extent) {
  const Shape shape{static_cast<int64_t>(positions.size())};
  if (index_dtype(extent) == DType::i64) return Array::from(std::move(positions), shape);
  return Array::from(std::vector<int32_t>(positions.begin(), positions.end()), shape);
}

void check_mask(const Array& x, const Array& mask, int64_t dim) {
  const Shape &shape = x.shape(), &own = mask.shape();
  if (dim + mask.rank() <= x.rank() && std::equal(own.begin(), own.end(), shape.begin() + dim)) return;
  throw_error(
      "index: the mask {} does not fit {} from dimension {} on; a mask has the extents of the dimensions it selects",
      to_string(own), to_string(shape), dim);
}

bool is_one_mask(std::span<const Index> indices) {
  if (indices.empty() || !is_mask(indices[0]) || indices[0].array().rank() == 0) return false;
  return std::all_of(indices.begin() + 1, indices.end(), [](const Index& index) {
    const IndexRange& range = index.range();
    return index.kind() == Index::Kind::rest ||
           (index.kind() == Index::Kind::range && !range.begin && !range.end && range.step == 1);
  });
}

IndexPlan plan_indices(const Array& x, std::span<const Index> indices) { return Planner(x, indices).take(); }

}  // namespace lockstep::detail
