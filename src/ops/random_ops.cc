// The rows of random bits. Threefry-2x32 is the block cipher of Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3" (2011): add, rotate and xor, 20 rounds, with a word of the key schedule added after every fourth.
#include "ops/random_ops.h"

#include <algorithm>
#include <cstring>

#include "lane/pool.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kRandomGrain = 16384;

struct Key {
  uint32_t word[3];  // the third is derived from the other two
};

Key load_key(const uint32_t* words) { return {{words[0], words[1], words[0] ^ words[1] ^ 0x1bd11bdau}}; }

// Many counters are encrypted together, so that their long dependency chains overlap. The compiler divides them into
// the vector registers of the instruction set.
constexpr uint32_t kRandomWords = 32;
using Words [[gnu::vector_size(kRandomWords * sizeof(uint32_t))]] = uint32_t;

// W is a word or Words.
template <class W>
[[gnu::always_inline]] inline void encrypt(const Key& key, W& x0, W& x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 += key.word[0];
  x1 += key.word[1];
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
      const int by = kRotations[group % 2][round];
      x0 += x1;
      x1 = ((x1 << by) | (x1 >> (32 - by))) ^ x0;
    }
    x0 += key.word[(group + 1) % 3];
    x1 += key.word[(group + 2) % 3] + (group + 1);
  }
}

// out[i] = x0 ^ x1 of the counter (hi, lo + i).
[[gnu::always_inline]] inline void count_loop(Key key, uint32_t hi, uint32_t lo, uint32_t n, uint32_t* out) {
  Words places;
  for (uint32_t i = 0; i < kRandomWords; ++i) places[i] = i;
  uint32_t i = 0;
  for (; n - i >= kRandomWords; i += kRandomWords) {
    Words x0 = Words{} + hi, x1 = places + (lo + i);
    encrypt(key, x0, x1);
    x0 ^= x1;
    std::memcpy(out + i, &x0, sizeof x0);
  }
  for (; i < n; ++i) {
    uint32_t x0 = hi, x1 = lo + i;
    encrypt(key, x0, x1);
    out[i] = x0 ^ x1;
  }
}

[[gnu::always_inline]] inline void words_loop(Key key, const uint32_t* hi, const uint32_t* lo, int64_t n,
                                              uint32_t* out0, uint32_t* out1) {
  int64_t i = 0;
  for (; n - i >= kRandomWords; i += kRandomWords) {
    Words x0, x1;
    std::memcpy(&x0, hi + i, sizeof x0);
    std::memcpy(&x1, lo + i, sizeof x1);
    encrypt(key, x0, x1);
    std::memcpy(out0 + i, &x0, sizeof x0);
    std::memcpy(out1 + i, &x1, sizeof x1);
  }
  for (; i < n; ++i) {
    uint32_t x0 = hi[i], x1 = lo[i];
    encrypt(key, x0, x1);
    out0[i] = x0;
    out1[i] = x1;
  }
}

// The two loops for one instruction set.
struct Cipher {
  void (*count)(Key, uint32_t hi, uint32_t lo, uint32_t n, uint32_t* out);
  void (*words)(Key, const uint32_t* hi, const uint32_t* lo, int64_t n, uint32_t* out0, uint32_t* out1);
};

#define LOCKSTEP_CIPHER(Set, attributes)                                                                     \
  struct Set {                                                                                               \
    attributes static void count(Key key, uint32_t hi, uint32_t lo, uint32_t n, uint32_t* out) {             \
      count_loop(key, hi, lo, n, out);                                                                       \
    }                                                                                                        \
    attributes static void words(Key key, const uint32_t* hi, const uint32_t* lo, int64_t n, uint32_t* out0, \
                                 uint32_t* out1) {                                                           \
      words_loop(key, hi, lo, n, out0, out1);                                                                \
    }                                                                                                        \
  };                                                                                                         \
  constexpr Cipher k##Set = {Set::count, Set::words};

LOCKSTEP_CIPHER(Baseline, )
#if defined(__x86_64__)
LOCKSTEP_CIPHER(Avx2, [[gnu::target("avx2")]])
LOCKSTEP_CIPHER(Avx512, [[gnu::target("avx512f,avx512vl")]])  // has rotate instructions
#endif
#undef LOCKSTEP_CIPHER

const Cipher& cipher() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return kAvx512;
  if (__builtin_cpu_supports("avx2")) return kAvx2;
#endif
  return kBaseline;
}

void expect_keys(std::string_view op, const Type& key) {
  if (key.dtype != DType::u32 || key.rank() < 1 || key.shape.back() != 2)
    throw_error("{}: the key is {}; a key is u32[2], or several of them with leading dimensions", op, to_string(key));
}

Shape key_shape(const Type& key) { return Shape(key.shape.begin(), key.shape.end() - 1); }

// ---- random_bits: keys [keys..., 2] -> [keys..., shape...]

std::vector<Type> random_bits_type(Types in, const Attrs& attrs) {
  expect_operands("random_bits", in, 1);
  expect_keys("random_bits", in[0]);
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

// Bits [begin, begin + n) of one key; one call of the cipher for each high word of the counter.
void count_from(const Cipher& cipher, const Key& key, uint64_t begin, uint64_t n, uint32_t* out) {
  while (n > 0) {
    const auto lo = static_cast<uint32_t>(begin);
    const uint64_t step = std::min<uint64_t>({n, (uint64_t{1} << 32) - lo, uint64_t{1} << 30});
    cipher.count(key, static_cast<uint32_t>(begin >> 32), lo, static_cast<uint32_t>(step), out);
    begin += step;
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
  return [=, runs = runs_of(spec.attrs), &run = cipher(), pool = &spec.pool](const void* const* in, void* const* out) {
    const auto* keys = static_cast<const uint32_t*>(in[0]);
    auto* bits = static_cast<uint32_t*>(out[0]);
    pool->parallel_range(total, kRandomGrain, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {
        const int64_t k = begin / per_key, r = begin % per_key / runs.length, at = begin % runs.length;
        const int64_t n = std::min(end - begin, runs.length - at);
        count_from(run, load_key(keys + 2 * k), runs.begin[static_cast<size_t>(r)] + static_cast<uint64_t>(at),
                   static_cast<uint64_t>(n), bits + begin);
        begin += n;
      }
    });
  };
}

// ---- threefry: keys [keys..., 2], hi and lo [keys..., rest...] -> x0 and x1 of their shape

std::vector<Type> threefry_type(Types in, const Attrs&) {
  expect_operands("threefry", in, 3);
  expect_keys("threefry", in[0]);
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
  return [=, &run = cipher(), pool = &spec.pool](const void* const* in, void* const* out) {
    const auto *keys = static_cast<const uint32_t*>(in[0]), *hi = static_cast<const uint32_t*>(in[1]),
               *lo = static_cast<const uint32_t*>(in[2]);
    auto *out0 = static_cast<uint32_t*>(out[0]), *out1 = static_cast<uint32_t*>(out[1]);
    pool->parallel_range(total, kRandomGrain, [&](int64_t begin, int64_t end, int) {
      while (begin < end) {
        const int64_t k = begin / per_key, stop = std::min(end, (k + 1) * per_key);
        run.words(load_key(keys + 2 * k), hi + begin, lo + begin, stop - begin, out0 + begin, out1 + begin);
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
