// The parts that the kernels of attention share (attention_forward.cuh, attention_backward.cuh): tiles in shared
// memory, products of tiles on the tensor cores, scores, which keys a query sees, and dropout.
//
// Arrays, as in ops/attention.h: q [b, t, h, e], k [b, s, g, e], v [b, s, g, f]. Query head h uses key head h / (kH / kG).
// In the names of variables, b, h and g are an example and its heads, a query is a position along t and a key one along s.
//
// A type A describes the equation (attention_cuda.cc):
//   T                           the type of q, k, v
//   kFull                       multiply f32 as three products of TF32, with a relative error of about 2^-21
//   kB, kT, kH, kE, kS, kG, kF  extents
//   kLeadQ, kLeadK, kLeadV, kLeadDq, kLeadDk, kLeadDv   elements from a position to the next one of the same head
//   kCausal, kWindow            a query at position p sees keys <= p, and keys > p - kWindow (0: no limit)
//   kScale, kSoftcap            score = kScale * product, or kSoftcap * tanh(kScale * product / kSoftcap) (0: no softcap)
//   kDropout, kKeep             16-bit numbers below kDropout drop a weight (0: none); kept weights are multiplied by kKeep
//   kFirstExample, kFirstHead, kFirstQuery   the global index of this shard's first ones
//   kSegments                   whether a query sees only keys of its own segment
//
// A warp holds scores as the results of the tensor cores ("fragments"): of 16 rows by 8 columns, lane 4 r + c has the
// elements 0 to 3 at (r, 2 c), (r, 2 c + 1), (r + 8, 2 c), (r + 8, 2 c + 1). Rows are queries and columns keys, or the
// opposite (kKeysDown). The same registers are the first operand of the next product, so scores never go through memory.
#pragma once
#include "mma.cuh"
#include "threefry.cuh"

namespace lockstep {

// A constant as an argument.
template <bool kOf>
struct Flag {
  static constexpr bool kValue = kOf;
};

inline constexpr float kLog2E = 1.44269504089f, kLn2 = 0.69314718056f;
inline constexpr float kAttentionHidden = -__builtin_inff();  // the score of a key that a query does not see

// Optional operands; those that are missing are null.
struct AttentionOperands {
  const int32_t* offset;
  const int32_t* lengths;
  const int32_t* query_segments;
  const int32_t* key_segments;
  const uint32_t* dropout_key;
};

// The features of a head in memory. Tiles pad them with zeros to a multiple of 16.
template <class T, int kFeatures>
struct AttentionFeatures {
  static constexpr int kPadded = (kFeatures + 15) / 16 * 16;

  // Writes rows of a head, each multiplied by factor(i, half). `row`: the thread's first one.
  template <int kTall, int kWide, class Factor>
  static void store(const float (&c)[kTall][kWide][4], T* to, int64_t lead, int row, int end, const Factor& factor) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + i * 16 + half * 8;
        if (at >= end) continue;
        const float by = factor(i, half);
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const int col = first + j * 8;
          T* const place = to + at * lead + col;
          const T x = Store<T>::of(c[i][j][2 * half] * by), y = Store<T>::of(c[i][j][2 * half + 1] * by);
          if constexpr (kFeatures % 2 == 0) {
            if (kPadded == kFeatures || col < kFeatures) *reinterpret_cast<Side<T, 2>*>(place) = {x, y};
          } else {
            if (col < kFeatures) place[0] = x;
            if (col + 1 < kFeatures) place[1] = y;
          }
        }
      }
  }
};

// A tile of kRows rows of an array [rows, heads, kFeatures] in shared memory. Rows are padded by 16 bytes, so that eight
// adjacent rows are in different banks.
template <class T, int kFeatures, int kRows>
struct AttentionTile : AttentionFeatures<T, kFeatures> {
  static constexpr int kPadded = AttentionFeatures<T, kFeatures>::kPadded, kStep = kPadded + 16 / int(sizeof(T));
  static constexpr int kRowBytes = kFeatures * int(sizeof(T)), kSize = kRows * kStep;
  static constexpr int kBytes = kRowBytes % 16 == 0 ? 16 : kRowBytes % 4 == 0 ? 4 : int(sizeof(T));  // of a copy

  // Starts to copy the rows from row `first` on; complete after commit() and wait_for(). `from`: row 0 of a head, whose
  // rows are `lead` elements apart. Rows from `end` on become zero.
  template <int kThreads>
  static void fetch(T* to, const T* from, int64_t lead, int first, int end) {
    constexpr int kEach = kBytes / int(sizeof(T)), kAcross = kPadded / kEach, kAll = kRows * kAcross;
    constexpr bool kSameColumns = kThreads % kAcross == 0;  // of all copies of a thread
    constexpr int kRounds = (kAll + kThreads - 1) / kThreads;
#pragma unroll(kRounds <= 16 ? kRounds : 4)
    for (int u = 0; u < kRounds; ++u) {
      const int at = threadIdx.x + u * kThreads;
      if (kAll % kThreads != 0 && at >= kAll) break;
      const int row = kSameColumns ? threadIdx.x / kAcross + u * (kThreads / kAcross) : at / kAcross;
      const int col = (kSameColumns ? threadIdx.x % kAcross : at % kAcross) * kEach;
      const bool in = first + row < end && (kPadded == kFeatures || col < kFeatures);
      const T* const source = in ? from + (first + row) * lead + col : from;
      if constexpr (kBytes >= 4)
        copy_async<kBytes>(to + row * kStep + col, source, in);
      else
        to[row * kStep + col] = in ? *source : T{};
    }
  }
};

// Products of tiles by a warp. Pointers to tiles are those of a lane: lane_rows_a() and so on, plus where the warp's part
// begins.
template <class T, bool kFull>
struct AttentionProduct {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDeep = kFloat ? 8 : 16, kEach = 16 / int(sizeof(T));  // the sum of an instruction; 16 bytes

  template <int kStep>
  static int lane_rows_a(int lane) {
    return lane % 16 * kStep + lane / 16 * kEach;
  }
  template <int kStep>
  static int lane_rows_b(int lane) {
    return (lane % 8 + lane / 16 * 8) * kStep + lane / 8 % 2 * kEach;
  }
  template <int kStep>
  static int lane_columns_b(int lane) {
    if (kFloat) return lane % 4 * 2 * kStep + lane / 4;
    return (lane % 8 + lane / 8 % 2 * 8) * kStep + lane / 16 * 8;
  }

  // Loads 16 rows of the first operand, at element `d` kDeep of the sum.
  static void load_a(uint32_t (&a)[4], const T* from, int d) {
    load_matrices<false, 4>(a, from + d * kDeep);
    round(a);
  }
  // Loads 16 columns of the second operand, which are rows of the tile.
  static void load_rows_b(uint32_t (&b)[4], const T* from) {
    load_matrices<false, 4>(b, from);
    round(b);
  }
  // Loads 16 columns of the second operand, which are columns of the tile. For f32, the sum is in the order of
  // of_scores().
  template <int kStep>
  static void load_columns_b(uint32_t (&b)[4], const T* from) {
    if constexpr (kFloat) {
#pragma unroll
      for (int e = 0; e < 4; ++e) b[e] = __float_as_uint(from[e % 2 * kStep + e / 2 * 8]);
      round(b);
    } else {
      load_matrices<true, 4>(b, from);
    }
  }
  // Makes the first operand from columns `d` kDeep and following of scores. For f32, elements 2 c and 2 c + 1 of the sum
  // are those that the instruction calls c and c + 4.
  template <int kWide>
  static void of_scores(uint32_t (&a)[4], const float (&p)[kWide][4], int d) {
    if constexpr (kFloat) {
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = __float_as_uint(p[d][e % 2 * 2 + e / 2]);
      round(a);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[e] = rounded_pair(T{}, __float_as_uint(p[2 * d + e / 2][e % 2 * 2]),
                            __float_as_uint(p[2 * d + e / 2][e % 2 * 2 + 1]));
    }
  }

  // c += a b for columns j and j + 1 of fragments of b.
  template <int kTall, int kWide>
  static void multiply(float (&c)[kTall][kWide][4], const uint32_t (&a)[kTall][4], const uint32_t (&b)[4], int j) {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int u = 0; u < 2; ++u) multiply_fragment(c[i][j + u], a[i], {b[2 * u], b[2 * u + 1]});
  }

  // c += a b, summed over kSum features: b are rows of a tile, and load(a, d) sets fragments of a (AttentionRows).
  template <int kSum, int kStep, int kTall, int kWide, class Load>
  static void multiply_rows(float (&c)[kTall][kWide][4], const Load& load, const T* from) {
#pragma unroll
    for (int d = 0; d < kSum / kDeep; ++d) {
      uint32_t a[kTall][4];
      load(a, d);
#pragma unroll
      for (int j = 0; j < kWide; j += 2) {
        uint32_t b[4];
        load_rows_b(b, from + j * 8 * kStep + d * kDeep);
        multiply(c, a, b, j);
      }
    }
  }
  // c += p b, summed over the columns of p, which are the rows of a tile.
  template <int kStep, int kTall, int kColumns, int kWide>
  static void multiply_scores(float (&c)[kTall][kWide][4], const float (&p)[kTall][kColumns][4], const T* from) {
#pragma unroll
    for (int d = 0; d < kColumns * 8 / kDeep; ++d) {
      uint32_t a[kTall][4];
#pragma unroll
      for (int i = 0; i < kTall; ++i) of_scores(a[i], p[i], d);
#pragma unroll
      for (int j = 0; j < kWide; j += 2) {
        uint32_t b[4];
        load_columns_b<kStep>(b, from + d * kDeep * kStep + j * 8);
        multiply(c, a, b, j);
      }
    }
  }

 private:
  static void round(uint32_t (&words)[4]) {
    if constexpr (kFloat && !kFull) {
#pragma unroll
      for (int e = 0; e < 4; ++e) words[e] = tf32(words[e]);
    }
  }
  // What TF32 leaves of an f32.
  static uint32_t low(uint32_t x) { return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & ~0x1fffu)); }
  static void multiply_fragment(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (kFloat && kFull) {
      multiply_one(T{}, c, {low(a[0]), low(a[1]), low(a[2]), low(a[3])}, b);
      multiply_one(T{}, c, a, {low(b[0]), low(b[1])});
    }
    multiply_one(T{}, c, a, b);
  }
};

// The rows of a warp as the first operand of products: 16 kTall rows of kDepth fragments, of a tile whose rows are kStep
// elements apart. They stay in registers if kHold; otherwise they are loaded when needed.
template <class Product, class T, int kTall, int kDepth, int kStep, bool kHold>
struct AttentionRows {
  const T* from;  // the lane's first element
  uint32_t held[kHold ? kDepth : 1][kTall][4] = {};

  AttentionRows(const T* tile, int warp_row, int lane)
      : from(tile + warp_row * kStep + Product::template lane_rows_a<kStep>(lane)) {}
  // Loads what stays in registers. REQUIRES: the tile is complete.
  void hold() {
    if constexpr (kHold) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) load(held[d], d);
    }
  }
  void operator()(uint32_t (&a)[kTall][4], int d) const {
    if constexpr (kHold) {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = held[d][i][e];
    } else {
      load(a, d);
    }
  }

 private:
  void load(uint32_t (&a)[kTall][4], int d) const {
#pragma unroll
    for (int i = 0; i < kTall; ++i) Product::load_a(a[i], from + i * 16 * kStep, d);
  }
};

// How a thread block multiplies tiles: each warp its own 16 kTall rows, by one instruction after the other.
// AttentionWarpgroups (attention_warpgroup.cuh) has the same members.
template <class T, bool kFull>
struct AttentionWarps {
  using Product = AttentionProduct<T, kFull>;
  template <int kFeatures, int kRows>
  using Tile = AttentionTile<T, kFeatures, kRows>;
  // The rows of a warp of such a tile, as the first operand.
  template <class Tile, int kTall, bool kHold>
  using Rows = AttentionRows<Product, T, kTall, Tile::kPadded / Product::kDeep, Tile::kStep, kHold>;
  // Scores as the first operand.
  template <class Scores>
  struct Packed {
    const Scores& scores;
    explicit Packed(const Scores& from) : scores(from) {}
  };

  static constexpr bool kInBackground = false;  // whether products are computed while the threads go on
  // Rows that are multiplied together.
  static constexpr int rows_together(int tall) { return 16 * tall; }
  // Makes copies to shared memory visible, together with a following __syncthreads().
  static void publish() {}

  // From begin() until wait_for() returns, products may be in flight. commit() makes a group of those that were started
  // since the last one; wait_for() waits for all groups but the last kLeft. begin() gets the registers that products will
  // read, wait_for() those of the completed ones, and settle() weights that are computed before the next wait. set_rows()
  // computes c = a b, and add_scores() c += p b.
  template <class... Registers>
  static void begin(Registers&...) {}
  static void commit() {}
  template <int kLeft, class... Registers>
  static void wait_for(Registers&...) {}
  template <class Registers>
  static void settle(Registers&) {}
  template <class Tile, int kTall, int kWide, class Rows>
  static void set_rows(float (&c)[kTall][kWide][4], const Rows& a, const T* b) {
#pragma unroll
    for (int i = 0; i < kTall * kWide; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i / kWide][i % kWide][e] = 0;
    Product::template multiply_rows<Tile::kPadded, Tile::kStep>(
        c, a, b + Product::template lane_rows_b<Tile::kStep>(threadIdx.x % 32));
  }
  template <class Tile, int kTall, int kWide, class Scores>
  static void add_scores(float (&c)[kTall][kWide][4], const Packed<Scores>& p, const T* b) {
    Product::template multiply_scores<Tile::kStep>(c, p.scores,
                                                   b + Product::template lane_columns_b<Tile::kStep>(threadIdx.x % 32));
  }
};

// Scores in units in which a weight is exp2(score * kUnit - lse).
template <class A>
struct AttentionScore {
  static constexpr bool kCapped = A::kSoftcap > 0;
  static constexpr float kUnit = kLog2E * (kCapped           ? A::kSoftcap
                                           : A::kScale == 0  ? 1.0f
                                           : A::kScale < 0.0 ? -A::kScale
                                                             : A::kScale);
  // From the product of a query and a key. tanh(x) = 1 - 2 / (exp(2 x) + 1).
  static float of(float product) {
    if constexpr (kCapped)
      return 1.0f - full_div(2.0f, 1.0f + approx_exp2(product * (2 * kLog2E * A::kScale / A::kSoftcap)));
    else
      return A::kScale == 0 ? 0.0f : A::kScale < 0 ? -product : product;
  }
  // The derivative of a score, divided by kScale.
  static float derivative(float score) { return kCapped ? 1.0f - score * score : 1.0f; }
};

// Which keys the queries of an example see.
template <class A>
struct AttentionMask {
  enum Sees : uint8_t { none, some, all };

  int shift = 0;    // position of query 0, limited to what makes a difference
  int end = A::kS;  // keys from here on are hidden
  const int32_t* query_segments = nullptr;
  const int32_t* key_segments = nullptr;

  AttentionMask(const AttentionOperands& operands, int b) {
    constexpr int64_t kMost = int64_t(1) << 30;
    const int64_t first = A::kFirstQuery + (operands.offset ? int64_t(*operands.offset) : 0);
    shift = int(first > kMost ? kMost : first < -kMost ? -kMost : first);
    if (operands.lengths) end = limited(operands.lengths[b]);
    if constexpr (A::kSegments) {
      query_segments = operands.query_segments + int64_t(b) * A::kT;
      key_segments = operands.key_segments + int64_t(b) * A::kS;
    }
  }

  // The range of keys that a query sees, segments aside: [first_key, end_key).
  int first_key(int query) const { return A::kWindow > 0 ? limited(int64_t(query) + shift + 1 - A::kWindow) : 0; }
  int end_key(int query) const { return A::kCausal ? limited(int64_t(query) + shift + 1) : end; }
  // The range of queries that see some of the keys from `key` on, or some before `key_end`.
  int first_query(int key) const { return A::kCausal ? query_limited(int64_t(key) - shift) : 0; }
  int end_query(int key_end) const {
    return A::kWindow > 0 ? query_limited(int64_t(key_end) - 1 + A::kWindow - shift) : A::kT;
  }

  // How many of these keys each of the queries sees. All lanes of a warp call it, with the same arguments.
  Sees sees(int query, int query_end, int key, int key_end) const {
    if (query_end > A::kT) query_end = A::kT;
    if (query >= query_end || key >= end_key(query_end - 1) || key_end <= first_key(query)) return none;
    bool whole = key_end <= end_key(query) && key >= first_key(query_end - 1);
    if constexpr (A::kSegments) {
      const Segments a = segments_of(query_segments, query, query_end);
      const Segments b = segments_of(key_segments, key, key_end < end ? key_end : end);
      if (a.most < b.least || b.most < a.least) return none;
      whole = whole && a.least == a.most && b.least == b.most;
    }
    return whole ? all : some;
  }
  bool sees(int query, int key) const {
    bool out = key < end;
    if constexpr (A::kCausal) out = out && key - query <= shift;
    if constexpr (A::kWindow > 0) out = out && key - query > shift - A::kWindow;
    if constexpr (A::kSegments) out = out && query < A::kT && query_segments[query] == key_segments[key];
    return out;
  }
  // The elements of a fragment that are seen, as bits. `query` and `key`: those of element 0.
  template <bool kKeysDown>
  uint32_t seen(int query, int key) const {
    uint32_t out = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int down = e / 2 * 8, across = e % 2;
      out |= uint32_t(sees(query + (kKeysDown ? across : down), key + (kKeysDown ? down : across))) << e;
    }
    return out;
  }

 private:
  struct Segments {
    int least, most;
  };
  static Segments segments_of(const int32_t* segments, int from, int to) {
    int least = segments[from], most = least;
    for (int at = from + threadIdx.x % 32; at < to; at += 32) {
      least = segments[at] < least ? segments[at] : least;
      most = segments[at] > most ? segments[at] : most;
    }
    return {__reduce_min_sync(~0u, least), __reduce_max_sync(~0u, most)};
  }

  int limited(int64_t key) const { return int(key < 0 ? 0 : key < end ? key : end); }
  static int query_limited(int64_t query) { return int(query < 0 ? 0 : query < A::kT ? query : A::kT); }
};

// Which weights of a head dropout keeps. One encryption serves four keys of one query, in several lanes: each lane
// computes the encryption of one of them, and they exchange the words.
template <class A>
struct AttentionDropout {
  uint32_t key[2] = {};

  AttentionDropout(const AttentionOperands& operands, int b, int h) {
    if constexpr (A::kDropout > 0) {
      key[0] = uint32_t(b) + A::kFirstExample;
      key[1] = uint32_t(h) + A::kFirstHead;
      threefry(operands.dropout_key, key[0], key[1]);
    }
  }

  // The elements of a fragment that are kept, as bits. `query` and `first`: query and key of element 0. All lanes call it.
  template <bool kKeysDown>
  uint32_t kept(int query, int first) const {
    if constexpr (A::kDropout == 0) return 15;
    uint32_t numbers[2];  // of elements 0 and 1, and of elements 2 and 3
    if constexpr (kKeysDown)
      numbers_down(query, first, numbers);
    else
      numbers_across(query, first, numbers);
    uint32_t out = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) out |= uint32_t((numbers[e / 2] >> e % 2 * 16 & 0xffffu) >= A::kDropout) << e;
    return out;
  }

 private:
  void encrypt(int query, int first, uint32_t& x0, uint32_t& x1) const {
    x0 = uint32_t(query) + A::kFirstQuery;
    x1 = uint32_t(first) / 4;
    threefry(key, x0, x1);
  }
  // Even lanes have keys 0 and 1 of four, odd lanes keys 2 and 3. They encrypt the upper and the lower row.
  void numbers_across(int query, int first, uint32_t (&numbers)[2]) const {
    const bool odd = threadIdx.x & 1;
    uint32_t x0, x1;
    encrypt(query + (odd ? 8 : 0), first, x0, x1);
    const uint32_t own = odd ? x1 : x0, other = __shfl_xor_sync(~0u, odd ? x0 : x1, 1);
    numbers[0] = odd ? other : own;
    numbers[1] = odd ? own : other;
  }
  // Lanes 4, 8 and 12 further on have the other keys of four. Bit 2 of the lane says which query it encrypts, bit 3 which
  // rows. The first exchange is of words, the second of their halves.
  void numbers_down(int query, int first, uint32_t (&numbers)[2]) const {
    const bool second = threadIdx.x & 4, lower = threadIdx.x & 8;
    uint32_t x0, x1;
    encrypt(query + second, first + (lower ? 8 : 0), x0, x1);
    const uint32_t word = lower ? x1 : x0, received = __shfl_xor_sync(~0u, lower ? x0 : x1, 8);
    const uint32_t above = lower ? received : word, below = lower ? word : received;
    const uint32_t low = (above & 0xffffu) | below << 16, high = above >> 16 | (below & 0xffff0000u);
    const uint32_t own = second ? high : low, other = __shfl_xor_sync(~0u, second ? low : high, 4);
    const uint32_t query0 = second ? other : own, query1 = second ? own : other;
    numbers[0] = (query0 & 0xffffu) | query1 << 16;
    numbers[1] = query0 >> 16 | (query1 & 0xffff0000u);
  }
};

// The work of a thread block: a tile of the queries or keys of one of kHeads heads. kTogether heads, whose keys and values
// fit the L2 cache, have adjacent blocks. Tiles with the most work come first: the last ones if kLastFirst.
template <int kTiles, int kHeads, int kAll, int kTogether, bool kLastFirst>
struct AttentionPlace {
  int tile, b, head;

  explicit AttentionPlace(int block) {
    const int group = block / (kTogether * kTiles), rest = block % (kTogether * kTiles), before = group * kTogether;
    const int together = kAll - before < kTogether ? kAll - before : kTogether;
    tile = kLastFirst ? kTiles - 1 - rest / together : rest / together;
    b = (before + rest % together) / kHeads;
    head = (before + rest % together) % kHeads;
  }
};

}  // namespace lockstep
