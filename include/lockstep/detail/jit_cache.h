// JitCache: the compiled versions of one jit function. For the templates of jit.h; not part of the public API.
//
//   jit call --> CallVisitor --> CallKey         the bytes that identify a compiled version
//                            --> ArrayPointers   the arrays of the call, in order
//   CallKey  --> JitCache::find --> Entry        the Executable, and the result's tree without its arrays
//
// JitCache is safe to use from several threads. The other types belong to one call.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/detail/flat_call.h"

namespace lockstep {
struct JitOptions;
}  // namespace lockstep

namespace lockstep::detail {

// The types, shardings and static values of a call's arguments, as bytes. Two calls can share a compiled
// version exactly when their keys, and the C++ types of their arguments, are equal. Short keys live on the
// stack.
class CallKey {
 public:
  void add(const void* bytes, size_t n) {
    if (used_ + n > capacity()) grow(n);
    std::memcpy(bytes_ + used_, bytes, n);
    used_ += n;
  }
  std::string_view view() const { return {bytes_, used_}; }
  CallKey() = default;
  CallKey(const CallKey&) = delete;
  CallKey& operator=(const CallKey&) = delete;

 private:
  size_t capacity() const { return large_.empty() ? sizeof(small_) : large_.size(); }
  void grow(size_t n) {
    std::vector<char> larger(2 * (used_ + n));
    std::memcpy(larger.data(), bytes_, used_);
    large_ = std::move(larger);
    bytes_ = large_.data();
  }
  char small_[2048];
  std::vector<char> large_;
  char* bytes_ = small_;
  size_t used_ = 0;
};

// Pointers to the arrays of a call. Short lists live on the stack.
class ArrayPointers {
 public:
  void push(const Array* a) {
    if (used_ < small_.size())
      small_[used_] = a;
    else {
      if (large_.empty()) large_.assign(small_.begin(), small_.end());
      large_.push_back(a);
    }
    ++used_;
  }
  const Array* const* data() const { return large_.empty() ? small_.data() : large_.data(); }
  size_t size() const { return used_; }

 private:
  std::array<const Array*, 128> small_;
  std::vector<const Array*> large_;
  size_t used_ = 0;
};

// Visits the trees of a call's arguments and fills in its key and its list of arrays.
struct CallVisitor : VisitorBase {
  CallKey& call_key;
  ArrayPointers& arrays;
  CallVisitor(CallKey& k, ArrayPointers& a) : call_key(k), arrays(a) {}
  void array(const Array& a) {
    const void* addresses[] = {type_address(a), sharding_address(a)};
    call_key.add(addresses, sizeof addresses);
    arrays.push(&a);
  }
  template <class T>
  void static_value(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      size(value.size());
      call_key.add(value.data(), value.size());
    } else {
      call_key.add(&value, sizeof value);
    }
  }
  template <class T>
  void key(const T& value) {
    static_value(value);
  }
  void size(size_t n) { call_key.add(&n, sizeof n); }
};

// Runs a compiled function and hands out its results, in order. Few results live on the stack.
class JitResults {
 public:
  JitResults(Executable& executable, const Array* const* args);
  Array take() { return std::move(*next_++); }

 private:
  std::array<Array, 64> small_;
  std::vector<Array> large_;
  Array* next_;
};

// Not a template: the same code serves every jit function.
class JitCache {
 public:
  // One compiled version.
  struct Entry {
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      if (prototype) destroy(prototype);
    }

    std::string key;
    const void* tag = nullptr;  // identifies the C++ types of the arguments
    uint64_t runtime = 0;       // the number of the runtime that it was compiled for
    std::shared_ptr<Executable> executable;
    std::vector<const void*> arrays;  // the addresses of the arguments' types and shardings
    std::vector<std::pair<std::string, std::string>> structure;  // Call::structure
    void* prototype = nullptr;  // the result's tree without its arrays; owned
    void (*destroy)(void*) = nullptr;
  };
  // The call being compiled.
  struct Call {
    FlatTrees in, out;  // the arguments and the elements of the result; its arrays are empty
    // The containers, arrays and static values of the arguments, by the path in the call: "2, rate".
    std::vector<std::pair<std::string, std::string>> structure;

    void add_structure(size_t argument, const TreeStructure& tree);
  };
  // Refers to a callable that traces the function and fills in the entry's prototype and the Call. A
  // std::function would be instantiated again for every jit function.
  class Tracer {
   public:
    template <class T>
    Tracer(const T& trace)  // NOLINT: implicit, so that a lambda can be passed
        : trace_(&trace), call_([](const void* t, Entry& e, Call& c) { return (*static_cast<const T*>(t))(e, c); }) {}
    Traced operator()(Entry& entry, Call& call) const { return call_(trace_, entry, call); }

   private:
    const void* trace_;
    Traced (*call_)(const void*, Entry&, Call&);
  };

  // `at` is the line that called jit(); errors about the options' shardings name it.
  JitCache(const JitOptions& options, SourceLine at);
  ~JitCache();

  // Returns the entry for this key and tag, and compiles it first if there is none. Calls are serialized.
  // `arrays` are the arrays of all arguments, in order. Throws Error when the options do not fit the call.
  std::shared_ptr<Entry> find(std::string_view key, const void* tag, const Array* const* arrays, const Tracer& trace);
  // The number of compiled versions.
  size_t size() const;

 private:
  std::shared_ptr<Executable> compile(const Traced& traced, const Array* const* arrays, const Call& call) const;
  // Warns once when a static number of the arguments has had many values, each of which compiled a version.
  void warn_of_static_numbers(const Entry& made);

  const std::unique_ptr<const JitOptions> options_;
  const SourceLine at_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
  bool warned_ = false;
};

// Throws Error unless the shardings of a jit at line `at` and the constraints in its traced function all use
// one mesh. The message names two that differ, and their lines.
void check_one_mesh(const Traced&, const JitOptions& options, const SourceLine& at);

}  // namespace lockstep::detail
