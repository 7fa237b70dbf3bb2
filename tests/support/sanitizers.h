// The sanitizers of the build (g++ and clang), for tests that a sanitizer's own memory would
// break.
#pragma once

namespace lockstep {

#if defined(__has_feature)
#define LOCKSTEP_HAS_FEATURE(name) __has_feature(name)
#else
#define LOCKSTEP_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || LOCKSTEP_HAS_FEATURE(address_sanitizer)
#define LOCKSTEP_ADDRESS_SANITIZER 1
#else
#define LOCKSTEP_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || LOCKSTEP_HAS_FEATURE(thread_sanitizer)
#define LOCKSTEP_THREAD_SANITIZER 1
#else
#define LOCKSTEP_THREAD_SANITIZER 0
#endif

constexpr bool kAddressSanitizer = LOCKSTEP_ADDRESS_SANITIZER != 0;
constexpr bool kThreadSanitizer = LOCKSTEP_THREAD_SANITIZER != 0;
constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

}  // namespace lockstep
