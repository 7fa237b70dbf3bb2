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
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/check.h"
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

  // The part of type T. The first call makes it, with Runtime& if a constructor takes that; other threads that get it
  // wait meanwhile. Later calls are two loads. If the constructor throws, so does get(), and the next call tries again.
  template <class T>
  T& get() {
    void* const made = parts_[part_slot<T>.load(std::memory_order_relaxed)].load(std::memory_order_acquire);
    if (made) [[likely]]
      return *static_cast<T*>(made);
    const auto construct = [this]() -> void* {
      if constexpr (std::is_constructible_v<T, Runtime&>)
        return new T(runtime_);
      else
        return new T();
    };
    return *static_cast<T*>(make(part_slot<T>, construct, delete_part<T>));
  }

  // Adds a part that was made otherwise, such as a fake in a test. REQUIRES: the runtime has no part of type T.
  template <class T>
  T& add(std::unique_ptr<T> part) {
    T* const added = part.get();
    const void* const found = make(
        part_slot<T>, [&] { return part.release(); }, delete_part<T>);
    LOCKSTEP_CHECK(found == added, "the runtime already has this part");
    return *added;
  }

  // Destroys all parts, while their runtime is the current one. REQUIRES: no other thread uses the runtime.
  void destroy_all();

 private:
  using Destroy = void (*)(void*);
  struct Made {
    uint32_t slot;
    Destroy destroy;
  };
  template <class T>
  static void delete_part(void* part) {
    delete static_cast<T*>(part);
  }
  void* make(std::atomic<uint32_t>& slot, const std::function<void*()>& construct, Destroy destroy);

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
