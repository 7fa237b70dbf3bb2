// LOCKSTEP_VECTORIZE before a loop: its iterations are independent of each other, so the compiler may vectorize it.
#pragma once

#if defined(__clang__)
#define LOCKSTEP_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define LOCKSTEP_VECTORIZE _Pragma("GCC ivdep")
#endif
