// Fibers: several computations, each with its own stack, that take turns on one thread of the operating system. A fiber
// belongs to one thread.
#pragma once

#include <cstddef>

namespace emulated {

// The stack pointer of a suspended fiber. Its callee-saved registers and its return address are on its stack.
using FiberContext = void*;

// Suspends the current fiber, stores its context in *from, and resumes `to`. Returns when `*from` is resumed.
extern "C" void emulated_switch_fiber(FiberContext* from, FiberContext to);

// Makes a fiber that calls `begin` on the given stack. `begin` must not return.
FiberContext make_fiber(char* stack, size_t bytes, void (*begin)());

}  // namespace emulated
