// Places where a computation goes on: several of them, each with a stack of its own, take turns on one thread of the
// operating system.
#pragma once

#include <cstddef>

namespace emulated {

// A stack pointer: what a function has to keep for its caller lies on the stack, beside where it goes on.
using Place = void*;

// Goes on there, and notes where this is: it returns when somebody goes on here.
extern "C" void emulated_go_on(Place* here, Place there);

// Where `begin` is about to be called, on that stack. It must not return.
Place beginning(char* stack, size_t bytes, void (*begin)());

}  // namespace emulated
