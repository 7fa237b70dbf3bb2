// Converts the arguments of a call to the parameter types of a function, if those are known (the function is
// not a template). So a number passed for an Array parameter becomes an array, and one passed for an int
// stays static. Checks the function and its arguments at compile time. Not part of the public API.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/detail/tree_check.h"
#include "lockstep/source_line.h"

namespace lockstep::detail {

// The type that an argument has for a parameter of type T: Array for an Operand (operand.h).
template <class T>
struct ArgumentFor {
  using type = T;
};

template <class F>
struct SignatureOf : std::false_type {};
template <class R, class... P>
struct SignatureOf<R (*)(P...)> : std::true_type {
  using Parameters = std::tuple<typename ArgumentFor<std::decay_t<P>>::type...>;
  using Result = R;
  static constexpr bool changes_arguments =
      ((std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>) || ...);
  static constexpr bool is_mutable = false;
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...)> : SignatureOf<R (*)(P...)> {
  static constexpr bool is_mutable = true;
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> : SignatureOf<R (*)(P...)> {};

// The parameter types of a function pointer or function object. `value` is false when they are unknown.
template <class F, class = void>
struct CallableSignature : SignatureOf<F> {};
template <class F>
struct CallableSignature<F, std::void_t<decltype(&F::operator())>> : SignatureOf<decltype(&F::operator())> {};

template <class P, class A>
decltype(auto) as_parameter(const A& argument) {
  if constexpr (std::is_same_v<P, A>)
    return (argument);
  else
    return P(argument);
}

// Compiles if a call with Args fits the signature, and its parameters and result are trees.
template <class S, class Parameters, class... Args>
struct CallOf;
template <class S, class... P, class... Args>
struct CallOf<S, std::tuple<P...>, Args...> {
  static constexpr bool right_number = sizeof...(P) == sizeof...(Args);
  static_assert(
      right_number,
      "the number of arguments does not match the function's parameters; default arguments must be passed, too");
  static_assert(!S::is_mutable,
                "the function is a mutable lambda: it is traced once, so changes of its captures would be lost; remove "
                "mutable, and pass state as arguments and results");
  static_assert(!S::changes_arguments,
                "the function takes an argument by reference (Array&): changes of arguments would be lost; take it by "
                "value or const reference, and return the new value");
  static_assert(!std::is_void_v<typename S::Result>, "the function returns nothing: return an Array or another tree");
  static constexpr bool ok = right_number && !S::is_mutable && !S::changes_arguments && (check_tree<P> && ...) &&
                             check_tree<std::decay_t<typename S::Result>>;
};
// Whether a call of F with Args fits. Entry points ask first, so that the compiler's message is short.
template <bool kKnown, class F, class... Args>
struct CallFits : GenericCall<F, Args...> {};
template <class F, class... Args>
struct CallFits<true, F, Args...> : CallOf<CallableSignature<F>, typename CallableSignature<F>::Parameters, Args...> {};
// Compiles if an argument of type A converts to the parameter at this position, of type P.
template <size_t kPosition, class P, class A>
struct ArgumentOf {
  static_assert(std::is_constructible_v<P, const A&>,
                "the argument at this position does not convert to the function's parameter");
  static constexpr bool ok = std::is_constructible_v<P, const A&>;
};

// A transformed function that declares the same parameters as F.
template <class F, class Call>
struct SameParameters {
  Call call;

  template <class... Args>
  auto operator()(const Args&... args) const {
    if constexpr (CallFits<CallableSignature<F>::value, F, Args...>::ok) return call(args...);
  }
};
template <class F, class Call>
struct CallableSignature<SameParameters<F, Call>, void> : CallableSignature<F> {};
template <class F, class Call>
SameParameters<F, Call> with_parameters_of(Call call) {
  return {std::move(call)};
}

// A callable whose call with exactly the parameters of F, a std::tuple, has the line of the call, which errors name. So
// braces convert to the parameters: f({a, b}). `Function` derives from it and has a template operator() for other calls.
// void: the parameters are unknown.
template <class Function, class Parameters>
struct CallWithLine {
  struct Never {};
  void operator()(Never) const = delete;
};
template <class Function, class... P>
struct CallWithLine<Function, std::tuple<P...>> {
  auto operator()(const P&... args, SourceLine at = SourceLine::here()) const {
    const CallerLine line(at);
    return static_cast<const Function&>(*this).template operator()<P...>(args...);
  }
};
template <class F, bool kKnown>
struct KnownParameters {
  using type = void;
};
template <class F>
struct KnownParameters<F, true> {
  using type = typename CallableSignature<F>::Parameters;
};
template <class Function, class F>
using CallOfFunction = CallWithLine<Function, typename KnownParameters<F, CallableSignature<F>::value>::type>;

// A function of tangents or of a cotangent, whose calls have a line.
template <class Call, class... Args>
struct LinearCall {
  Call call;

  auto operator()(const Args&... args, SourceLine at = SourceLine::here()) const {
    const CallerLine line(at);
    return call(args...);
  }
};
template <class Call, class... Args>
struct CallableSignature<LinearCall<Call, Args...>, void> : CallableSignature<Call> {};

// Calls then(args...) with each argument converted to F's parameter type.
template <class F, class Then, class... Args>
decltype(auto) with_parameters(Then&& then, const Args&... args) {
  using Signature = CallableSignature<std::decay_t<F>>;
  if constexpr (Signature::value) {
    using Parameters = typename Signature::Parameters;
    if constexpr (CallFits<true, std::decay_t<F>, Args...>::ok) {
      return [&]<size_t... I>(std::index_sequence<I...>)->decltype(auto) {
        if constexpr ((ArgumentOf<I, std::tuple_element_t<I, Parameters>, Args>::ok && ...))
          return then(as_parameter<std::tuple_element_t<I, Parameters>>(args)...);
      }
      (std::index_sequence_for<Args...>{});
    }
  } else {
    if constexpr (CallFits<false, std::decay_t<F>, Args...>::ok) return then(args...);
  }
}

}  // namespace lockstep::detail
