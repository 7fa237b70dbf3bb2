// GPU instructions as functions: conversions, asynchronous copies, tensor cores, and communication between thread
// blocks. Only this header and warpgroup.cuh have PTX. The emulated GPU replaces them (tests/emulated).
//
// # Communication between thread blocks
//
// The thread blocks of a persistent kernel run at the same time and communicate through global memory. There are two
// patterns, and no others. Both rely on the PTX memory model; accesses are "strong" at GPU scope.
//
// 1. Data and flag in one word (partial_sums.cuh). The writer stores a word with store_relaxed(), and the reader
//    polls it with load_relaxed(). The word itself says whether the data is there, so no order between different words is
//    needed, and no fence:
//    - Gemm: the complement of an f32, which is never zero. Zero means "not there yet". The reader stores zero again
//      when it has consumed the word. The memory is zeroed before the first launch.
//    - SharedSums: 64 bits, an f32 below the number of the execution. Another number means "not there yet". It is never
//      reset: the numbers of successive executions differ, because they come from the counter of the grid barrier.
//    A word is reused only after a grid barrier or at the next kernel. Both order the reader's last access to it before
//    the writer's next store.
//
// 2. Data, then a counter (grid_barrier.cuh). All threads of a block write any data with plain stores.
//    __syncthreads() orders these before thread 0's add_release(), a release. A reader's thread 0 executes
//    wait_acquire(), an acquire: once it observes a counter value that includes the increment, the release synchronizes
//    with it. __syncthreads() extends the order to the other threads of the reader's block. Therefore plain loads
//    after the barrier see all plain stores that any block executed before it. Releases and acquires are cumulative,
//    so this includes what the writer had itself observed.
//
//    The counter is never reset: it counts the arrivals of all blocks at all barriers, from launch to launch. A
//    multiple of the number of blocks means that all have arrived at a barrier. A block derives the count to wait for
//    from the value at its start, rounded down to such a multiple. This is valid until the block arrives itself:
//    others may already have arrived at the first barrier, but without this block they are fewer than the number of
//    blocks.
#pragma once
#include <cstdint>

#include "ops/loops/float8_bits.h"

namespace lockstep {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};
struct e5m2 {
  uint8_t bits;
};

inline float from_half(uint16_t bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
inline uint16_t to_half(float x) {
  uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
inline uint16_t to_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40u);
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}
// Rounds two f32 to 16-bit floats, as the halves of a word.
inline uint32_t rounded_pair(bf16, uint32_t low, uint32_t high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return out;
}
inline uint32_t rounded_pair(f16, uint32_t low, uint32_t high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return out;
}
// Rounds two f32 to 8-bit floats, as the bytes of a word. Larger numbers become the largest finite one.
inline uint16_t rounded_pair(e4m3, float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
#else
  return uint16_t(math::to_e4m3(low) | math::to_e4m3(high) << 8);
#endif
}
inline uint16_t rounded_pair(e5m2, float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t out;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
#else
  return uint16_t(math::to_e5m2(low) | math::to_e5m2(high) << 8);
#endif
}
// Rounds to the nearest TF32.
inline uint32_t nearest_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// Within 2 ulp.
inline float full_div(float a, float b) {
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
inline float approx_sqrt(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// With a relative error of at most 2^-11.
inline float approx_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 2^x within 2 ulp; subnormal results become zero.
inline float approx_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Starts to copy kBytes (4 or 16) from global to shared memory. If not `inside`, reads nothing and writes zeros.
template <int kBytes>
inline void copy_async(void* to, const void* from, bool inside) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(to));
  const int size = inside ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
}
// Makes a group of the copies that this thread has started since the last commit().
inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups of this thread but the last kLeft are complete. Other threads see the copies only after a
// __syncthreads().
template <int kLeft>
inline void wait_for() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Loads kCount (2 or 4) matrices of eight rows of 16 bytes; the lanes pass the addresses of the rows. Lane 4g + t gets
// word t of row g of each matrix; transposed, the 16-bit elements 2t and 2t + 1 of column g.
template <bool kTranspose, int kCount>
inline void load_matrices(uint32_t* to, const void* row) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (kCount == 4 && kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else if constexpr (kCount == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else if constexpr (kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(at)
                 : "memory");
}

// c += x y on the tensor cores, one instruction of a warp: 16 x 8 by 8 x 8 for f32 (TF32: the upper 19 bits count),
// 16 x 16 by 16 x 8 for 16-bit floats.
inline void multiply_one(float, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
inline void multiply_one(bf16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
inline void multiply_one(f16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}

// Relaxed stores and loads at GPU scope. The accesses of four words are atomic word by word.
inline void store_relaxed(void* to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
inline void store_relaxed(uint32_t* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
inline void store_relaxed(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
inline uint32_t load_relaxed(const uint32_t* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
inline uint64_t load_relaxed(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
inline void load_relaxed(const void* from, uint32_t (&words)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from)
               : "memory");
}
// Replaces a word by `least` if that is larger. The order of such replacements does not matter.
inline void raise_to(uint32_t* word, uint32_t least) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(word), "r"(least) : "memory");
}
// Adds one to a counter, with release semantics at GPU scope.
inline void add_release(uint64_t* word) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(word) : "memory");
}
// Waits until a counter has reached `count`, with acquire semantics at GPU scope. An acquiring load invalidates the L1
// cache, so only the last one acquires.
inline void wait_acquire(const uint64_t* word, uint64_t count) {
#if __CUDACC_VER_MAJOR__ >= 13 && __CUDA_ARCH__ >= 900
  while (load_relaxed(word) < count) {
  }
  asm volatile("fence.acquire.gpu;" ::: "memory");
#else
  uint64_t now;
  do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
  while (now < count);
#endif
}

// Programmatic dependent launch (CudaFunction::launch): a kernel may start before the previous one has ended.
//
// Waits until the previous kernel has ended and its writes are visible.
inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel to start once all thread blocks have called this or ended.
inline void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The condition of conditional work in a captured graph (CudaStream::GraphCondition). The driver has the function.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned int value);
inline void set_condition(uint64_t condition, bool value) { cudaGraphSetConditional(condition, value ? 1u : 0u); }

}  // namespace lockstep
