#include "array/pending_version.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"

namespace lockstep::detail {
namespace {

// Each level of a recursion needs some kilobytes of the stack.
constexpr int64_t kMostNestedCalls = 100;

// A key that owns its bytes.
struct OwnedKey {
  explicit OwnedKey(const VersionKey& of) : bytes(of.bytes), key(of) { key.bytes = bytes; }
  OwnedKey(const OwnedKey&) = delete;
  OwnedKey& operator=(const OwnedKey&) = delete;

  const std::string bytes;
  VersionKey key;
};

thread_local std::vector<std::unique_ptr<OwnedKey>> nested_calls;

}  // namespace

size_t VersionKey::hash() const {
  const size_t addresses = std::hash<const void*>()(function) ^ (std::hash<const void*>()(tag) << 1);
  return std::hash<std::string_view>()(bytes) ^ (addresses + runtime) * size_t{0x9e3779b97f4a7c15};
}

namespace {

// A thread that compiles versions; at most one at a time waits for another thread's.
struct CompilingThread {
  uint64_t awaits = 0;  // the id of a compilation, which may have ended; 0: none
};

thread_local CompilingThread compiling_thread;

}  // namespace

struct PendingVersion::Compilation {
  Compilation(const VersionKey& version, CompilingThread* by) : key(version), thread(by) {}
  const OwnedKey key;
  CompilingThread* const thread;  // exists as long as the compilation
  uint64_t id = 0;
};

// Those of all threads. The members are guarded by the mutex.
class PendingVersion::Compilations {
 public:
  // Never destroyed: threads may compile until the process ends.
  static Compilations& all() {
    static auto* const compilations = new Compilations;
    return *compilations;
  }

  std::mutex mutex;

  void add(Compilation& one) {
    one.id = ++last_id_;
    list_.push_back(&one);
  }
  void remove(const Compilation& one) {
    std::erase(list_, &one);
    changed_.notify_all();
  }

  // A compilation of the version by another thread, for which this thread can wait; null if there is none. Throws Error if
  // this thread compiles the version.
  const Compilation* find(const VersionKey& key, const SourceLine& at) const {
    const Compilation* found = nullptr;
    for (const Compilation* each : list_) {
      if (each->key.key != key) continue;
      if (each->thread == &compiling_thread)
        throw_error(
            "jit: the function compiled at {} asks about itself, with arguments of the same types, while it is traced "
            "for "
            "them; ask after the call, or use compiled(), which counts the finished versions",
            to_string(at));
      if (!waits_for_this_thread(*each)) found = each;
    }
    return found;
  }

  void wait_for(const Compilation& one, std::unique_lock<std::mutex>& lock) {
    const uint64_t id = compiling_thread.awaits = one.id;
    changed_.wait(lock, [&] { return !of_id(id); });
    compiling_thread.awaits = 0;
  }

 private:
  const Compilation* of_id(uint64_t id) const {
    const auto at = std::find_if(list_.begin(), list_.end(), [&](const Compilation* each) { return each->id == id; });
    return at == list_.end() ? nullptr : *at;
  }

  // Directly or through further threads.
  bool waits_for_this_thread(const Compilation& first) const {
    for (const Compilation* each = &first; each; each = of_id(each->thread->awaits))
      if (each->thread == &compiling_thread) return true;
    return false;
  }

  std::condition_variable changed_;
  std::vector<const Compilation*> list_;
  uint64_t last_id_ = 0;
};

std::unique_ptr<PendingVersion> PendingVersion::begin(const VersionKey& key, const SourceLine& at,
                                                      FunctionRef<bool()> exists) {
  auto own = std::make_unique<Compilation>(key, &compiling_thread);
  Compilations& all = Compilations::all();
  std::unique_lock lock(all.mutex);
  while (!exists()) {
    if (const Compilation* other = all.find(key, at)) {
      all.wait_for(*other, lock);
      continue;
    }
    std::unique_ptr<PendingVersion> pending(new PendingVersion(std::move(own)));
    all.add(*pending->compilation_);
    return pending;
  }
  return nullptr;
}

PendingVersion::PendingVersion(std::unique_ptr<Compilation> compilation) : compilation_(std::move(compilation)) {}

PendingVersion::~PendingVersion() {
  Compilations& all = Compilations::all();
  const std::lock_guard lock(all.mutex);
  all.remove(*compilation_);
}

void begin_nested_call(const VersionKey& key, const SourceLine& at) {
  const auto same = [&](const std::unique_ptr<OwnedKey>& each) { return each->key == key; };
  if (std::count_if(nested_calls.begin(), nested_calls.end(), same) == kMostNestedCalls)
    throw_error(
        "jit: the function compiled at {} calls itself with arguments of the same types and static values, {} calls "
        "deep; "
        "end the recursion by a static argument (int n), or use while_loop() or scan()",
        to_string(at), kMostNestedCalls);
  nested_calls.push_back(std::make_unique<OwnedKey>(key));
}

void end_nested_call() { nested_calls.pop_back(); }

}  // namespace lockstep::detail
