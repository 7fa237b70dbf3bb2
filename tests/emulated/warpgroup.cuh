// The products of ops/cuda/kernels/warpgroup.cuh, emulated. A product is computed when it is waited for; until then its
// result is NaN. The four warps of a warpgroup are not checked to arrive together.
#pragma once

#include "machine.cuh"

namespace lockstep {

inline constexpr int kChunkColumns = 64;

template <int kRows>
constexpr int warpgroup_place(int row, int unit) {
  return unit / 8 * (kRows * kChunkColumns) + row * kChunkColumns + (unit % 8 ^ row % 8) * 8;
}

class SharedMatrix {
 public:
  SharedMatrix() = default;
  SharedMatrix(const void* from, int rows) : from_(static_cast<const char*>(from)), rows_(rows) {}
  SharedMatrix at(int bytes) const {
    SharedMatrix out = *this;
    out.from_ += bytes;
    return out;
  }
  // Element k of the sum of a row, or of a column.
  uint16_t of_row(int row, int k) const { return element(row * 128 + k * 2); }
  uint16_t of_column(int column, int k) const {
    return element(column / kChunkColumns * rows_ * 128 + k * 128 + column % kChunkColumns * 2);
  }

 private:
  // Bits 4 to 6 of an address are combined with bits 7 to 9.
  uint16_t element(int bytes) const {
    const auto logical = reinterpret_cast<uintptr_t>(from_ + bytes);
    uint16_t out;
    std::memcpy(&out, reinterpret_cast<const char*>(logical ^ (logical >> 7 & 7) << 4), sizeof out);
    return out;
  }

  const char* from_ = nullptr;
  int rows_ = 0;
};

namespace emulated_product {

constexpr uint32_t kInFlight = 0x7fc0f119;  // the bits of a result in flight, a NaN

// A product in flight: the results of one thread.
struct Started {
  float* c;
  int wide;
  bool columns, of_registers;
  bool chained;    // adds to the result of an earlier product in flight
  float sum[64];   // otherwise, what it adds to
  float a[2][16];  // two rows of A, of registers
  SharedMatrix a_shared, b;
  int row, column;  // of the thread's first result
};

template <class Element>
float value_of(uint16_t bits) {
  if constexpr (std::is_same_v<Element, bf16>)
    return emulated::from_bf16(bits);
  else
    return from_half(bits);
}

template <class Element>
void finish(const void* product) {
  const Started& x = *static_cast<const Started*>(product);
  for (int at = 0; at < 4 * x.wide; ++at) {
    const int down = at % 4 / 2, column = x.column + at / 4 * 8 + at % 2;
    float sum = x.chained ? x.c[at] : x.sum[at];
    for (int k = 0; k < 16; ++k) {
      const float a = x.of_registers ? x.a[down][k] : value_of<Element>(x.a_shared.of_row(x.row + down * 8, k));
      sum += a * value_of<Element>(x.columns ? x.b.of_column(column, k) : x.b.of_row(column, k));
    }
    x.c[at] = sum;
  }
}

template <class Element, bool kColumns, int kWide>
Started begin(float (&c)[kWide][4], const SharedMatrix& b, bool add) {
  Started out = {};
  out.c = &c[0][0];
  out.wide = kWide;
  out.columns = kColumns;
  out.b = b;
  out.row = static_cast<int>(threadIdx.x % 128 / 32 * 16) + emulated::lane() / 4;
  out.column = emulated::lane() % 4 * 2;
  out.chained = add && __float_as_uint(out.c[0]) == kInFlight;
  for (int at = 0; at < 4 * kWide; ++at) {
    if (add) out.sum[at] = out.c[at];
    out.c[at] = __uint_as_float(kInFlight);
  }
  return out;
}

}  // namespace emulated_product

inline void publish_to_warpgroups() {}
inline void begin_products() {}
inline void commit_products() { emulated::commit_products(); }
template <int kLeft>
inline void wait_for_products() {
  emulated::wait_for_products(kLeft);
}
inline void pin(float) {}
template <class Fragments>
inline void keep(Fragments&) {}

template <bool kColumns, class Element, int kWide>
inline void multiply_started(Element, float (&c)[kWide][4], const SharedMatrix& a, const SharedMatrix& b, bool add) {
  emulated_product::Started product = emulated_product::begin<Element, kColumns>(c, b, add);
  product.a_shared = a;
  emulated::start_product(emulated_product::finish<Element>, &product, sizeof product);
}
template <bool kColumns, class Element, int kWide>
inline void multiply_started(Element, float (&c)[kWide][4], const uint32_t (&a)[4], const SharedMatrix& b, bool add) {
  emulated_product::Started product = emulated_product::begin<Element, kColumns>(c, b, add);
  product.of_registers = true;
  // The four lanes of a row exchange what they have of it.
  const int first = emulated::lane() / 4 * 4;
  struct Words {
    uint32_t of[4];
  } own;
  std::memcpy(own.of, a, sizeof own.of);
  for (int from = 0; from < 4; ++from) {
    const Words other = emulated::from_lane(own, first + from);
    for (int at = 0; at < 8; ++at)
      product.a[at / 2 % 2][at / 4 * 8 + from * 2 + at % 2] =
          emulated_product::value_of<Element>(static_cast<uint16_t>(other.of[at / 2] >> 16 * (at % 2)));
  }
  emulated::start_product(emulated_product::finish<Element>, &product, sizeof product);
}

}  // namespace lockstep
