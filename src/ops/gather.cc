// gather and scatter_add. Both treat their arrays as
//   x [batch, pre, n, post], indices [batch, places], slices [batch, pre, places, post].
#include <algorithm>
#include <cstring>

#include "base/dispatch.h"
#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "ops/tangents.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

constexpr int64_t kGatherGrain = 16384;
constexpr int64_t kBlock = 65536;         // elements of x per task of scatter_add
constexpr int64_t kGatherBlocks = 64;     // maximum per batch element, since each reads all its indices
constexpr int64_t kScatterColumns = 128;  // of a block of a table

// The type of slices of `x` at `indices`.
Type check_indices(std::string_view op, const Type& x, const Type& indices, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis"), batch_dims = attrs.integer("batch_dims");
  expect_axis(op, axis, x.shape);
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64 && indices.dtype != DType::u32)
    throw_error("{}: the indices are {}; cast them to i32, i64 or u32", op, to_string(indices));
  if (batch_dims < 0 || batch_dims > axis || batch_dims > indices.rank())
    throw_error(
        "{}: {} batch dimensions do not fit axis {} of {} and indices {}; they must come before the axis in both", op,
        batch_dims, axis, to_string(x.shape), to_string(indices.shape));
  if (!std::equal(x.shape.begin(), x.shape.begin() + batch_dims, indices.shape.begin()))
    throw_error("{}: the first {} dimensions of {} and of the indices {} differ; batch dimensions must be equal", op,
                batch_dims, to_string(x.shape), to_string(indices.shape));
  Type out{x.dtype, Shape(x.shape.begin(), x.shape.begin() + axis)};
  out.shape.insert(out.shape.end(), indices.shape.begin() + batch_dims, indices.shape.end());
  out.shape.insert(out.shape.end(), x.shape.begin() + axis + 1, x.shape.end());
  return out;
}

// Terms of x, the indices and the slices; the indexed dimension is not sharded.
struct Terms {
  std::string x, indices, slices, places;
  char axis;
};
Terms make_terms(const Type& x, const Type& indices, const Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.integer("axis")),
             batch_dims = static_cast<size_t>(attrs.integer("batch_dims"));
  Factors factors;
  Terms t;
  t.x = factors.next(x.rank());
  t.axis = t.x[axis];
  t.places = factors.next(indices.rank() - attrs.integer("batch_dims"));
  t.indices = t.x.substr(0, batch_dims) + t.places;
  t.slices = t.x.substr(0, axis) + t.places + t.x.substr(axis + 1);
  return t;
}

struct GatherSizes {
  int64_t batch, pre, n, places, post;

  GatherSizes(const Type& x, const Type& indices, const Attrs& attrs) {
    const int64_t axis = attrs.integer("axis"), batch_dims = attrs.integer("batch_dims");
    batch = extent(x.shape, 0, batch_dims);
    pre = extent(x.shape, batch_dims, axis);
    n = x.shape[static_cast<size_t>(axis)];
    post = extent(x.shape, axis + 1, x.rank());
    places = extent(indices.shape, batch_dims, indices.rank());
  }
};

// f.template operator()<I>() with the C++ type of an index dtype.
template <class F>
Kernel with_index(DType dtype, F&& f) {
  if (dtype == DType::i32) return f.template operator()<int32_t>();
  if (dtype == DType::i64) return f.template operator()<int64_t>();
  return f.template operator()<uint32_t>();
}

// ---- gather

std::vector<Type> gather_type(Types in, const Attrs& attrs) {
  expect_operands("gather", in, 2);
  const Type out = check_indices("gather", in[0], in[1], attrs);
  const int64_t axis = attrs.integer("axis");
  if (in[0].shape[static_cast<size_t>(axis)] == 0 && count(out.shape) != 0)
    throw_error("gather: axis {} of {} is empty; {} slices cannot be taken from it", axis, to_string(in[0].shape),
                count(in[1].shape));
  return {out};
}

Rule gather_rule(Types in, const Attrs& attrs) {
  const Terms t = make_terms(in[0], in[1], attrs);
  return {{t.x, t.indices}, {t.slices}, std::string(1, t.axis)};
}

// The indices clamped to [0, n), as gather reads them.
Value clamped(Value indices, int64_t n) {
  const Type scalar{indices.dtype(), {}};
  auto constant = [&](int64_t value) { return broadcast(full(indices.builder(), scalar, value), indices.shape(), {}); };
  if (indices.dtype() != DType::u32) indices = maximum(indices, constant(0));
  const bool reachable = indices.dtype() == DType::i64 || n <= INT32_MAX;
  return reachable ? minimum(indices, constant(n - 1)) : indices;
}

Grads gather_vjp(const Vjp& v) {
  if (!v.wanted[0]) return {{}, {}};
  const int64_t axis = v.attrs.integer("axis"), n = v.in[0].shape()[static_cast<size_t>(axis)];
  const Value zeros = zeros_like(v.in[0]), indices = clamped(v.in[1], n);
  return {scatter_add(zeros, indices, v.ct(), axis, v.attrs.integer("batch_dims")), {}};
}

// By the rule, an operand that is not batched would be copied for each example.
Batched gather_batch(const Batch& b) {
  const int64_t axis = b.attrs.integer("axis"), batch_dims = b.attrs.integer("batch_dims");
  if (b.batched[0] && !b.batched[1] && batch_dims == 0) return gather(b.in[0], b.in[1], axis + 1, 0);
  if (b.batched[0]) return batch_by_rule(b);
  // Only the indices are batched: the batch is one more dimension of the indices, which is at `axis` of the result.
  const Value indices = transpose(b.in[1], move_dim(b.in[1].rank(), 0, batch_dims));
  const Value taken = gather(b.in[0], indices, axis, batch_dims);
  return transpose(taken, move_dim(taken.rank(), axis, 0));
}

// Slices of a fixed small size compile to plain moves.
template <int kBytes>
void copy_slice(const std::byte* from, std::byte* to, size_t bytes) {
  std::memcpy(to, from, kBytes > 0 ? static_cast<size_t>(kBytes) : bytes);
}

template <class I, int kBytes>
Kernel gather_slices(const GatherSizes& s, int64_t bytes, Pool& pool) {
  return [s, bytes, pool = &pool](const void* const* in, void* const* out) {
    const auto* x = static_cast<const std::byte*>(in[0]);
    const auto* indices = static_cast<const I*>(in[1]);
    auto* slices = static_cast<std::byte*>(out[0]);
    const int64_t rows = s.batch * s.pre * s.places;
    if (rows == 0 || bytes == 0) return;
    pool->parallel_range(rows, std::max<int64_t>(2 * kGatherGrain / bytes, 1), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end;) {
        const int64_t block = row / s.places, stop = std::min(end, (block + 1) * s.places);
        const std::byte* from = x + block * s.n * bytes;
        const I* at = indices + block / s.pre * s.places - block * s.places;
        for (; row < stop; ++row) {
          const int64_t index = std::clamp<int64_t>(static_cast<int64_t>(at[row]), 0, s.n - 1);
          copy_slice<kBytes>(from + index * bytes, slices + row * bytes, static_cast<size_t>(bytes));
        }
      }
    });
  };
}

Kernel gather_cpu(const KernelSpec& spec) {
  const GatherSizes sizes(spec.in[0], spec.in[1], spec.attrs);
  const int64_t bytes = sizes.post * size_of(spec.in[0].dtype);
  return with_index(spec.in[1].dtype, [&]<class I>() -> Kernel {
    switch (bytes) {
      case 1:
        return gather_slices<I, 1>(sizes, bytes, spec.pool);
      case 2:
        return gather_slices<I, 2>(sizes, bytes, spec.pool);
      case 4:
        return gather_slices<I, 4>(sizes, bytes, spec.pool);
      case 8:
        return gather_slices<I, 8>(sizes, bytes, spec.pool);
      case 16:
        return gather_slices<I, 16>(sizes, bytes, spec.pool);
      default:
        return gather_slices<I, 0>(sizes, bytes, spec.pool);
    }
  });
}

// ---- scatter_add

std::vector<Type> scatter_add_type(Types in, const Attrs& attrs) {
  expect_operands("scatter_add", in, 3);
  const Type wanted = check_indices("scatter_add", in[0], in[1], attrs);
  if (in[0].dtype == DType::boolean)
    throw_error("scatter_add: {} has no arithmetic; cast it to i32 first", to_string(in[0]));
  if (in[2] != wanted)
    throw_error("scatter_add: the updates are {}; they must be {} for {} at indices {}", to_string(in[2]),
                to_string(wanted), to_string(in[0]), to_string(in[1]));
  return {in[0]};
}

Rule scatter_add_rule(Types in, const Attrs& attrs) {
  const Terms t = make_terms(in[0], in[1], attrs);
  return {{t.x, t.indices, t.slices}, {t.x}, t.axis + t.places};
}

// 1 for indices inside [0, n), else 0, broadcast over the slices of type `like`.
Value inside(Value indices, Value like, int64_t n, int64_t axis, int64_t batch_dims) {
  const Value same = eq(indices, clamped(indices, n));
  Dims dims = counting(0, batch_dims);
  for (int64_t d = 0; d < indices.rank() - batch_dims; ++d) dims.push_back(axis + d);
  return broadcast(same, like.shape(), dims);
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
    grads[2] = select(inside(v.in[1], taken, n, axis, batch_dims), taken, zeros_like(taken));
  }
  return grads;
}

// By the rule, indices that are not batched would be copied for each example.
Batched scatter_add_batch(const Batch& b) {
  if (b.batched[1] || b.attrs.integer("batch_dims") != 0) return batch_by_rule(b);
  return scatter_add(with_batch(b, 0), b.in[1], with_batch(b, 2), b.attrs.integer("axis") + 1, 0);
}

Value scatter_add_fold(const Fold& f) { return count(f.in[2].shape()) == 0 ? f.in[0] : Value(); }

bool scatter_add_alias(Types, Types, const Attrs&, size_t in, size_t) { return in == 0; }

template <class A, class T>
void add_row(A* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (is_half<T>)
      to[i] += static_cast<float>(from[i]);
    else if constexpr (std::is_integral_v<T>)
      to[i] =
          static_cast<A>(static_cast<std::make_unsigned_t<A>>(to[i]) + static_cast<std::make_unsigned_t<T>>(from[i]));
    else
      to[i] += from[i];
  }
}

// A block of a table x [n, post]: the updates of its rows and columns.
template <class I, class T>
struct ScatterBlock {
  int64_t low, high;       // rows
  int64_t first, columns;  // columns
  int64_t places, post;
  const I* indices;
  const T* updates;  // [places, post]
  T* table;

  bool owns(int64_t row) const { return row >= low && row < high; }
  T* row_at(int64_t row) const { return table + row * post + first; }
  const T* update_at(int64_t place) const { return updates + place * post + first; }

  // Adds the updates in the order of the indices.
  void add() const {
    for (int64_t i = 0; i < places; ++i)
      if (const auto row = static_cast<int64_t>(indices[i]); owns(row)) add_row(row_at(row), update_at(i), columns);
  }

  struct Update {
    int64_t row, place;
    bool operator<(const Update& other) const { return row != other.row ? row < other.row : place < other.place; }
  };
  // Adds them row by row, in the same order for each row. A row is summed in f32. `sums` has `columns` elements and
  // `list` has `places`.
  void add_by_row(float* sums, Update* list) const {
    int64_t count = 0;
    for (int64_t i = 0; i < places; ++i)
      if (const auto row = static_cast<int64_t>(indices[i]); owns(row)) list[count++] = {row, i};
    std::sort(list, list + count);
    for (int64_t i = 0; i < count;) {
      T* to = row_at(list[i].row);
      for (int64_t k = 0; k < columns; ++k) sums[k] = static_cast<float>(to[k]);
      const int64_t row = list[i].row;
      for (; i < count && list[i].row == row; ++i) add_row(sums, update_at(list[i].place), columns);
      for (int64_t k = 0; k < columns; ++k) to[k] = T(sums[k]);
    }
  }
};

// How a table is divided into blocks, each of which is a task. Tables with long rows are divided by columns first: some
// rows get many more updates than others.
struct ScatterBlocks {
  int64_t columns, column_blocks, rows, row_blocks;

  explicit ScatterBlocks(const GatherSizes& s)
      : columns(std::min(std::max<int64_t>(s.post, 1), kScatterColumns)),
        column_blocks((s.post + columns - 1) / columns),
        rows(std::max<int64_t>(s.n, 1)) {
    const int64_t most = std::max<int64_t>(kGatherBlocks / std::max<int64_t>(column_blocks, 1), 1);
    const int64_t wanted = std::clamp<int64_t>((s.n * columns + kBlock - 1) / kBlock, 1, most);
    rows = (rows + wanted - 1) / wanted;
    row_blocks = (s.n + rows - 1) / rows;
  }
  int64_t count() const { return column_blocks * row_blocks; }
};

// 16-bit floats are summed in f32.
template <class I, class T>
Kernel scatter_rows(const GatherSizes& s, Pool& pool) {
  const ScatterBlocks blocks(s);
  const int64_t bytes = s.batch * s.pre * s.n * s.post * static_cast<int64_t>(sizeof(T));
  return [=, pool = &pool](const void* const* in, void* const* out) {
    copy_bytes(in[0], out[0], bytes, *pool);
    if (blocks.count() == 0) return;
    const int64_t work = std::max<int64_t>(s.places * s.post / blocks.count(), 1);
    pool->parallel_range(s.batch * s.pre * blocks.count(), std::max<int64_t>(kGatherGrain / work, 1),
                         [&](int64_t begin, int64_t end, int thread) {
                           for (int64_t task = begin; task < end; ++task) {
                             const int64_t table = task / blocks.count(), block = task % blocks.count();
                             const int64_t low = block / blocks.column_blocks * blocks.rows;
                             const int64_t first = block % blocks.column_blocks * blocks.columns;
                             const ScatterBlock<I, T> own{low,
                                                          std::min(low + blocks.rows, s.n),
                                                          first,
                                                          std::min(blocks.columns, s.post - first),
                                                          s.places,
                                                          s.post,
                                                          static_cast<const I*>(in[1]) + table / s.pre * s.places,
                                                          static_cast<const T*>(in[2]) + table * s.places * s.post,
                                                          static_cast<T*>(out[0]) + table * s.n * s.post};
                             if constexpr (is_half<T>) {
                               using Update = typename ScatterBlock<I, T>::Update;
                               void* list = pool->scratch(thread, 1, s.places * static_cast<int64_t>(sizeof(Update)));
                               own.add_by_row(
                                   static_cast<float*>(pool->scratch(thread, own.columns * int64_t{sizeof(float)})),
                                   static_cast<Update*>(list));
                             } else {
                               own.add();
                             }
                           }
                         });
  };
}

Kernel scatter_add_cpu(const KernelSpec& spec) {
  const GatherSizes sizes(spec.in[0], spec.in[1], spec.attrs);
  return with_index(spec.in[1].dtype, [&]<class I>() -> Kernel {
    return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
      if constexpr (std::is_same_v<T, bool>) {
        LOCKSTEP_CHECK(false, "scatter_add of bool");
        return {};
      } else {
        return scatter_rows<I, T>(sizes, spec.pool);
      }
    });
  });
}

}  // namespace

constinit const Op gather_op = {.name = "gather",
                                .rule = gather_rule,
                                .type = gather_type,
                                .vjp = gather_vjp,
                                .jvp = tangents_of_linear,
                                .batch = gather_batch,
                                .dim_attrs = {{"axis", DimAttr::dims}, {"batch_dims", DimAttr::leading}},
                                .cpu = gather_cpu,
                                .cuda = LOCKSTEP_CUDA(gather_cuda),
                                .cuda_task = LOCKSTEP_CUDA(&gather_task)};
constinit const Op scatter_add_op = {.name = "scatter_add",
                                     .rule = scatter_add_rule,
                                     .type = scatter_add_type,
                                     .vjp = scatter_add_vjp,
                                     .jvp = tangents_of_linear,
                                     .batch = scatter_add_batch,
                                     .dim_attrs = {{"axis", DimAttr::dims}, {"batch_dims", DimAttr::leading}},
                                     .fold = scatter_add_fold,
                                     .alias = scatter_add_alias,
                                     .cpu = scatter_add_cpu,
                                     .cuda = LOCKSTEP_CUDA(scatter_add_cuda),
                                     .cuda_task = LOCKSTEP_CUDA(&scatter_add_task)};

Value gather(Value x, Value indices, int64_t axis, int64_t batch_dims) {
  return emit(gather_op, {x, indices}, {{"axis", axis}, {"batch_dims", batch_dims}});
}

Value scatter_add(Value x, Value indices, Value updates, int64_t axis, int64_t batch_dims) {
  return emit(scatter_add_op, {x, indices, updates}, {{"axis", axis}, {"batch_dims", batch_dims}});
}

}  // namespace lockstep
