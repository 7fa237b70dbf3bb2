// What kernels ask of the GPU in its own language: all of it is here, each as a function.
#include "ops/cuda/machine_text.h"

namespace lockstep {

const char* const kMachineText = R"(#pragma once
#include <cstdint>
namespace lockstep {
struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

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
// Two floats as the halves of a word.
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
inline uint32_t nearest_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// Within two of the last bits of a float.
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

// Within 2^-11 of itself.
inline float approx_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// On its way to the block's memory. What is not inside is not read, and zero.
template <int kBytes>
inline void copy_async(void* to, const void* from, bool inside) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(to));
  const int size = inside ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
}
// A group of all that this thread has sent for since the last.
inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all of its groups but the last kLeft have arrived.
template <int kLeft>
inline void wait_for() { asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory"); }

// Matrices of eight rows of sixteen bytes, four or two at a time, from the rows whose addresses the lanes give: a
// thread has word t of row g, or, turned around, the halves 2t and 2t + 1 of column g.
template <bool kTurned, int kCount>
inline void load_matrices(uint32_t* to, const void* row) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (kCount == 4 && kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else if constexpr (kCount == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else if constexpr (kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
}

// c += x y, of 16 x 8 (floats, of which the upper 19 bits count) or 16 x 16 by 8 x 8 or 16 x 8 matrices of the warp.
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

// Words that blocks leave for each other.
inline void leave(void* to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
inline void leave(uint32_t* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
inline void leave(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
inline uint32_t look_at(const uint32_t* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
inline uint64_t look_at(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
inline void look_at(const void* from, uint32_t (&words)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from)
               : "memory");
}
// One more, after all that was written before.
inline void count_one(uint64_t* word) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(word) : "memory");
}
// Waits until `count` are counted, and orders later reads after that. Each acquiring load invalidates the L1 cache, so
// only the last one acquires.
inline void wait_until(const uint64_t* word, uint64_t count) {
#if __CUDACC_VER_MAJOR__ >= 13 && __CUDA_ARCH__ >= 900
  while (look_at(word) < count) {
  }
  asm volatile("fence.acquire.gpu;" ::: "memory");
#else
  uint64_t now;
  do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
  while (now < count);
#endif
}

// A kernel is started before the one before it is done (CudaFunction::launch), and that one says from when on: then
// nothing is lost between the two.
inline void after_the_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
inline void before_the_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
}  // namespace lockstep
)";

}  // namespace lockstep
