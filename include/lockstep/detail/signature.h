// Converts the arguments of a call to the parameter types of a function, if those are known (the function is
// not a template). So a number passed for an Array parameter becomes an array, and one passed for an int
// stays static. Not part of the public API.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

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
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...)> : SignatureOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> : SignatureOf<R (*)(P...)> {};

// The parameter types of a function pointer or function object. `value` is false when they are unknown.
template <class F, class = void>
struct CallableSignature : SignatureOf<F> {};
template <class F>
struct CallableSignature<F, std::void_t<decltype(&F::operator())>> : SignatureOf<decltype(&F::operator())> {};

// A transformed function that declares the same parameters as F.
template <class F, class Call>
struct SameParameters {
  Call call;

  template <class... Args>
  auto operator()(const Args&... args) const {
    return call(args...);
  }
};
template <class F, class Call>
struct CallableSignature<SameParameters<F, Call>, void> : CallableSignature<F> {};
template <class F, class Call>
SameParameters<F, Call> with_parameters_of(Call call) {
  return {std::move(call)};
}

template <class P, class A>
decltype(auto) as_parameter(const A& argument) {
  if constexpr (std::is_same_v<P, A>)
    return (argument);
  else
    return P(argument);
}

// Calls then(args...) with each argument converted to F's parameter type.
template <class F, class Then, class... Args>
decltype(auto) with_parameters(Then&& then, const Args&... args) {
  using Signature = CallableSignature<std::decay_t<F>>;
  if constexpr (Signature::value) {
    using Parameters = typename Signature::Parameters;
    static_assert(std::tuple_size_v<Parameters> == sizeof...(Args),
                  "the number of arguments does not match the function's parameters");
    return [&]<size_t... I>(std::index_sequence<I...>)->decltype(auto) {
      return then(as_parameter<std::tuple_element_t<I, Parameters>>(args)...);
    }
    (std::index_sequence_for<Args...>{});
  } else {
    return then(args...);
  }
}

}  // namespace lockstep::detail
