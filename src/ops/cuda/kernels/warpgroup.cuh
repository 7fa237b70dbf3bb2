// Products by a warpgroup, four warps with 64 rows together, on the tensor cores of Hopper (wgmma). Like machine.cuh, this
// header has PTX, and the emulated GPU replaces it (tests/emulated/warpgroup.cuh).
//
// # Matrices in shared memory
//
// A matrix of 16-bit floats is stored in chunks of 64 columns, [chunk][row][64]. A row of a chunk has 128 bytes: eight
// units of 16 bytes, of which unit u of row r is stored at u ^ (r % 8), so that a column of eight rows touches all banks
// ("128-byte swizzle"). A matrix starts at a multiple of 1024 bytes. warpgroup_place() returns the place of an element.
//
// # Order
//
//   publish_to_warpgroups();  __syncthreads();   // what threads have written to shared memory, before products read it
//   begin_products();                            // the registers are final
//   multiply_rows(...); commit_products();       // starts products
//   wait_for_products<0>();  keep(c);            // the results are there, and what a thread does with them comes after
//
// From begin_products() to wait_for_products(), no instruction may touch the registers of products in flight.
#pragma once
#include "machine.cuh"

namespace lockstep {

inline constexpr int kChunkColumns = 64;  // of a matrix in shared memory

// The offset of an element of a matrix of kRows rows. `unit`: column / 8.
template <int kRows>
constexpr int warpgroup_place(int row, int unit) {
  return unit / 8 * (kRows * kChunkColumns) + row * kChunkColumns + (unit % 8 ^ row % 8) * 8;
}

// A matrix in shared memory, as an operand.
class SharedMatrix {
 public:
  // `rows`: of the matrix. `from`: its first element, or that of a later row that is a multiple of eight.
  SharedMatrix(const void* from, int rows) {
    const uint64_t at = uint32_t(__cvta_generic_to_shared(from)) & 0x3ffffu;
    constexpr uint64_t kEightRows = 1024, kSwizzled = 1;
    descriptor_ = at >> 4 | uint64_t(rows * 128 >> 4) << 16 | kEightRows >> 4 << 32 | kSwizzled << 62;
  }
  // The matrix that starts some bytes further on.
  SharedMatrix at(int bytes) const {
    SharedMatrix out = *this;
    out.descriptor_ += bytes >> 4;
    return out;
  }
  uint64_t descriptor() const { return descriptor_; }

 private:
  uint64_t descriptor_;
};

// Makes what this thread has written to shared memory visible to products, together with a following __syncthreads().
inline void publish_to_warpgroups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Orders earlier accesses to registers before products.
inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Makes a group of the products that were started since the last call.
inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all groups but the last kLeft are complete.
template <int kLeft>
inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps the compiler from waiting for products before it has computed x, which is never below -1.
inline void pin(float x) {
  if (x < -1.0f) asm volatile("nanosleep.u32 0;" ::: "memory");
}
// Keeps the compiler from moving accesses to registers across this place.
template <int kWide>
inline void keep(float (&c)[kWide][4]) {
#pragma unroll
  for (int j = 0; j < kWide; ++j)
    asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
}
template <int kDepth>
inline void keep(uint32_t (&a)[kDepth][4]) {
#pragma unroll
  for (int d = 0; d < kDepth; ++d)
    asm volatile("" : "+r"(a[d][0]), "+r"(a[d][1]), "+r"(a[d][2]), "+r"(a[d][3])::"memory");
}

// Start c = a b, or c += a b if `add`: 64 rows, 16 elements of the sum, 8 kWide columns. The elements of c that a thread
// has are those of kWide fragments of its warp (attention.cuh), which has 16 of the rows. A is a matrix in shared memory
// whose rows are rows, or fragments in registers. The columns of B are rows in shared memory, or, if kColumns, columns.
#define LOCKSTEP_RESULT_2(c, j)                                                                                        \
  "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]), "+f"(c[j + 1][0]), "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), \
      "+f"(c[j + 1][3])
#define LOCKSTEP_RESULT_8(c, j) \
  LOCKSTEP_RESULT_2(c, j), LOCKSTEP_RESULT_2(c, j + 2), LOCKSTEP_RESULT_2(c, j + 4), LOCKSTEP_RESULT_2(c, j + 6)
#define LOCKSTEP_NAMES_32                                                                                              \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define LOCKSTEP_NAMES_64                                                                                     \
  LOCKSTEP_NAMES_32                                                                                           \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
  "%58,%59,%60,%61,%62,%63"
#define LOCKSTEP_PRODUCTS(type, name)                                                                               \
  template <bool kColumns>                                                                                          \
  inline void multiply_started(type, float(&c)[8][4], const SharedMatrix& a, const SharedMatrix& b, bool add) {     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name  \
                 " {" LOCKSTEP_NAMES_32 "}, %32, %33, p, 1, 1, 0, %35;}"                                            \
                 : LOCKSTEP_RESULT_8(c, 0)                                                                          \
                 : "l"(a.descriptor()), "l"(b.descriptor()), "r"(int(add)), "n"(int(kColumns)));                    \
  }                                                                                                                 \
  template <bool kColumns>                                                                                          \
  inline void multiply_started(type, float(&c)[8][4], const uint32_t(&a)[4], const SharedMatrix& b, bool add) {     \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name  \
                 " {" LOCKSTEP_NAMES_32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;}"                                 \
                 : LOCKSTEP_RESULT_8(c, 0)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()), "r"(int(add)),                  \
                   "n"(int(kColumns)));                                                                             \
  }                                                                                                                 \
  template <bool kColumns>                                                                                          \
  inline void multiply_started(type, float(&c)[16][4], const SharedMatrix& a, const SharedMatrix& b, bool add) {    \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name \
                 " {" LOCKSTEP_NAMES_64 "}, %64, %65, p, 1, 1, 0, %67;}"                                            \
                 : LOCKSTEP_RESULT_8(c, 0), LOCKSTEP_RESULT_8(c, 8)                                                 \
                 : "l"(a.descriptor()), "l"(b.descriptor()), "r"(int(add)), "n"(int(kColumns)));                    \
  }                                                                                                                 \
  template <bool kColumns>                                                                                          \
  inline void multiply_started(type, float(&c)[16][4], const uint32_t(&a)[4], const SharedMatrix& b, bool add) {    \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name \
                 " {" LOCKSTEP_NAMES_64 "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;}"                                 \
                 : LOCKSTEP_RESULT_8(c, 0), LOCKSTEP_RESULT_8(c, 8)                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()), "r"(int(add)),                  \
                   "n"(int(kColumns)));                                                                             \
  }
LOCKSTEP_PRODUCTS(bf16, "bf16")
LOCKSTEP_PRODUCTS(f16, "f16")
#undef LOCKSTEP_PRODUCTS
#undef LOCKSTEP_NAMES_64
#undef LOCKSTEP_NAMES_32
#undef LOCKSTEP_RESULT_8
#undef LOCKSTEP_RESULT_2

}  // namespace lockstep
