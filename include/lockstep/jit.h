// jit: a function compiled once for each set of argument types, then called in microseconds.
//
//   auto step = jit([](Params p, Batch b) { ... }, {.donate = {0}});
//   p = step(p, batch);
//
// Arrays in the arguments are traced; numbers, enums and strings in them are static: another value compiles again.
// Arrays that the function captures become constants of the compiled function. A jit object may be copied (copies share
// what was compiled) and called from several threads; calls follow one another.
#pragma once

#include <array>
#include <cstring>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "lockstep/detail/signature.h"
#include "lockstep/trace.h"
#include "lockstep/tree.h"

namespace lockstep {

struct JitOptions {
  // Arguments, by position, whose memory the results may take. Their arrays cannot be used after the call.
  std::vector<size_t> donate = {};
  // How the arguments lie on devices, one per argument, for all of its arrays; missing or undefined ones: as they come.
  std::vector<NamedSharding> in_shardings = {};
  // How the result does: one for all of it, or one per element of a tuple or pair; undefined ones: as it follows from
  // the arguments.
  std::vector<NamedSharding> out_shardings = {};
};

namespace detail {

// Bytes that two calls have in common exactly when the same compiled function serves both. Short ones live on the
// stack.
class Signature {
 public:
  void add(const void* bytes, size_t n) {
    if (used_ + n > capacity()) grow(n);
    std::memcpy(bytes_ + used_, bytes, n);
    used_ += n;
  }
  std::string_view view() const { return {bytes_, used_}; }
  Signature() = default;
  Signature(const Signature&) = delete;
  Signature& operator=(const Signature&) = delete;

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

// Pointers to the arrays of a call.
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

struct CallVisitor : VisitorBase {
  Signature& signature;
  ArrayPointers& arrays;
  CallVisitor(Signature& s, ArrayPointers& a) : signature(s), arrays(a) {}
  void array(const Array& a) {
    const void* addresses[] = {type_address(a), sharding_address(a)};
    signature.add(addresses, sizeof addresses);
    arrays.push(&a);
  }
  template <class T>
  void fixed(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      size(value.size());
      signature.add(value.data(), value.size());
    } else {
      signature.add(&value, sizeof value);
    }
  }
  template <class T>
  void key(const T& value) {
    fixed(value);
  }
  void size(size_t n) { signature.add(&n, sizeof n); }
};

// The same tree with a fresh argument of the trace for each array.
template <class T>
T trace_inputs(Tracing& tracing, T tree) {
  for_each_array(tree, [&](Array& a) { a = tracing.input(a.type(), a); });
  return tree;
}

template <class T>
size_t array_count(const T& tree) {
  size_t n = 0;
  for_each_array(tree, [&](const Array&) { ++n; });
  return n;
}

template <class F, class... Args>
using ResultOf = std::decay_t<std::invoke_result_t<const F&, const Args&...>>;

// A call traced on the arguments' types.
template <class R>
struct TracedCall {
  Traced traced;
  R result;  // the tree the function returned; its arrays are the program's outputs
};

template <class F, class... Args>
auto trace_call(const char* what, const F& f, const Args&... args) {
  Tracing tracing(what);
  const std::tuple<Args...> inputs{trace_inputs(tracing, args)...};  // braces: inputs are made in order
  ResultOf<F, Args...> result = std::apply(f, inputs);
  const std::vector<Array> leaves = tree_leaves(result);
  return TracedCall<ResultOf<F, Args...>>{tracing.finish(leaves), std::move(result)};
}

// Something said of a whole result or of each element of a tuple or pair, for each of its arrays.
template <class R, class S>
std::vector<S> for_each_result(const R& result, const std::vector<S>& said,
                               void (*check)(size_t said, size_t elements)) {
  std::vector<S> out;
  if constexpr (is_tuple<R>) {
    if (said.size() != 1) {
      check(said.size(), std::tuple_size_v<R>);
      [&]<size_t... I>(std::index_sequence<I...>) {
        ((out.resize(out.size() + array_count(std::get<I>(result)), said[I])), ...);
      }
      (std::make_index_sequence<std::tuple_size_v<R>>{});
      return out;
    }
  }
  check(said.size(), 1);
  out.resize(array_count(result), said[0]);
  return out;
}

// Throws Error, naming two that differ and their lines, unless the shardings of a jit that stands at `at` and the
// constraints of what it traced are all of one mesh.
void check_one_mesh(const Traced&, const Shardings& in, const Shardings& out, const SourceLine& at);

// What was compiled of a function, for which arguments. Knows nothing of their C++ types, so that it is the same code
// for all functions. Safe from any thread.
class JitCache {
 public:
  struct Entry {
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      if (prototype) destroy(prototype);
    }

    std::string signature;
    const void* tag = nullptr;  // which C++ types the arguments had
    std::shared_ptr<Executable> executable;
    void* prototype = nullptr;  // the result's tree without its arrays
    void (*destroy)(void*) = nullptr;
  };
  // The call that is to be compiled.
  struct Call {
    std::vector<size_t> in;   // how many arrays each argument has,
    std::vector<size_t> out;  // and each element of the result
  };
  // A reference to what traces the function and fills in the entry's prototype and the call. Not std::function, whose
  // code would be made once more for every function compiled.
  class Make {
   public:
    template <class M>
    Make(const M& make)  // NOLINT: a lambda becomes one
        : make_(&make), call_([](const void* m, Entry& e, Call& c) { return (*static_cast<const M*>(m))(e, c); }) {}
    Traced operator()(Entry& entry, Call& call) const { return call_(make_, entry, call); }

   private:
    const void* make_;
    Traced (*call_)(const void*, Entry&, Call&);
  };

  // `at` is where the function is made: the line that errors name for its shardings.
  JitCache(JitOptions options, SourceLine at) : options_(std::move(options)), at_(at) {}

  // `arrays`: those of all arguments, one after the other.
  std::shared_ptr<Entry> find(std::string_view signature, const void* tag, const Array* const* arrays,
                              const Make& make);
  size_t size() const;

 private:
  std::shared_ptr<Executable> compile(const Traced& traced, const Array* const* arrays, const Call& call) const;

  const JitOptions options_;
  const SourceLine at_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

// How many arrays each element of a tuple or pair has, or the whole of another tree.
template <class R>
std::vector<size_t> element_counts(const R& result) {
  if constexpr (is_tuple<R>)
    return std::apply([](const auto&... each) { return std::vector<size_t>{array_count(each)...}; }, result);
  else
    return {array_count(result)};
}

}  // namespace detail

template <class F>
class Jit {
 public:
  Jit(F f, JitOptions options, SourceLine at = SourceLine::here())
      : f_(std::move(f)), cache_(std::make_shared<detail::JitCache>(std::move(options), at)) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    return detail::with_parameters<F>([this](const auto&... converted) { return this->run(converted...); }, args...);
  }

  // The program traced for these arguments, as text; `lowered`: after simplifying and fusing; `plan`: what runs and
  // where it lives.
  template <class... Args>
  std::string program(const Args&... args) const {
    return about(detail::program_text, args...);
  }
  template <class... Args>
  std::string lowered(const Args&... args) const {
    return about(detail::lowered_text, args...);
  }
  template <class... Args>
  std::string plan(const Args&... args) const {
    return about(detail::plan_text, args...);
  }

  // How every value lies on lanes and why, and what moves between them.
  template <class... Args>
  std::string explain(const Args&... args) const {
    return about(detail::explain_text, args...);
  }

  // Bytes of work space and constants that a call needs on each lane beside its arguments and results.
  template <class... Args>
  std::vector<int64_t> work_bytes(const Args&... args) const {
    return about(detail::work_bytes, args...);
  }

  // How many instructions a call is, on all lanes together. What a GPU does in one kernel is one of them, and so is a
  // scan.
  template <class... Args>
  size_t instructions(const Args&... args) const {
    return about(detail::instruction_count, args...);
  }

  // Compiles for these arguments, without a call; what a GPU is to do is compiled by other threads, and a call waits
  // for it. Nothing is donated.
  template <class... Args>
  void prepare(const Args&... args) const {
    about(detail::begin_kernels, args...);
  }

  // How many times the function was compiled.
  size_t compiled() const { return cache_->size(); }

 private:
  template <class... Args>
  static inline constexpr char kTag = 0;

  template <class... Args>
  auto run(const Args&... args) const -> detail::ResultOf<F, Args...> {
    using R = detail::ResultOf<F, Args...>;
    if (detail::tracing()) return f_(args...);  // part of the outer function
    detail::ArrayPointers arrays;
    const std::shared_ptr<detail::JitCache::Entry> entry = find(arrays, args...);
    R result = *static_cast<const R*>(entry->prototype);
    constexpr size_t kSmall = 64;
    const size_t n = detail::result_count(*entry->executable);
    std::array<Array, kSmall> small;
    std::vector<Array> large(n > kSmall ? n : 0);
    Array* outputs = n > kSmall ? large.data() : small.data();
    detail::execute(*entry->executable, arrays.data(), outputs);
    detail::for_each_array(result, [&](Array& a) { a = std::move(*outputs++); });
    return result;
  }

  template <class Result, class... Args>
  Result about(Result (*of)(const detail::Executable&), const Args&... args) const {
    return detail::with_parameters<F>(
        [&](const auto&... converted) {
          detail::ArrayPointers arrays;
          return of(*find(arrays, converted...)->executable);
        },
        args...);
  }

  template <class... Args>
  std::shared_ptr<detail::JitCache::Entry> find(detail::ArrayPointers& arrays, const Args&... args) const {
    using R = detail::ResultOf<F, Args...>;
    detail::Signature signature;
    detail::CallVisitor visitor(signature, arrays);
    (detail::visit_tree(args, visitor), ...);
    const auto make = [&](detail::JitCache::Entry& entry, detail::JitCache::Call& call) {
      call.in = std::vector<size_t>{detail::array_count(args)...};
      auto traced = detail::trace_call("jit", f_, args...);
      call.out = detail::element_counts(traced.result);
      detail::for_each_array(traced.result, [](Array& a) { a = Array(); });
      entry.prototype = new R(std::move(traced.result));
      entry.destroy = [](void* held) { delete static_cast<R*>(held); };
      return std::move(traced.traced);
    };
    return cache_->find(signature.view(), &kTag<Args...>, arrays.data(), make);
  }

  F f_;
  std::shared_ptr<detail::JitCache> cache_;
};

namespace detail {
template <class F>
struct CallableSignature<Jit<F>, void> : CallableSignature<F> {};
}  // namespace detail

// Compiles f on first use for each set of argument types. That call throws Error when shardings are of two meshes.
template <class F>
Jit<F> jit(F f, JitOptions options = {}, SourceLine at = SourceLine::here()) {
  return Jit<F>(std::move(f), std::move(options), at);
}

// The program that f traces to on these arguments, as text.
template <class F, class... Args>
std::string program_text(const F& f, const Args&... args) {
  return detail::with_parameters<F>(
      [&](const auto&... converted) {
        return detail::print_program(detail::trace_call("program_text", f, converted...).traced.program);
      },
      args...);
}

}  // namespace lockstep
