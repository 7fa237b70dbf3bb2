// Fourier transforms.
#include "ops/fft.h"

#include "lane/buffer.h"
#include "lane/cpu/fft.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kMostFftDims = 3;

bool is_kind(const Attrs& attrs, std::string_view kind) { return attrs.get<std::string>("kind") == kind; }

std::vector<Type> fft_type(Types in, const Attrs& attrs) {
  expect_operands("fft", in, 1);
  const int64_t dims = attrs.integer("dims"), length = attrs.integer("length");
  const Type& x = in[0];
  const bool to_complex = is_kind(attrs, "rfft"), to_real = is_kind(attrs, "irfft");
  if (!to_complex && !to_real && !is_kind(attrs, "fft") && !is_kind(attrs, "ifft"))
    throw_error("fft: the kind is \"{}\"; choose fft, ifft, rfft or irfft", attrs.get<std::string>("kind"));
  if (to_complex ? x.dtype != DType::f32 && x.dtype != DType::f64 : !is_complex(x.dtype))
    throw_error("fft: the operand of {} is {}; it must be {}", attrs.get<std::string>("kind"), to_string(x),
                to_complex ? "f32 or f64" : "c64 or c128: use complex()");
  if (dims < 1 || dims > kMostFftDims || dims > x.rank())
    throw_error("fft: {} dimensions of {}; transform the last 1 to {} of them", dims, to_string(x),
                std::min(kMostFftDims, std::max<int64_t>(x.rank(), 1)));
  for (int64_t d = x.rank() - dims; d < x.rank(); ++d)
    if (x.shape[static_cast<size_t>(d)] == 0)
      throw_error("fft: dimension {} of {} is empty; a transform needs an element", d, to_string(x));
  if (to_real && (length < 1 || x.shape.back() != length / 2 + 1))
    throw_error("fft: a spectrum of {} for {} real elements; it must have length / 2 + 1", x.shape.back(), length);
  Type out = x;
  out.dtype = to_real ? real_of(x.dtype) : complex_of(x.dtype);
  if (to_complex) out.shape.back() = x.shape.back() / 2 + 1;
  if (to_real) out.shape.back() = length;
  return {out};
}

// Transformed dimensions are not sharded. Where the last one changes, it has another factor.
Rule fft_rule(Types in, const Attrs& attrs) {
  Factors factors;
  const std::string term = factors.next(in[0].rank());
  Rule rule{{term}, {term}, term.substr(static_cast<size_t>(in[0].rank() - attrs.integer("dims")))};
  if (is_kind(attrs, "rfft") || is_kind(attrs, "irfft")) {
    const std::string last = factors.next(1);
    rule.out[0].replace(term.size() - 1, 1, last);
    rule.unsharded += last;
  }
  return rule;
}

// 1 for the elements of a half spectrum that are their own mirror image, and 2 for the others.
Value mirror_count(Value like, int64_t length) {
  Builder& b = like.builder();
  const Shape last{like.shape().back()};
  const Value k = index_iota(b, last, 0);
  Value alone = eq(k, zeros_like(k));
  if (length % 2 == 0) alone = bit_or(alone, eq(k, full(b, k.type(), length / 2)));
  const Type real{real_of(like.dtype()), last};
  const Value times = select(alone, full(b, real, 1), full(b, real, 2));
  return broadcast(times, like.shape(), {like.rank() - 1});
}

// The cotangent c pairs with a tangent t as Re(c t), and transforms are symmetric matrices.
Grads fft_vjp(const Vjp& v) {
  const int64_t dims = v.attrs.integer("dims");
  const Value x = v.in[0], ct = v.ct();
  if (is_kind(v.attrs, "rfft")) {
    // The elements that were not returned have the cotangent 0.
    std::vector<int64_t> none(static_cast<size_t>(x.rank()), 0), hi = none;
    hi.back() = x.shape().back() - ct.shape().back();
    const Value padded = pad(ct, full(ct.builder(), {ct.dtype(), {}}, 0), none, hi, none);
    return {real(fourier(padded, "fft", dims))};
  }
  if (is_kind(v.attrs, "irfft")) {
    const Value spectrum = fourier(ct, "rfft", dims);
    const Value times = mirror_count(spectrum, v.attrs.integer("length"));
    const Value re = mul(real(spectrum), times);
    return {complex(re, neg(mul(imag(spectrum), times)))};
  }
  return {fourier(ct, v.attrs.get<std::string>("kind"), dims)};
}

// One dimension of a transform.
struct FftStep {
  Fft fft;
  FftLines where;
};

FftStep fft_step(FftKind kind, const Shape& shape, int64_t dim, int64_t n, DType dtype) {
  const int64_t inner = extent(shape, dim + 1, std::ssize(shape));
  return {Fft::prepare(kind, n, dtype), {extent(shape, 0, dim) * inner, inner}};
}

// The real dimension is the first one of rfft and the last one of irfft. The others are transformed in place: in the
// result, or of irfft, whose result is smaller, in a buffer.
Kernel fft_cpu(const KernelSpec& spec) {
  const Type &x = spec.in[0], &y = spec.out[0];
  const bool to_complex = is_kind(spec.attrs, "rfft"), to_real = is_kind(spec.attrs, "irfft");
  const DType dtype = complex_of(x.dtype);
  const int64_t last = x.rank() - 1, first = x.rank() - spec.attrs.integer("dims");
  const Shape& between = to_real ? x.shape : y.shape;
  if (count(x.shape) == 0) return [](const void* const*, void* const*) {};
  std::vector<FftStep> steps;
  if (to_complex) steps.push_back(fft_step(FftKind::real_forward, x.shape, last, x.shape.back(), dtype));
  const FftKind kind = to_real || is_kind(spec.attrs, "ifft") ? FftKind::inverse : FftKind::forward;
  for (int64_t d = to_complex || to_real ? last - 1 : last; d >= first; --d)
    steps.push_back(fft_step(kind, between, d, between[static_cast<size_t>(d)], dtype));
  if (to_real) steps.push_back(fft_step(FftKind::real_inverse, y.shape, last, y.shape.back(), dtype));
  BufferPtr buffer;
  if (to_real && steps.size() > 1) buffer = allocate(x.bytes());
  return [pool = &spec.pool, steps = std::move(steps), buffer](const void* const* in, void* const* out) {
    const void* from = in[0];
    for (size_t i = 0; i < steps.size(); ++i) {
      void* to = buffer && i + 1 < steps.size() ? buffer->data() : out[0];
      steps[i].fft.run(*pool, steps[i].where, from, to);
      from = to;
    }
  };
}

}  // namespace

constinit const Op fft_op = {.name = "fft",
                             .rule = fft_rule,
                             .type = fft_type,
                             .vjp = fft_vjp,
                             .takes_complex = true,
                             .cpu = fft_cpu,
                             .cuda = LOCKSTEP_CUDA(fft_cuda)};

Value fourier(Value x, std::string_view kind, int64_t dims, int64_t length) {
  return emit(fft_op, {x}, {{"kind", std::string(kind)}, {"dims", dims}, {"length", length}});
}

}  // namespace lockstep
