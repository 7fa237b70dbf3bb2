#include "emulated/fiber.h"

#include <cstdint>
#include <cstring>

// Replaces _setjmp and _longjmp, which took most of the time for blocks of a thousand threads.
#if defined(__aarch64__)
asm(R"(
  .text
  .global emulated_switch_fiber
  .type emulated_switch_fiber, %function
emulated_switch_fiber:
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
  .size emulated_switch_fiber, . - emulated_switch_fiber
)");
#elif defined(__x86_64__)
asm(R"(
  .text
  .global emulated_switch_fiber
  .type emulated_switch_fiber, @function
emulated_switch_fiber:
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
  .size emulated_switch_fiber, . - emulated_switch_fiber
)");
#else
#error "emulated_switch_fiber is not written for this architecture"
#endif

namespace emulated {

FiberContext make_fiber(char* stack, size_t bytes, void (*begin)()) {
  // The words that emulated_switch_fiber pops from the stack, and which of them is the return address.
#if defined(__aarch64__)
  constexpr size_t kWords = 20, kReturn = 11;
#else
  constexpr size_t kWords = 8, kReturn = 6;  // one above it, as if after a call
#endif
  char* const top = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15});
  uintptr_t words[kWords] = {};
  words[kReturn] = reinterpret_cast<uintptr_t>(begin);
  char* const context = top - sizeof words;
  std::memcpy(context, words, sizeof words);
  return context;
}

}  // namespace emulated
