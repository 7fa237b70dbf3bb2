#include "lockstep/runtime.h"

#include "base/check.h"
#include "base/runtime_parts.h"
#include "base/runtime_settings.h"

namespace lockstep {
namespace {

constinit thread_local Runtime* runtime_of_thread = nullptr;  // null: the process's runtime

}  // namespace

namespace detail {

RuntimeParts::RuntimeParts(Runtime& runtime) : runtime_(runtime) { made_.reserve(kCapacity); }

void* RuntimeParts::make(std::atomic<uint32_t>& slot_of_type, const std::function<void*()>& construct,
                         Destroy destroy) {
  static constinit std::mutex slots_mutex;
  static constinit uint32_t slots_in_use = 1;
  {
    const std::lock_guard lock(slots_mutex);
    if (slot_of_type == 0) {
      LOCKSTEP_CHECK(slots_in_use < kCapacity, "there are more than {} types of parts", kCapacity - 1);
      slot_of_type = slots_in_use++;
    }
  }
  const uint32_t slot = slot_of_type;
  std::thread::id& maker = makers_[slot];
  std::unique_lock lock(mutex_);
  LOCKSTEP_CHECK(maker != std::this_thread::get_id(), "the constructor of a part gets the part itself");
  changed_.wait(lock, [&] { return maker == std::thread::id(); });
  if (void* const part = parts_[slot]) return part;
  maker = std::this_thread::get_id();
  lock.unlock();
  void* part = nullptr;
  try {
    const RuntimeScope scope(runtime_);
    part = construct();
  } catch (...) {
    lock.lock();
    maker = {};
    changed_.notify_all();
    throw;
  }
  lock.lock();
  made_.push_back({slot, destroy});
  parts_[slot].store(part, std::memory_order_release);
  maker = {};
  changed_.notify_all();
  return part;
}

void RuntimeParts::destroy_all() {
  const RuntimeScope scope(runtime_);
  while (!made_.empty()) {
    const Made last = made_.back();
    made_.pop_back();
    last.destroy(parts_[last.slot]);
    parts_[last.slot] = nullptr;
  }
}

}  // namespace detail

Runtime::Runtime(const RuntimeOptions& options) : parts_(std::make_unique<detail::RuntimeParts>(*this)) {
  const RuntimeScope scope(*this);
  detail::set_runtime_options("runtime", options);  // the first part, so the last that is destroyed
}

Runtime::~Runtime() { parts_->destroy_all(); }  // while parts_ is set: destructors of parts may get others

Runtime& Runtime::current() {
  if (runtime_of_thread) return *runtime_of_thread;
  static auto* const of_process = new Runtime;  // other threads may use it at exit
  return *of_process;
}

RuntimeScope::RuntimeScope(Runtime& runtime) : outer_(runtime_of_thread) { runtime_of_thread = &runtime; }

RuntimeScope::~RuntimeScope() { runtime_of_thread = outer_; }

}  // namespace lockstep
