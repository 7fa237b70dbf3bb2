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
  void size(size_t n) { signature.add(&n, sizeof n); }
};

// The same tree with a fresh argument of the trace for each array.
template <class T>
T trace_inputs(Tracing& tracing, T tree) {
  for_each_array(tree, [&](Array& a) { a = tracing.input(a.type()); });
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

void check_donate(size_t argument, size_t arguments);
void check_in_shardings(size_t shardings, size_t arguments);
void check_out_shardings(size_t shardings, size_t elements);

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

}  // namespace detail

template <class F>
class Jit {
 public:
  Jit(F f, JitOptions options) : shared_(std::make_shared<Shared>(std::move(f), std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    return detail::with_parameters<F>([this](const auto&... converted) { return this->run(converted...); }, args...);
  }

  // The program traced for these arguments, as text; `lowered`: after simplifying and fusing; `plan`: what runs and
  // where it lives.
  template <class... Args>
  std::string program(const Args&... args) const {
    return text(detail::program_text, args...);
  }
  template <class... Args>
  std::string lowered(const Args&... args) const {
    return text(detail::lowered_text, args...);
  }
  template <class... Args>
  std::string plan(const Args&... args) const {
    return text(detail::plan_text, args...);
  }

  // How every value lies on lanes and why, and what moves between them.
  template <class... Args>
  std::string explain(const Args&... args) const {
    return text(detail::explain_text, args...);
  }

  // How many times the function was compiled.
  size_t compiled() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->entries.size();
  }

 private:
  struct EntryBase {
    virtual ~EntryBase() = default;
    std::string signature;
    const void* tag = nullptr;  // which C++ types the arguments had
    std::shared_ptr<detail::Executable> executable;
  };
  template <class R>
  struct Entry : EntryBase {
    R prototype;
  };
  struct Shared {
    Shared(F function, JitOptions o) : f(std::move(function)), options(std::move(o)) {}
    F f;
    JitOptions options;
    std::mutex mutex;
    std::vector<std::shared_ptr<EntryBase>> entries;
  };
  template <class... Args>
  static inline constexpr char kTag = 0;

  template <class... Args>
  auto run(const Args&... args) const -> detail::ResultOf<F, Args...> {
    using R = detail::ResultOf<F, Args...>;
    if (detail::tracing()) return shared_->f(args...);  // part of the outer function
    detail::ArrayPointers arrays;
    const auto entry = find<R>(arrays, args...);
    R result = entry->prototype;
    constexpr size_t kSmall = 64;
    const size_t n = detail::result_count(*entry->executable);
    std::array<Array, kSmall> small;
    std::vector<Array> large(n > kSmall ? n : 0);
    Array* outputs = n > kSmall ? large.data() : small.data();
    detail::execute(*entry->executable, arrays.data(), outputs);
    detail::for_each_array(result, [&](Array& a) { a = std::move(*outputs++); });
    return result;
  }

  template <class... Args>
  std::string text(std::string (*of)(const detail::Executable&), const Args&... args) const {
    return detail::with_parameters<F>(
        [&](const auto&... converted) {
          detail::ArrayPointers arrays;
          return of(*find<detail::ResultOf<F, std::decay_t<decltype(converted)>...>>(arrays, converted...)->executable);
        },
        args...);
  }

  template <class R, class... Args>
  std::shared_ptr<Entry<R>> find(detail::ArrayPointers& arrays, const Args&... args) const {
    detail::Signature signature;
    detail::CallVisitor visitor(signature, arrays);
    (detail::visit_tree(args, visitor), ...);
    const std::lock_guard lock(shared_->mutex);
    for (const auto& entry : shared_->entries)
      if (entry->tag == &kTag<Args...> && entry->signature == signature.view())
        return std::static_pointer_cast<Entry<R>>(entry);
    std::vector<bool> donated;
    for (size_t i : shared_->options.donate) detail::check_donate(i, sizeof...(Args));
    detail::check_in_shardings(shared_->options.in_shardings.size(), sizeof...(Args));
    detail::Shardings in;
    size_t argument = 0;
    [[maybe_unused]] auto mark = [&](const auto& tree) {
      bool donate = false;
      for (size_t i : shared_->options.donate) donate |= i == argument;
      donated.resize(donated.size() + detail::array_count(tree), donate);
      const auto& said = shared_->options.in_shardings;
      detail::for_each_array(tree, [&](const Array& a) {
        in.push_back(argument < said.size() && said[argument].defined() ? said[argument] : detail::known_sharding(a));
      });
      ++argument;
    };
    (mark(args), ...);
    auto made = std::make_shared<Entry<R>>();
    auto call = detail::trace_call("jit", shared_->f, args...);
    detail::Shardings out;
    if (!shared_->options.out_shardings.empty())
      out = detail::for_each_result(call.result, shared_->options.out_shardings, detail::check_out_shardings);
    made->executable = detail::compile(call.traced, donated, in, out);
    made->prototype = std::move(call.result);
    detail::for_each_array(made->prototype, [](Array& a) { a = Array(); });
    made->signature = signature.view();
    made->tag = &kTag<Args...>;
    shared_->entries.push_back(made);
    return made;
  }

  std::shared_ptr<Shared> shared_;
};

namespace detail {
template <class F>
struct CallableSignature<Jit<F>, void> : CallableSignature<F> {};
}  // namespace detail

// Compiles f on first use for each set of argument types.
template <class F>
Jit<F> jit(F f, JitOptions options = {}) {
  return Jit<F>(std::move(f), std::move(options));
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
