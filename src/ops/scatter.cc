// scatter_add and scatter: rows that combine updates with the elements at positions given as data. Every block of a
// table belongs to one task, which combines its updates in the order of the indices. So results do not depend on
// threads.
#include <algorithm>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/index_places.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/tangents.h"
#include "ops/view_copy.h"
#include "ops/wrapped.h"

namespace lockstep {
namespace {

constexpr int64_t kScatterGrain = 16384;
constexpr int64_t kScatterBlock = 65536;  // elements of x per task
constexpr int64_t kScatterBlocks = 64;    // maximum per batch element, since each reads all its indices
constexpr int64_t kScatterColumns = 128;  // of a block of a table

std::vector<Type> check_updates(std::string_view op, Types in, const Attrs& attrs) {
  expect_operands(op, in, 3);
  const Type wanted = slices_type(op, in[0], in[1], attrs);
  if (in[2] != wanted)
    throw_error("{}: the updates are {}; they must be {} for {} at indices {}", op, to_string(in[2]), to_string(wanted),
                to_string(in[0]), to_string(in[1]));
  return {in[0]};
}

std::vector<Type> scatter_add_type(Types in, const Attrs& attrs) {
  if (!in.empty() && in[0].dtype == DType::boolean)
    throw_error("scatter_add: {} has no arithmetic; cast it to i32 first", to_string(in[0]));
  return check_updates("scatter_add", in, attrs);
}

std::vector<Type> scatter_type(Types in, const Attrs& attrs) {
  if (scatter_how(attrs) == ScatterHow::multiply && !in.empty() && in[0].dtype == DType::boolean)
    throw_error("scatter: {} cannot be multiplied; cast it to i32 first", to_string(in[0]));
  return check_updates("scatter", in, attrs);
}

Rule scatter_rule(Types in, const Attrs& attrs) {
  const PlaceTerms t = place_terms(in[0], in[1], attrs);
  return {{t.x, t.indices, t.slices}, {t.x}, t.axis + t.places};
}

Grads scatter_add_vjp(const Vjp& v) {
  const int64_t axis = v.attrs.integer("axis"), batch_dims = v.attrs.integer("batch_dims");
  const int64_t n = v.in[0].shape()[static_cast<size_t>(axis)];
  Grads grads{v.ct(), {}, {}};
  if (!v.wanted[2]) return grads;
  if (n == 0) {
    grads[2] = zeros_like(v.in[2]);
  } else {
    const Value taken = gather(v.ct(), v.in[1], axis, batch_dims);
    grads[2] = select(indices_inside(v.in[1], taken, n, axis, batch_dims), taken, zeros_like(taken));
  }
  return grads;
}

// By the rule, indices that are not batched would be copied for each example.
Batched scatter_batch(const Batch& b) {
  if (b.batched[1] || b.attrs.integer("batch_dims") != 0) return batch_by_rule(b);
  Attrs attrs = b.attrs;
  attrs.set("axis", b.attrs.integer("axis") + 1);
  const Value in[] = {with_batch(b, 0), b.in[1], with_batch(b, 2)};
  return emit(b.op, in, std::move(attrs));
}

Value scatter_fold(const Fold& f) { return count(f.in[2].shape()) == 0 ? f.in[0] : Value(); }

bool scatter_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 0; }

// to[i] = to[i] combined with from[i]. A is float for 16-bit floats.
template <ScatterHow kHow, class A, class T>
void combine_row(A* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<A>(from[i]);
    if constexpr (kHow == ScatterHow::add)
      to[i] = wrapped_sum(to[i], x);
    else if constexpr (kHow == ScatterHow::multiply)
      to[i] = wrapped_product(to[i], x);
    else if constexpr (kHow == ScatterHow::min)
      to[i] = to[i] != to[i] || to[i] < x ? to[i] : x;
    else if constexpr (kHow == ScatterHow::max)
      to[i] = to[i] != to[i] || to[i] > x ? to[i] : x;
    else
      to[i] = x;
  }
}

// A list of indices of any index type.
struct IndexList {
  const void* indices;
  DType dtype;

  int64_t operator[](int64_t i) const {
    if (dtype == DType::i32) return static_cast<const int32_t*>(indices)[i];
    if (dtype == DType::u32) return static_cast<const uint32_t*>(indices)[i];
    return static_cast<const int64_t*>(indices)[i];
  }
};

struct PlacedUpdate {
  int64_t row, place;
  bool operator<(const PlacedUpdate& other) const { return row != other.row ? row < other.row : place < other.place; }
};

// A block of a table x [n, post]: the updates of its rows and columns.
template <class T>
struct ScatterBlock {
  int64_t low, high;       // rows
  int64_t first, columns;  // columns
  int64_t places, post;
  IndexList indices;
  const T* updates;  // [places, post]
  T* table;

  bool owns(int64_t row) const { return row >= low && row < high; }
  T* row_at(int64_t row) const { return table + row * post + first; }
  const T* update_at(int64_t place) const { return updates + place * post + first; }

  // Combines the updates in the order of the indices.
  template <ScatterHow kHow>
  void combine() const {
    for (int64_t i = 0; i < places; ++i)
      if (const int64_t row = indices[i]; owns(row)) combine_row<kHow>(row_at(row), update_at(i), columns);
  }

  // Combines them row by row, in the same order for each row. A row is combined in f32. `sums` has `columns`
  // elements and `list` has `places`.
  template <ScatterHow kHow>
  void combine_by_row(float* sums, PlacedUpdate* list) const {
    int64_t count = 0;
    for (int64_t i = 0; i < places; ++i)
      if (const int64_t row = indices[i]; owns(row)) list[count++] = {row, i};
    std::sort(list, list + count);
    for (int64_t i = 0; i < count;) {
      T* to = row_at(list[i].row);
      for (int64_t k = 0; k < columns; ++k) sums[k] = static_cast<float>(to[k]);
      const int64_t row = list[i].row;
      for (; i < count && list[i].row == row; ++i) combine_row<kHow>(sums, update_at(list[i].place), columns);
      for (int64_t k = 0; k < columns; ++k) to[k] = T(sums[k]);
    }
  }
};

// How a table is divided into blocks, each of which is a task. Tables with long rows are divided by columns first:
// some rows get many more updates than others.
struct ScatterBlocks {
  int64_t columns, column_blocks, rows, row_blocks;

  explicit ScatterBlocks(const PlaceSizes& s)
      : columns(std::min(std::max<int64_t>(s.post, 1), kScatterColumns)),
        column_blocks((s.post + columns - 1) / columns),
        rows(std::max<int64_t>(s.n, 1)) {
    const int64_t most = std::max<int64_t>(kScatterBlocks / std::max<int64_t>(column_blocks, 1), 1);
    const int64_t wanted = std::clamp<int64_t>((s.n * columns + kScatterBlock - 1) / kScatterBlock, 1, most);
    rows = (rows + wanted - 1) / wanted;
    row_blocks = (s.n + rows - 1) / rows;
  }
  int64_t count() const { return column_blocks * row_blocks; }

  template <class T>
  ScatterBlock<T> at(int64_t task, const PlaceSizes& s, DType index, const void* const* in, void* const* out) const {
    const int64_t table = task / count(), block = task % count();
    const int64_t low = block / column_blocks * rows, first = block % column_blocks * columns;
    const auto* indices = static_cast<const std::byte*>(in[1]) + table / s.pre * s.places * size_of(index);
    return {low,
            std::min(low + rows, s.n),
            first,
            std::min(columns, s.post - first),
            s.places,
            s.post,
            {indices, index},
            static_cast<const T*>(in[2]) + table * s.places * s.post,
            static_cast<T*>(out[0]) + table * s.n * s.post};
  }
};

// Sums and products of 16-bit floats are computed in f32.
template <class T, ScatterHow kHow>
Kernel scatter_rows(const PlaceSizes& s, DType index, Pool& pool) {
  const ScatterBlocks blocks(s);
  const int64_t bytes = s.batch * s.pre * s.n * s.post * static_cast<int64_t>(sizeof(T));
  return [=, pool = &pool](const void* const* in, void* const* out) {
    copy_bytes(in[0], out[0], bytes, *pool);
    if (blocks.count() == 0) return;
    const int64_t work = std::max<int64_t>(s.places * s.post / blocks.count(), 1);
    pool->parallel_range(s.batch * s.pre * blocks.count(), std::max<int64_t>(kScatterGrain / work, 1),
                         [&](int64_t begin, int64_t end, int thread) {
                           for (int64_t task = begin; task < end; ++task) {
                             const ScatterBlock<T> own = blocks.at<T>(task, s, index, in, out);
                             if constexpr (is_half<T> && (kHow == ScatterHow::add || kHow == ScatterHow::multiply)) {
                               void* list = pool->scratch(thread, 1, s.places * int64_t{sizeof(PlacedUpdate)});
                               void* sums = pool->scratch(thread, own.columns * int64_t{sizeof(float)});
                               own.template combine_by_row<kHow>(static_cast<float*>(sums),
                                                                 static_cast<PlacedUpdate*>(list));
                             } else {
                               own.template combine<kHow>();
                             }
                           }
                         });
  };
}

template <class T>
Kernel scatter_kernel(ScatterHow how, const PlaceSizes& s, DType index, Pool& pool) {
  switch (how) {
    case ScatterHow::set:
      return scatter_rows<T, ScatterHow::set>(s, index, pool);
    case ScatterHow::min:
      return scatter_rows<T, ScatterHow::min>(s, index, pool);
    case ScatterHow::max:
      return scatter_rows<T, ScatterHow::max>(s, index, pool);
    default:
      break;
  }
  if constexpr (std::is_same_v<T, bool>) {
    LOCKSTEP_CHECK(false, "arithmetic with bool");
    return {};
  } else {
    return how == ScatterHow::add ? scatter_rows<T, ScatterHow::add>(s, index, pool)
                                  : scatter_rows<T, ScatterHow::multiply>(s, index, pool);
  }
}

Kernel scatter_cpu(const KernelSpec& spec) {
  return with_dtype(spec.in[0].dtype, [&]<class T>() {
    return scatter_kernel<T>(scatter_how(spec.attrs), PlaceSizes(spec.in[0], spec.in[1], spec.attrs), spec.in[1].dtype,
                             spec.pool);
  });
}

}  // namespace

ScatterHow scatter_how(const Attrs& attrs) {
  const Attr* how = attrs.find("how");
  if (!how) return ScatterHow::add;
  const auto* text = std::get_if<std::string>(how);
  if (text && *text == "set") return ScatterHow::set;
  if (text && *text == "multiply") return ScatterHow::multiply;
  if (text && *text == "min") return ScatterHow::min;
  if (text && *text == "max") return ScatterHow::max;
  throw_error("scatter: how is \"{}\"; use \"set\", \"multiply\", \"min\" or \"max\"", text ? *text : "not a text");
}

Value over_slices(Value of_indices, Value like, int64_t axis, int64_t batch_dims) {
  Dims dims = counting(0, batch_dims);
  for (int64_t d = 0; d < of_indices.rank() - batch_dims; ++d) dims.push_back(axis + d);
  return broadcast(of_indices, like.shape(), dims);
}

Value indices_inside(Value indices, Value like, int64_t n, int64_t axis, int64_t batch_dims) {
  return over_slices(eq(indices, clamp_indices(indices, n)), like, axis, batch_dims);
}

constinit const Op scatter_add_op = {.name = "scatter_add",
                                     .rule = scatter_rule,
                                     .type = scatter_add_type,
                                     .vjp = scatter_add_vjp,
                                     .jvp = tangents_of_linear,
                                     .batch = scatter_batch,
                                     .dim_attrs = {{"axis", DimAttr::dims}, {"batch_dims", DimAttr::leading}},
                                     .fold = scatter_fold,
                                     .alias = scatter_alias,
                                     .cpu = scatter_cpu,
                                     .cuda = LOCKSTEP_CUDA(scatter_cuda),
                                     .cuda_task = LOCKSTEP_CUDA(&scatter_task)};
constinit const Op scatter_op = {.name = "scatter",
                                 .rule = scatter_rule,
                                 .type = scatter_type,
                                 .vjp = scatter_vjp,
                                 .batch = scatter_batch,
                                 .dim_attrs = {{"axis", DimAttr::dims}, {"batch_dims", DimAttr::leading}},
                                 .fold = scatter_fold,
                                 .alias = scatter_alias,
                                 .cpu = scatter_cpu,
                                 .cuda = LOCKSTEP_CUDA(scatter_cuda),
                                 .cuda_task = LOCKSTEP_CUDA(&scatter_task)};

Value scatter_add(Value x, Value indices, Value updates, int64_t axis, int64_t batch_dims) {
  if (is_complex(x.dtype()) && x.dtype() == updates.dtype()) {
    const Value re = scatter_add(real(x), indices, real(updates), axis, batch_dims);
    return complex(re, scatter_add(imag(x), indices, imag(updates), axis, batch_dims));
  }
  return emit(scatter_add_op, {x, indices, updates}, {{"axis", axis}, {"batch_dims", batch_dims}});
}

Value scatter(Value x, Value indices, Value updates, std::string how, int64_t axis, int64_t batch_dims, bool unique) {
  if (is_complex(x.dtype()) && x.dtype() == updates.dtype() && (how == "set" || how == "add")) {
    const Value re = scatter(real(x), indices, real(updates), how, axis, batch_dims, unique);
    return complex(re, scatter(imag(x), indices, imag(updates), how, axis, batch_dims, unique));
  }
  return emit(scatter_op, {x, indices, updates},
              {{"axis", axis}, {"batch_dims", batch_dims}, {"how", std::move(how)}, {"unique", unique}});
}

}  // namespace lockstep
