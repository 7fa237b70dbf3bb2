// Products of the tiles of attention by warpgroups (warpgroup.cuh), for heads of 64 or 128 features of 16 bits.
#pragma once
#include "attention.cuh"
#include "warpgroup.cuh"

namespace lockstep {

// A tile of kRows rows of an array [rows, heads, kFeatures], as a matrix in shared memory.
template <class T, int kFeatures, int kRows>
struct AttentionMatrix : AttentionFeatures<T, kFeatures> {
  static_assert(kFeatures % kChunkColumns == 0 && kRows % 8 == 0);
  static constexpr int kSize = kRows * kFeatures;

  // As in AttentionTile.
  template <int kThreads>
  static void fetch(T* to, const T* from, int64_t lead, int first, int end) {
    constexpr int kAcross = kFeatures / 8, kDown = kThreads / kAcross;  // a row's copies, and rows at a time
    static_assert(kThreads % kAcross == 0 && kDown % 8 == 0 && kRows % kDown == 0);
    const int row = threadIdx.x / kAcross, unit = threadIdx.x % kAcross;
    T* const place = to + warpgroup_place<kRows>(row, unit);
    const T* const source = from + (first + row) * lead + unit * 8;
#pragma unroll
    for (int u = 0; u < kRows; u += kDown)
      copy_async<16>(place + u * kChunkColumns, source + u * lead, first + row + u < end);
  }
  // The matrix of the rows from `row` on, a multiple of eight.
  static SharedMatrix at(const T* tile, int row = 0) { return {tile + row * kChunkColumns, kRows}; }
  // Where element 16 d of the sum begins, if the sum runs along the features, or along the rows.
  static constexpr int along_features(int d) { return d / 4 * (kRows * 128) + d % 4 * 32; }
  static constexpr int along_rows(int d) { return d * 2048; }
};

template <class T>
struct AttentionWarpgroups {
  template <int kFeatures, int kRows>
  using Tile = AttentionMatrix<T, kFeatures, kRows>;

  template <class Tile, int kTall, bool kHold>
  struct Rows {
    using Along = Tile;
    SharedMatrix matrix;
    Rows(const T* tile, int warp_row, int) : matrix(Tile::at(tile, warp_row / 64 * 64)) {}
    void hold() {}
  };
  template <class Scores>
  struct Packed;
  template <int kWide>
  struct Packed<float[1][kWide][4]> {
    uint32_t words[kWide / 2][4];
    Packed() = default;
    explicit Packed(const float(&scores)[1][kWide][4]) { pack(scores); }
    void pack(const float(&scores)[1][kWide][4]) {
#pragma unroll
      for (int d = 0; d < kWide / 2; ++d) AttentionProduct<T, false>::of_scores(words[d], scores[0], d);
    }
  };

  static constexpr bool kInBackground = true;
  static constexpr int rows_together(int) { return 64; }
  static void publish() { publish_to_warpgroups(); }

  // The compiler moves what it likes across these calls, except for accesses to their registers.
  template <class... Registers>
  static void begin(Registers&... registers) {
    (keep_all(registers), ...);
    begin_products();
  }
  static void commit() { commit_products(); }
  template <int kLeft, class... Registers>
  static void wait_for(Registers&... registers) {
    wait_for_products<kLeft>();
    (keep_all(registers), ...);
  }
  template <int kWide>
  static void settle(float (&weights)[1][kWide][4]) {
    keep(weights[0]);
    pin(weights[0][kWide - 1][3]);
  }
  template <class Tile, int kWide, class Rows>
  static void set_rows(float (&c)[1][kWide][4], const Rows& a, const T* b) {
    const SharedMatrix matrix = Tile::at(b);
#pragma unroll
    for (int d = 0; d < Tile::kPadded / 16; ++d)
      multiply_started<false>(T{}, c[0], a.matrix.at(Rows::Along::along_features(d)),
                              matrix.at(Tile::along_features(d)), d > 0);
  }
  template <class Tile, int kWide, class Scores>
  static void add_scores(float (&c)[1][kWide][4], const Packed<Scores>& p, const T* b) {
    const SharedMatrix matrix = Tile::at(b);
#pragma unroll
    for (int d = 0; d < int(sizeof p.words / sizeof p.words[0]); ++d)
      multiply_started<true>(T{}, c[0], p.words[d], matrix.at(Tile::along_rows(d)), true);
  }

  template <int kWide>
  static void keep_all(float (&c)[1][kWide][4]) {
    keep(c[0]);
  }
  template <class Scores>
  static void keep_all(Packed<Scores>& p) {
    keep(p.words);
  }
};

}  // namespace lockstep
