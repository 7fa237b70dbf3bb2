// JitCache: the compiled versions of one jit function. For the templates of jit.h; not part of the public API.
//
//   JitCall                     visits the arguments: their arrays, and the bytes that identify a compiled version
//   JitCall --> JitCache::find  its version: an Executable, and the result's tree without its arrays
//
// JitCache is safe to use from several threads. The other types belong to one call.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/detail/flat_call.h"

namespace lockstep {
struct JitOptions;
}  // namespace lockstep

namespace lockstep::detail {

struct JitVersion;
struct JitVersions;

// The arguments of a call, to be visited, and then the version that it uses. The types, shardings and static values of the
// arguments are its key, as bytes: two calls can share a version exactly when their keys, and the C++ types of their
// arguments, are equal. Short keys and short lists of arrays live on the stack.
class JitCall final : public TreeVisitor {
 public:
  JitCall();
  JitCall(const JitCall&) = delete;
  JitCall& operator=(const JitCall&) = delete;
  ~JitCall() override;

  void array(const Array&) override;
  void size(size_t) override;
  void boolean(bool value, bool is_key) override;
  void integer(int64_t value, bool is_key) override;
  void real(double value, bool is_key) override;
  void text(const std::string& value, bool is_key) override;

  std::string_view key() const { return {bytes_, used_bytes_}; }
  const Array* const* arrays() const { return many_arrays_.empty() ? few_arrays_.data() : many_arrays_.data(); }

  // After JitCache::find().
  const void* prototype() const;
  const Executable& executable() const;
  // Runs the compiled function and assigns the results to the arrays of `result`, a copy of the prototype.
  void run(TreeRef result);

 private:
  friend class JitCache;
  void add(const void* bytes, size_t n);

  std::shared_ptr<JitVersion> version_;
  std::vector<char> long_key_;
  std::vector<const Array*> many_arrays_;
  char* bytes_ = short_key_;
  size_t used_bytes_ = 0;
  size_t used_arrays_ = 0;
  char short_key_[2048];
  std::array<const Array*, 128> few_arrays_;
};

// A version that is being compiled.
class JitCompilation {
 public:
  // Takes over the slot of the result's tree; destroy(slot) deletes it.
  void keep(void* prototype, void (*destroy)(void*)) noexcept;
  // Traces f, on trees like these arguments.
  void trace(TreeRefs args, const FlatFunction& f);

 private:
  friend class JitCache;
  friend struct JitVersions;
  JitCompilation();
  ~JitCompilation();
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

// Not a template: the same code serves every jit function. A handle; copies share the versions.
class JitCache {
 public:
  // `at` is the line that called jit(); errors about the options' shardings name it.
  JitCache(const JitOptions& options, SourceLine at);
  JitCache(const JitCache&);
  JitCache& operator=(const JitCache&);
  ~JitCache();

  // Refers to a callable that traces the function.
  class Tracer {
   public:
    template <class T>
    Tracer(const T& trace)  // NOLINT: implicit, so that a lambda can be passed
        : trace_(&trace), call_([](const void* t, JitCompilation& c) { (*static_cast<const T*>(t))(c); }) {}
    void operator()(JitCompilation& c) const { call_(trace_, c); }

   private:
    const void* trace_;
    void (*call_)(const void*, JitCompilation&);
  };

  // Finds the version of a call, and compiles it first if there is none. `tag` identifies the C++ types of the arguments.
  // Waits while another thread compiles this version, and for no other. Throws Error when the options do not fit the call,
  // and when this thread is tracing the function for this version.
  void find(JitCall& call, const void* tag, const Tracer& trace) const;
  // The number of compiled versions that it keeps.
  size_t size() const;

  // While it exists, this thread traces the function with the arguments of `call` as a part of another function. Throws
  // Error if such calls are nested so deeply that they will not end.
  class Nested {
   public:
    Nested(const JitCache& cache, const JitCall& call, const void* tag);
    ~Nested();
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
  };

 private:
  std::shared_ptr<JitVersions> versions_;
};

// Throws Error unless the shardings of a jit at line `at` and the constraints in its traced function all use
// one mesh. The message names two that differ, and their lines.
void check_one_mesh(const Traced&, const JitOptions& options, const SourceLine& at);

}  // namespace lockstep::detail
