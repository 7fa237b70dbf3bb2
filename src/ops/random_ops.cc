// The rows of random bits.
#include "ops/random_ops.h"

#include <algorithm>

#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/random_ciphers.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kRandomGrain = 16384;

bool is_key(const Type& type, int64_t words) {
  return type.dtype == DType::u32 && type.rank() >= 1 && type.shape.back() == words;
}

Shape key_shape(const Type& key) { return Shape(key.shape.begin(), key.shape.end() - 1); }

// ---- random_bits: keys [keys..., 2] or [keys..., 4] -> [keys..., shape...]

std::vector<Type> random_bits_type(Types in, const Attrs& attrs) {
  expect_operands("random_bits", in, 1);
  if (!is_key(in[0], 2) && !is_key(in[0], 4))
    throw_error(
        "random_bits: the key is {}; a key is u32[2] (threefry) or u32[4] (philox), or several of them with leading "
        "dimensions",
        to_string(in[0]));
  const Shape& shape = attrs.ints("shape");
  Type out{DType::u32, key_shape(in[0])};
  out.shape.insert(out.shape.end(), shape.begin(), shape.end());
  count(shape);
  count(out.shape);
  return {out};
}

// Bits depend on the index within the global array.
Rule random_bits_rule(Types in, const Attrs& attrs) {
  Factors factors;
  const std::string keys = factors.next(in[0].rank() - 1);
  const std::string word = factors.next(1);
  const std::string bits = factors.next(static_cast<int64_t>(attrs.ints("shape").size()));
  return {{keys + word}, {keys + bits}, word, bits};
}

// A shard of the bits of a key: the block of extents `shape` that begins at `starts` of an array of `global_shape`.
Attrs random_bits_local(const LocalEqnContext& v) {
  const Shape& shape = v.attrs.ints("shape");
  const size_t keys = v.out[0].shape.size() - shape.size();
  const Shape piece(v.local_out[0].shape.begin() + static_cast<std::ptrdiff_t>(keys), v.local_out[0].shape.end());
  if (piece == shape) return v.attrs;
  Dims starts = v.attrs.get_or("starts", Dims(shape.size(), 0));
  for (size_t d = 0; d < starts.size(); ++d)
    if (const auto at = v.ranges.find(v.rule.out[0][keys + d]); at != v.ranges.end()) starts[d] += at->second.begin;
  Attrs attrs = v.attrs;
  attrs.set("global_shape", v.attrs.get_or("global_shape", shape));
  attrs.set("starts", starts);
  attrs.set("shape", piece);
  return attrs;
}

// Bits [begin, begin + n) of a key of two words; one call of the cipher for each high word of the counter.
void threefry_bits(const RandomCiphers& ciphers, const uint32_t* key, uint64_t begin, int64_t n, uint32_t* out) {
  while (n > 0) {
    const auto lo = static_cast<uint32_t>(begin);
    const auto left = static_cast<int64_t>((uint64_t{1} << 32) - lo);
    const int64_t step = std::min({n, left, int64_t{1} << 30});
    ciphers.threefry_bits(ThreefryKey(key), static_cast<uint32_t>(begin >> 32), lo, static_cast<uint32_t>(step), out);
    begin += static_cast<uint64_t>(step);
    out += step;
    n -= step;
  }
}

// The bits of a key as runs that are contiguous in the global array.
struct Runs {
  int64_t length = 0;
  std::vector<uint64_t> begin;  // of each run, in the global array
};

Runs runs_of(const Attrs& attrs) {
  const Shape& shape = attrs.ints("shape");
  const Shape global_shape = attrs.get_or("global_shape", shape);
  const Dims starts = attrs.get_or("starts", Dims(shape.size(), 0));
  size_t inner = shape.size();  // the dimensions from here on are not sharded
  while (inner > 0 && shape[inner - 1] == global_shape[inner - 1]) --inner;
  // A run extends along the last sharded dimension.
  const size_t outer = inner == 0 ? 0 : inner - 1;
  Runs runs{extent(shape, static_cast<int64_t>(outer), static_cast<int64_t>(shape.size())), {}};
  const Dims strides = dense_strides(global_shape);
  const int64_t n = extent(shape, 0, static_cast<int64_t>(outer));
  for (int64_t run = 0; run < n; ++run) {
    int64_t begin = inner == 0 ? 0 : starts[outer] * strides[outer];
    int64_t left = run;
    for (size_t d = outer; d-- > 0;) {
      begin += (starts[d] + left % shape[d]) * strides[d];
      left /= shape[d];
    }
    runs.begin.push_back(static_cast<uint64_t>(begin));
  }
  return runs;
}

Kernel random_bits_cpu(const KernelSpec& spec) {
  const int64_t total = count(spec.out[0].shape), per_key = count(spec.attrs.ints("shape"));
  const int64_t words = spec.in[0].shape.back();
  return [=, runs = runs_of(spec.attrs), &ciphers = random_ciphers(), pool = &spec.pool](const void* const* in,
                                                                                         void* const* out) {
    const auto* keys = static_cast<const uint32_t*>(in[0]);
    auto* bits = static_cast<uint32_t*>(out[0]);
    pool->parallel_range(total, kRandomGrain, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {
        const int64_t k = begin / per_key, r = begin % per_key / runs.length, at = begin % runs.length;
        const int64_t n = std::min(end - begin, runs.length - at);
        const uint64_t first = runs.begin[static_cast<size_t>(r)] + static_cast<uint64_t>(at);
        if (words == 4)
          ciphers.philox_bits(PhiloxKey(keys + 4 * k), first, n, bits + begin);
        else
          threefry_bits(ciphers, keys + 2 * k, first, n, bits + begin);
        begin += n;
      }
    });
  };
}

// ---- threefry: keys [keys..., 2], hi and lo [keys..., rest...] -> x0 and x1 of their shape

std::vector<Type> threefry_type(Types in, const Attrs&) {
  expect_operands("threefry", in, 3);
  if (!is_key(in[0], 2))
    throw_error("threefry: the key is {}; a key is u32[2], or several of them with leading dimensions",
                to_string(in[0]));
  if (in[1].dtype != DType::u32 || in[1] != in[2])
    throw_error("threefry: the counters are {} and {}; both must be u32 of one shape", to_string(in[1]),
                to_string(in[2]));
  const Shape keys = key_shape(in[0]);
  if (in[1].shape.size() < keys.size() || !std::equal(keys.begin(), keys.end(), in[1].shape.begin()))
    throw_error("threefry: keys {} do not fit counters {}; the leading dimensions must be those of the keys",
                to_string(in[0]), to_string(in[1]));
  return {in[1], in[1]};
}

Rule threefry_rule(Types in, const Attrs&) {
  Factors factors;
  const std::string counters = factors.next(in[1].rank()), word = factors.next(1);
  const std::string keys = counters.substr(0, static_cast<size_t>(in[0].rank() - 1));
  return {{keys + word, counters, counters}, {counters, counters}, word};
}

// By the rule, a single key would be copied for each example.
Batched threefry_batch(const Batch& b) {
  if (b.batched[0] || b.in[0].rank() > 1) return batch_by_rule(b);
  const Value in[] = {b.in[0], with_batch(b, 1), with_batch(b, 2)};
  return b.builder.emit(b.op, in, b.attrs);
}

Kernel threefry_cpu(const KernelSpec& spec) {
  const int64_t total = count(spec.in[1].shape);
  const int64_t per_key = extent(spec.in[1].shape, spec.in[0].rank() - 1, spec.in[1].rank());
  return [=, &ciphers = random_ciphers(), pool = &spec.pool](const void* const* in, void* const* out) {
    const auto *keys = static_cast<const uint32_t*>(in[0]), *hi = static_cast<const uint32_t*>(in[1]),
               *lo = static_cast<const uint32_t*>(in[2]);
    auto *out0 = static_cast<uint32_t*>(out[0]), *out1 = static_cast<uint32_t*>(out[1]);
    pool->parallel_range(total, kRandomGrain, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {
        const int64_t k = begin / per_key, stop = std::min(end, (k + 1) * per_key);
        ciphers.threefry(ThreefryKey(keys + 2 * k), hi + begin, lo + begin, stop - begin, out0 + begin, out1 + begin);
        begin = stop;
      }
    });
  };
}

}  // namespace

constinit const Op random_bits_op = {.name = "random_bits",
                                     .rule = random_bits_rule,
                                     .type = random_bits_type,
                                     .local = random_bits_local,
                                     .cpu = random_bits_cpu,
                                     .cuda = LOCKSTEP_CUDA(random_bits_cuda),
                                     .cuda_task = LOCKSTEP_CUDA(&random_bits_task)};

constinit const Op threefry_op = {.name = "threefry",
                                  .rule = threefry_rule,
                                  .type = threefry_type,
                                  .batch = threefry_batch,
                                  .cpu = threefry_cpu,
                                  .cuda = LOCKSTEP_CUDA(threefry_cuda),
                                  .cuda_task = LOCKSTEP_CUDA(&threefry_task)};

Value random_bits(Value key, Shape shape) { return emit(random_bits_op, {key}, {{"shape", std::move(shape)}}); }

Values threefry(Value key, Value hi, Value lo) {
  const Value in[] = {key, hi, lo};
  return key.builder().emit(threefry_op, in);
}

}  // namespace lockstep
