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

#include "lockstep/detail/flat_call.h"
#include "lockstep/jit.h"
#include "lockstep/remat.h"
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

// For each array of the arguments: whether it belongs to an argument at positions I..., whose gradient is
// requested. Throws Error for one that is not floating. `what` names the transform in errors.
template <size_t... I, class... Args>
std::vector<bool> wanted_arrays(const char* what, const Args&... args) {
  std::vector<bool> wanted;
  size_t argument = 0;
  auto mark = [&](const auto& tree) {
    const bool want = ((argument == I) || ...);
    for_each_path(tree, [&](const std::string& path, const Array& a) {
      if (want)
        check_differentiable(
            a, std::string(what) + ": argument " + std::to_string(argument) + (path.empty() ? "" : ", " + path));
      wanted.push_back(want);
    });
    ++argument;
  };
  (mark(args), ...);
  return wanted;
}

// The arguments at positions I... with their arrays replaced by gradients, which are in argument order.
// Returns the tree itself for one position, a tuple for several.
template <size_t... I, class... Args>
auto gradients_like(const Array* next, const Args&... args) {
  std::tuple<Args...> all{args...};
  [&]<size_t... K>(std::index_sequence<K...>) {
    auto fill = [&](size_t argument, auto& tree) {
      const bool wanted = ((argument == I) || ...);
      if (wanted) for_each_array(tree, [&](Array& a) { a = *next++; });
    };
    (fill(K, std::get<K>(all)), ...);
  }
  (std::index_sequence_for<Args...>{});
  if constexpr (sizeof...(I) == 1)
    return std::get<I...>(all);
  else
    return std::tuple<std::tuple_element_t<I, std::tuple<Args...>>...>{std::get<I>(all)...};
}

}  // namespace detail

// Returns a function of the same arguments that returns {value, gradients}. The value is what f returns, aux
// included. Gradients are with respect to the arguments at positions I... (default: 0), and are trees like
// those arguments.
template <size_t... I, class F>
auto value_and_grad(F f) {
  static_assert(detail::returns_loss<F>);
  if constexpr (sizeof...(I) == 0) {
    return value_and_grad<0>(std::move(f));
  } else {
    return detail::with_parameters_of<F>([f = std::move(f)](const auto&... passed) {
      static_assert(((I < sizeof...(passed)) && ...), "grad: the argument position is out of range");
      return detail::with_parameters<F>(
          [&f](const auto&... args) {
            const std::vector<bool> wanted = detail::wanted_arrays<I...>("grad", args...);
            auto call = detail::trace_call("grad", f, args...);
            detail::check_scalar_loss(detail::loss_of(call.result));
            const detail::Arrays results = detail::call(detail::gradient_program(call.traced, wanted),
                                                        detail::with_captures(detail::leaves_of(args...), call.traced));
            const Array* next = results.data();
            auto value = detail::replace_arrays(std::move(call.result), next);
            auto gradients = detail::gradients_like<I...>(next, args...);
            return std::pair<decltype(value), decltype(gradients)>{std::move(value), std::move(gradients)};
          },
          passed...);
    });
  }
}

// Returns a function of the same arguments that returns the gradients.
template <size_t... I, class F>
auto grad(F f) {
  static_assert(detail::returns_loss<F>);
  return detail::with_parameters_of<F>(
      [both = value_and_grad<I...>(std::move(f))](const auto&... args) { return both(args...).second; });
}

// Returns {f(args...), pullback}. The pullback maps a cotangent (a tree like the result) to a tuple of
// gradients, one tree per argument; arrays that are not floating get zeros. The forward computation runs
// once; the pullback may be called any number of times.
template <class F, class... Passed>
auto vjp(const F& f, const Passed&... passed) {
  return detail::with_parameters<F>(
      [&f]<class... Args>(const Args&... args) {
        const detail::Arrays leaves = detail::leaves_of(args...);
        std::vector<bool> wanted;
        for (const Array& a : leaves) wanted.push_back(is_inexact(a.dtype()));
        auto call = detail::trace_call("vjp", f, args...);
        const detail::VjpPrograms programs = detail::vjp_programs(call.traced, wanted);
        detail::Arrays results = detail::call(programs.forward, detail::with_captures(leaves, call.traced));
        const Array* next = results.data();
        auto value = detail::replace_arrays(std::move(call.result), next);
        detail::Arrays residuals(results.begin() + static_cast<std::ptrdiff_t>(programs.outputs), results.end());
        auto pullback = [backward = programs.backward, residuals = std::move(residuals), wanted,
                         kept = std::tuple<Args...>{args...}, like = value](const decltype(value)& cotangent) {
          detail::Arrays in = residuals;
          const detail::Arrays cts = tree_leaves(cotangent), outs = tree_leaves(like);
          if (cts.size() != outs.size()) detail::throw_tree_mismatch("vjp", outs.size(), cts.size());
          detail::check_alike("vjp", like, cotangent);
          for (size_t i = 0; i < cts.size(); ++i) {
            if (!is_inexact(outs[i].dtype())) continue;
            detail::check_cotangent(cts[i], outs[i], i);
            in.push_back(cts[i]);
          }
          const detail::Arrays grads = detail::call(backward, in);
          std::tuple<Args...> result = kept;
          size_t leaf = 0, at = 0;
          detail::for_each_array(result,
                                 [&](Array& a) { a = wanted[leaf++] ? grads[at++] : detail::zeros_of(a.type()); });
          return result;
        };
        return std::pair{std::move(value), std::move(pullback)};
      },
      passed...);
}

// Returns f with a user-defined gradient. forward(args...) returns {result, residuals}. backward(residuals,
// cotangent) returns the gradients: a tree like the argument, or a tuple of trees for several arguments.
// Captured arrays get no gradient. Throws Error when the results of forward or backward have the wrong types.
template <class F, class Forward, class Backward>
auto custom_vjp(F f, Forward forward, Backward backward) {
  return detail::with_parameters_of<F>(
      [f = std::move(f), forward = std::move(forward), backward = std::move(backward)](const auto&... passed) {
        return detail::with_parameters<F>(
            [&](const auto&... args) {
              auto call = detail::trace_call("custom_vjp", f, args...);
              auto fwd = detail::trace_call("custom_vjp", forward, args...);
              auto bwd = detail::trace_call("custom_vjp", backward, fwd.result.second, fwd.result.first);
              const detail::Arrays results =
                  detail::custom_vjp(call.traced, fwd.traced, bwd.traced, detail::leaves_of(args...));
              const Array* next = results.data();
              return detail::replace_arrays(std::move(call.result), next);
            },
            passed...);
      });
}

}  // namespace lockstep
