#include "lane/buffer.h"
#include "ops/contraction.h"
#include "ops/dims.h"
#include "ops/epilogue.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

// An operand or result whose axes must be permuted first.
struct Reorder {
  AffineCopy copy;
  BufferPtr buffer;

  // Dense result axis d is axis order[d] of a dense array of `shape`.
  Reorder(DType dtype, const Shape& shape, const std::vector<int64_t>& order, int64_t buffer_bytes)
      : copy(make(dtype, shape, order)), buffer(allocate(buffer_bytes)) {}

  static AffineCopy make(DType dtype, const Shape& shape, const std::vector<int64_t>& order) {
    const Dims strides = dense_strides(shape);
    Shape out;
    Dims in;
    for (int64_t d : order) {
      out.push_back(shape[static_cast<size_t>(d)]);
      in.push_back(strides[static_cast<size_t>(d)]);
    }
    return AffineCopy(size_of(dtype), out, in, dense_strides(out));
  }
};

// A prepared contraction.
class Product {
 public:
  Product(const KernelSpec& spec, const Type& result)
      : plan_(contraction(spec.attrs.get<std::string>("spec"), spec.in[0], spec.in[1])),
        gemm_(Gemm::prepare(plan_.gemm, spec.pool.threads())),
        pool_(spec.pool) {
    const Type& a = spec.in[plan_.swapped ? 1 : 0];
    const Type& b = spec.in[plan_.swapped ? 0 : 1];
    if (plan_.copy_a) a_.emplace(a.dtype, a.shape, *plan_.copy_a, a.bytes());
    if (plan_.copy_b) b_.emplace(b.dtype, b.shape, *plan_.copy_b, b.bytes());
    if (plan_.copy_c) c_.emplace(result.dtype, plan_.product, *plan_.copy_c, result.bytes());
  }

  bool in_order() const { return !c_; }
  int64_t rows() const { return plan_.gemm.m; }
  int64_t cols() const { return plan_.gemm.n; }
  Pool& pool() const { return pool_; }

  // Writes the product to `out` (null: passes it only to the epilogue).
  void run(const void* const* in, void* out, Epilogue epilogue = {}) const {
    const void* a = in[plan_.swapped ? 1 : 0];
    const void* b = in[plan_.swapped ? 0 : 1];
    if (a_) a_->copy(a, a_->buffer->data(), pool_), a = a_->buffer->data();
    if (b_) b_->copy(b, b_->buffer->data(), pool_), b = b_->buffer->data();
    gemm_.run(pool_, a, b, c_ ? c_->buffer->data() : out, epilogue);
    if (c_) c_->copy(c_->buffer->data(), out, pool_);
  }

 private:
  Contraction plan_;
  Gemm gemm_;
  Pool& pool_;
  std::optional<Reorder> a_, b_, c_;
};

}  // namespace

Kernel einsum_cpu(const KernelSpec& spec) {
  auto product = std::make_shared<const Product>(spec, spec.out[0]);
  return [product](const void* const* in, void* const* out) { product->run(in, out[0]); };
}

Kernel einsum_fused_cpu(const KernelSpec& spec) {
  struct State {
    Product product;
    BodyEpilogue epilogue;
    BufferPtr whole;  // the complete product, if the epilogue cannot run tile by tile
  };
  const Type& type = BodyEpilogue::product(spec);
  auto state = std::make_shared<State>(State{Product(spec, type), BodyEpilogue(spec, 2), {}});
  if (!state->product.in_order()) state->whole = allocate(type.bytes());
  return [state](const void* const* in, void* const* out) {
    const Product& p = state->product;
    if (state->whole) {
      p.run(in, state->whole->data());
      state->epilogue.run_on_array(p.pool(), state->whole->data(), in, out);
      return;
    }
    p.run(in, nullptr, [&](const Tile& tile) { state->epilogue(tile, p.rows(), p.cols(), p.pool(), in, out); });
  };
}

}  // namespace lockstep
