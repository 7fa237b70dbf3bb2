// The parts of a Runtime: objects of any type, one of each in a runtime, made on first use. A folder keeps its state as
// a part, so that lower folders need not know its type:
//
//   World& World::current() { return detail::runtime_part<World>(); }
//
// Parts may make other parts while they are made. They are destroyed in reverse order of construction, so a part that
// uses another one when it is destroyed has to get it in its constructor. Safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "lockstep/runtime.h"

namespace lockstep::detail {

// The slot of the parts of type T in every runtime; 0 until a runtime makes the first one.
template <class T>
inline constinit std::atomic<uint32_t> part_slot = 0;

class RuntimeParts {
 public:
  static constexpr uint32_t kCapacity = 64;

  explicit RuntimeParts(Runtime& runtime);
  ~RuntimeParts() { destroy_all(); }
  RuntimeParts(const RuntimeParts&) = delete;
  RuntimeParts& operator=(const RuntimeParts&) = delete;

  static RuntimeParts& of(Runtime& runtime) { return *runtime.parts_; }

  // The part of type T. Makes it on the first call, with Runtime& if a constructor takes that; other threads that get it
  // wait meanwhile. Later calls are two loads. If the constructor throws, so does get(), and the next call tries again.
  template <class T>
  T& get() {
    void* const made = parts_[part_slot<T>.load(std::memory_order_relaxed)].load(std::memory_order_acquire);
    if (made) [[likely]]
      return *static_cast<T*>(made);
    const auto construct = [](Runtime& runtime) -> void* {
      if constexpr (std::is_constructible_v<T, Runtime&>)
        return new T(runtime);
      else
        return new T();
    };
    return *static_cast<T*>(make(part_slot<T>, construct, [](void* part) { delete static_cast<T*>(part); }));
  }

  // Destroys all parts, while their runtime is the current one. REQUIRES: no other thread uses the runtime.
  void destroy_all();

 private:
  using Construct = void* (*)(Runtime&);
  using Destroy = void (*)(void*);
  struct Made {
    uint32_t slot;
    Destroy destroy;
  };
  void* make(std::atomic<uint32_t>& slot, Construct construct, Destroy destroy);

  Runtime& runtime_;
  std::array<std::atomic<void*>, kCapacity> parts_ = {};  // parts_[0] stays null

  std::mutex mutex_;                               // not held while a part is made
  std::condition_variable changed_;                // an element of makers_ was reset
  std::array<std::thread::id, kCapacity> makers_;  // by slot: the thread that is making the part
  std::vector<Made> made_;                         // in order of construction
};

// The part of type T of the current runtime.
template <class T>
T& runtime_part() {
  return RuntimeParts::of(Runtime::current()).get<T>();
}

}  // namespace lockstep::detail
