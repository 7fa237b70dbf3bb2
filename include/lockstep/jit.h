// jit: compiles a function once for each set of argument types; later calls take microseconds.
//
//   auto step = jit([](Params p, Batch b) { ... }, {.donate = {0}});
//   p = step(p, batch);
//
// Arrays in the arguments are traced. Numbers, enums and strings in them are static: a new value compiles a
// new version, and a number that has had many values prints a warning. Arrays that the function captures become constants
// of the compiled function.
//
// A class keeps a compiled function as a JitFunction:
//
//   class Trainer {
//     JitFunction<Params(Params, Batch)> step_ = jit(train_step, {.donate = {0}});
//   };
//
// A jit object may be called from several threads. The computations are serialized. A version that several threads need is
// compiled once; calls of other versions do not wait for it, and other threads may trace the function for them meanwhile.
// Copies share their compiled versions.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/detail/jit_cache.h"
#include "lockstep/detail/signature.h"
#include "lockstep/detail/trace_call.h"
#include "lockstep/per_leaf.h"

namespace lockstep {

struct JitOptions {
  // Positions of arguments whose memory the results may reuse. Their arrays must not be used after the call.
  std::vector<size_t> donate = {};
  // More arrays to donate, by patterns (per_leaf.h) of argument and path: {"0/moments/*"}.
  std::vector<std::string> donate_paths = {};
  // Shardings of the arguments: one per argument, for all arrays in it or per array (per_leaf.h). Where missing or
  // undefined, arrays keep theirs.
  PerArgument<NamedSharding> in_shardings = {};
  // Shardings of the result: one for the whole result, or one per element of a tuple or pair. Where
  // undefined, the sharding is derived from the arguments.
  PerArgument<NamedSharding> out_shardings = {};
  // Whether attention written as products and a softmax is replaced by dot_product_attention (attention.h), which never
  // stores the matrix of scores. Results differ by rounding only.
  bool recognize = true;
  // How many compiled versions are kept. A further one replaces the least recently used one, which compiles again when it is
  // called. Versions over several processes, which would have to do so together, are always kept and do not count.
  size_t max_versions = 4096;
};

namespace detail {
const JitOptions& default_jit_options();  // JitOptions{}
}  // namespace detail

// A compiled function. Created by jit().
template <class F>
class Jit : public detail::CallOfFunction<Jit<F>, F> {
 public:
  using detail::CallOfFunction<Jit<F>, F>::operator();

  Jit(F f, const JitOptions& options = detail::default_jit_options(),
      SourceLine at = SourceLine::here())  // NOLINT: for JitFunction
      : f_(std::move(f)), cache_(options, at) {}
  // From jit() of another callable, for a JitFunction.
  template <class G>
  requires(!std::is_same_v<F, G> && std::is_constructible_v<F, const G&>) Jit(const Jit<G>& other)  // NOLINT
      : f_(other.f_), cache_(other.cache_) {}

  // Calls the function; compiles it first where no version fits. Inside another transform it becomes part of
  // the function being traced. Throws Error when arguments, options or shardings do not fit.
  template <class... Args>
  auto operator()(const Args&... args) const {
    if constexpr (detail::CallFits<detail::CallableSignature<F>::value, F, Args...>::ok)
      return detail::with_parameters<F>([this](const auto&... converted) { return this->run(converted...); }, args...);
  }

  // The functions below compile for these arguments where needed. They do not run the function and donate
  // nothing. They throw Error while the function is traced for these arguments.

  // Compiles in advance. GPU kernels are compiled by background threads; the first call waits for them.
  template <class... Args>
  void prepare(const Args&... args) const {
    inspect(detail::compile_kernels_in_background, args...);
  }

  // The traced program, with what was recognized (JitOptions::recognize), as text.
  template <class... Args>
  std::string program(const Args&... args) const {
    return inspect(detail::program_text, args...);
  }
  // The program after simplification and fusion, as text.
  template <class... Args>
  std::string lowered(const Args&... args) const {
    return inspect(detail::lowered_text, args...);
  }
  // The execution plan, as text: the instructions and the memory they use.
  template <class... Args>
  std::string plan(const Args&... args) const {
    return inspect(detail::plan_text, args...);
  }
  // How the lanes execute it, as text: on a GPU kernels, phases and tasks with their tiles; on the CPU the
  // instructions. Includes the bodies of scans and conds.
  template <class... Args>
  std::string schedule(const Args&... args) const {
    return inspect(detail::schedule_text, args...);
  }
  // The sharding of every value, the reason for it, and the communication between lanes, as text.
  template <class... Args>
  std::string explain(const Args&... args) const {
    return inspect(detail::explain_text, args...);
  }

  // Bytes of temporaries and constants that a call needs on each lane, beside its arguments and results.
  template <class... Args>
  std::vector<int64_t> work_bytes(const Args&... args) const {
    return inspect(detail::work_bytes, args...);
  }
  // The number of instructions of a call, summed over all lanes. A GPU kernel counts as one, and so does a
  // scan.
  template <class... Args>
  size_t instructions(const Args&... args) const {
    return inspect(detail::instruction_count, args...);
  }

  // The multiplications of a call, each with an addition, on all lanes of this process: of its matrix products,
  // convolutions and attention, without regard to masks. Twice as many are its floating-point operations.
  template <class... Args>
  double multiply_adds(const Args&... args) const {
    return inspect(detail::multiply_adds, args...);
  }

  // The number of compiled versions that it keeps. While the function is traced it counts the finished ones.
  size_t compiled() const { return cache_.size(); }

 private:
  // Its address identifies the C++ types of the arguments.
  template <class... Args>
  static inline constexpr char kTag = 0;

  template <class... Args>
  auto run(const Args&... args) const -> detail::ResultOf<F, Args...> {
    using R = detail::ResultOf<F, Args...>;
    if (detail::tracing()) return run_nested(args...);
    detail::JitCall call;
    find(call, args...);
    R result = static_cast<const detail::ResultSlot<R>*>(call.prototype())->get();
    call.run(result);
    return result;
  }

  // The call becomes part of the function that is being traced.
  template <class... Args>
  auto run_nested(const Args&... args) const -> detail::ResultOf<F, Args...> {
    const auto nested = [&] {
      detail::JitCall call;
      (detail::visit_tree<void>(args, call), ...);
      return detail::JitCache::Nested(cache_, call, &kTag<Args...>);
    }();
    return f_(args...);
  }

  // Returns of(executable); compiles first if needed.
  template <class Result, class... Args>
  Result inspect(Result (*of)(const detail::Executable&), const Args&... args) const {
    return detail::with_parameters<F>(
        [&](const auto&... converted) {
          detail::JitCall call;
          find(call, converted...);
          return of(call.executable());
        },
        args...);
  }

  template <class... Args>
  void find(detail::JitCall& call, const Args&... args) const {
    (detail::visit_tree<void>(args, call), ...);
    cache_.find(call, &kTag<Args...>, [&](detail::JitCompilation& made) {
      using Result = detail::ResultSlot<detail::ResultOf<F, Args...>>;
      Result& result = *new Result;
      made.keep(&result, [](void* prototype) { delete static_cast<Result*>(prototype); });
      made.trace({detail::TreeRef(args)...}, detail::on_arrays(result, f_, args...));
      detail::clear_arrays(result.get());
    });
  }

  template <class G>
  friend class Jit;

  F f_;
  detail::JitCache cache_;
};

// The type of a compiled function by its signature, for members and containers.
template <class Signature>
using JitFunction = Jit<std::function<Signature>>;

namespace detail {
template <class F>
struct CallableSignature<Jit<F>, void> : CallableSignature<F> {};
}  // namespace detail

// Returns a compiled version of f. Nothing is traced until the first call. That call throws Error when the
// shardings come from more than one mesh.
template <class F>
Jit<F> jit(F f, const JitOptions& options = detail::default_jit_options(), SourceLine at = SourceLine::here()) {
  return Jit<F>(std::move(f), options, at);
}
// Of a function that is overloaded with those of the C library, such as jit(exp).
inline auto jit(Array (*f)(const Operand&), const JitOptions& options = detail::default_jit_options(),
                SourceLine at = SourceLine::here()) {
  return Jit<Array (*)(const Operand&)>(f, options, at);
}

// The result of f on these arguments without its data: a tree whose arrays have only a type and shape. Nothing is
// computed; numbers in the arguments count as arrays where f takes arrays.
template <class F, class... Args>
auto eval_shape(const F& f, const Args&... args) {
  return detail::with_parameters<F>(
      [&](const auto&... converted) { return detail::trace_call("eval_shape", f, converted...).result; }, args...);
}

// The program that f traces to on these arguments, as text.
template <class F, class... Args>
std::string program_text(const F& f, const Args&... args) {
  return detail::with_parameters<F>(
      [&](const auto&... converted) {
        detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(converted)>...>> result;
        return detail::text_of_function({detail::TreeRef(converted)...}, detail::on_arrays(result, f, converted...));
      },
      args...);
}

}  // namespace lockstep
