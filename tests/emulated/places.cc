#include "emulated/places.h"

#include <cstdint>
#include <cstring>

// As _setjmp and _longjmp, of which blocks of a thousand threads need so many that they were most of the time.
#if defined(__aarch64__)
asm(R"(
  .text
  .global emulated_go_on
  .type emulated_go_on, %function
emulated_go_on:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size emulated_go_on, . - emulated_go_on
)");
#elif defined(__x86_64__)
asm(R"(
  .text
  .global emulated_go_on
  .type emulated_go_on, @function
emulated_go_on:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulated_go_on, . - emulated_go_on
)");
#else
#error "emulated_go_on is not written for this architecture"
#endif

namespace emulated {

Place beginning(char* stack, size_t bytes, void (*begin)()) {
  // Words that emulated_go_on takes from the stack, and which of them says where to go on.
#if defined(__aarch64__)
  constexpr size_t kWords = 20, kGoOn = 11;
#else
  constexpr size_t kWords = 8, kGoOn = 6;  // one above it, as if it had been called
#endif
  char* const top = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15});
  uintptr_t words[kWords] = {};
  words[kGoOn] = reinterpret_cast<uintptr_t>(begin);
  char* const place = top - sizeof words;
  std::memcpy(place, words, sizeof words);
  return place;
}

}  // namespace emulated
