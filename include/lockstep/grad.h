// Reverse-mode gradients and user-defined gradients. Rematerialization is in remat.h.
//
//   auto g = grad(loss)(params, batch);                       // a tree like params
//   auto [value, g] = value_and_grad(loss)(params, batch);
//   auto [gx, gy] = grad<0, 1>(f)(x, y);                      // with respect to several arguments
//
// The function must return a floating scalar, or a pair of one and anything else (aux); value_and_grad
// returns aux unchanged. Arrays in the differentiated arguments must be floating or complex (complex.h). All functions nest with
// each other, with jit and with vmap, and may be called from any thread.
#pragma once

#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/detail/flat_call.h"
#include "lockstep/jit.h"
#include "lockstep/remat.h"
#include "lockstep/source_line.h"
#include "lockstep/trace.h"
#include "lockstep/tree.h"

namespace lockstep {
namespace detail {

template <class T>
inline constexpr bool is_pair = false;
template <class A, class B>
inline constexpr bool is_pair<std::pair<A, B>> = true;

template <class T>
inline constexpr bool is_pair_of_array = false;
template <class B>
inline constexpr bool is_pair_of_array<std::pair<Array, B>> = true;

template <class R>
struct LossOf {
  static constexpr bool ok = std::is_same_v<R, Array> || is_pair_of_array<R>;
  static_assert(ok, "grad: the function must return an Array, or a std::pair of an Array and aux");
};
// Checks the result of a function whose type is known without calling it.
template <class F, class = void>
inline constexpr bool returns_loss = true;
template <class F>
inline constexpr bool returns_loss<F, std::enable_if_t<SignatureOf<decltype(&F::operator())>::value>> =
    LossOf<std::decay_t<typename SignatureOf<decltype(&F::operator())>::Result>>::ok;

template <class R>
const Array& loss_of(const R& result) {
  static_assert(LossOf<R>::ok);
  if constexpr (std::is_same_v<R, Array>)
    return result;
  else
    return result.first;
}

template <size_t I, class First, class... Rest>
const auto& nth_argument(const First& first, const Rest&... rest) {
  if constexpr (I == 0)
    return first;
  else
    return nth_argument<I - 1>(rest...);
}

// For each array of the arguments: whether its gradient is requested, because its argument is at one of the
// positions. Throws Error for one that is not floating. `what` names the transform in errors.
using Positions = std::initializer_list<size_t>;
std::vector<bool> wanted_arrays(const char* what, TreeRefs args, Positions positions);

// The results of a gradient program: those of the function, then gradients of the wanted arrays, in argument order.
class Gradients {
 public:
  Gradients(Arrays results, size_t outputs, TreeRefs args, Positions positions);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  ~Gradients();
  const Array* outputs() const { return arrays_.data(); }
  const Array* of(size_t argument) const { return arrays_.data() + begins_[argument]; }

 private:
  Arrays arrays_;
  std::vector<size_t> begins_;  // where the gradients of each argument begin
};
// The value and the gradients of a function that returns a loss, or a pair of one and aux.
Gradients value_and_gradients(TreeRefs args, Positions positions, const FlatFunction& f);

// The arguments at positions I... with their arrays replaced by gradients. gradients(i) has those of argument i. Returns
// the tree itself for one position, a tuple for several.
template <size_t... I, class Of, class... Args>
auto gradients_like(const Of& gradients, const Args&... args) {
  const auto like = [&](const auto& tree, size_t argument) {
    const Array* next = gradients(argument);
    return replace_arrays(tree, next);
  };
  if constexpr (sizeof...(I) == 1)
    return like(nth_argument<I...>(args...), I...);
  else
    return std::tuple<std::decay_t<decltype(nth_argument<I>(args...))>...>{like(nth_argument<I>(args...), I)...};
}

// The programs of vjp() for some arguments.
class Pullback {
 public:
  Pullback(TreeRefs args, const FlatFunction& f);
  Pullback(const Pullback&);
  Pullback(Pullback&&) noexcept;
  ~Pullback();
  const Array* outputs() const { return outputs_.data(); }  // of f
  // The gradients of all arguments for a cotangent; `like` is the result of f. Throws Error when they differ.
  Arrays operator()(TreeRef cotangent, TreeRef like) const;

 private:
  std::vector<bool> wanted_;
  std::vector<Type> types_;  // of the arguments
  Arrays outputs_, residuals_;
  ProgramPtr backward_;
};

Arrays custom_vjp_flat(TreeRefs args, const FlatFunction& f, const FlatFunction& forward, const FlatFunction& backward);

}  // namespace detail

// Returns a function of the same arguments that returns {value, gradients}. The value is what f returns, aux
// included. Gradients are with respect to the arguments at positions I... (default: 0), and are trees like
// those arguments.
template <size_t... I, class F>
auto value_and_grad(F f, SourceLine at = SourceLine::here()) {
  static_assert(detail::returns_loss<F>);
  if constexpr (sizeof...(I) == 0) {
    return value_and_grad<0>(std::move(f), at);
  } else {
    return detail::with_parameters_of<F>([f = std::move(f), at](const auto&... passed) {
      const detail::CallerLine line(at);
      static_assert(((I < sizeof...(passed)) && ...), "grad: the argument position is out of range");
      return detail::with_parameters<F>(
          [&f](const auto&... args) {
            using Result = detail::ResultOf<F, std::decay_t<decltype(args)>...>;
            static_assert(detail::LossOf<Result>::ok);
            detail::ResultSlot<Result> result;
            const detail::Gradients all =
                detail::value_and_gradients({detail::TreeRef(args)...}, {I...}, detail::on_arrays(result, f, args...));
            auto value = result.take(all.outputs());
            auto gradients = detail::gradients_like<I...>([&all](size_t i) { return all.of(i); }, args...);
            return std::pair<decltype(value), decltype(gradients)>{std::move(value), std::move(gradients)};
          },
          passed...);
    });
  }
}

// Returns a function of the same arguments that returns the gradients.
template <size_t... I, class F>
auto grad(F f, SourceLine at = SourceLine::here()) {
  static_assert(detail::returns_loss<F>);
  return detail::with_parameters_of<F>(
      [both = value_and_grad<I...>(std::move(f), at)](const auto&... args) { return both(args...).second; });
}
// Of functions that are overloaded with those of the C library, such as grad(tanh).
inline auto value_and_grad(Array (*f)(const Operand&), SourceLine at = SourceLine::here()) {
  return value_and_grad<0>(f, at);
}
inline auto grad(Array (*f)(const Operand&), SourceLine at = SourceLine::here()) { return grad<0>(f, at); }

namespace detail {
template <class F, class... Passed>
auto vjp_of(const F& f, const Passed&... passed) {
  return detail::with_parameters<F>(
      [&f]<class... Args>(const Args&... args) {
        detail::ResultSlot<detail::ResultOf<F, Args...>> result;
        detail::Pullback gradients({detail::TreeRef(args)...}, detail::on_arrays(result, f, args...));
        auto value = result.take(gradients.outputs());
        auto pullback = [gradients = std::move(gradients), kept = std::tuple<Args...>{args...},
                         like = value](const decltype(value)& cotangent) {
          const detail::Arrays grads = gradients(cotangent, like);
          const Array* next = grads.data();
          return detail::replace_arrays(kept, next);
        };
        using Line = detail::LinearCall<decltype(pullback), decltype(value)>;
        return std::pair<decltype(value), Line>{std::move(value), Line{std::move(pullback)}};
      },
      passed...);
}
}  // namespace detail

// Returns {f(args...), pullback}. The pullback maps a cotangent (a tree like the result) to a tuple of
// gradients, one tree per argument; arrays that are not floating get zeros. The forward computation runs
// once; the pullback may be called any number of times.
template <class F, class A>
auto vjp(const F& f, const A& a, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::vjp_of(f, a);
}
template <class F, class A, class B>
auto vjp(const F& f, const A& a, const B& b, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::vjp_of(f, a, b);
}
template <class F, class A, class B, class C, class... Rest>
auto vjp(const F& f, const A& a, const B& b, const C& c, const Rest&... rest) {
  return detail::vjp_of(f, a, b, c, rest...);
}

// Returns f with a user-defined gradient. forward(args...) returns {result, residuals}. backward(residuals,
// cotangent) returns the gradients: a tree like the argument, or a tuple of trees for several arguments.
// Captured arrays get no gradient. Throws Error when the results of forward or backward have the wrong types.
template <class F, class Forward, class Backward>
auto custom_vjp(F f, Forward forward, Backward backward, SourceLine at = SourceLine::here()) {
  return detail::with_parameters_of<F>(
      [f = std::move(f), forward = std::move(forward), backward = std::move(backward), at](const auto&... passed) {
        const detail::CallerLine line(at);
        return detail::with_parameters<F>(
            [&](const auto&... args) {
              using Result = detail::ResultOf<F, std::decay_t<decltype(args)>...>;
              using Forwarded = detail::ResultOf<Forward, std::decay_t<decltype(args)>...>;
              using First = std::decay_t<decltype(std::declval<Forwarded>().first)>;
              using Residuals = std::decay_t<decltype(std::declval<Forwarded>().second)>;
              detail::ResultSlot<Result> result;
              detail::ResultSlot<Forwarded> forwarded;
              detail::ResultSlot<detail::ResultOf<Backward, Residuals, First>> gradients;
              const auto pull = [&](const Array* next, detail::FlatTrees& out) {
                detail::on_arrays(gradients, backward, forwarded.get().second, forwarded.get().first)(next, out);
              };
              const detail::Arrays results =
                  detail::custom_vjp_flat({detail::TreeRef(args)...}, detail::on_arrays(result, f, args...),
                                          detail::on_arrays(forwarded, forward, args...), pull);
              return result.take(results.data());
            },
            passed...);
      });
}

}  // namespace lockstep
