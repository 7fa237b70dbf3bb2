// Arguments as the parameters of a function: where a function says what it takes (it is no template), what a caller
// passes is converted to that first. So a number passed for an Array parameter is an array, and one passed for an int
// is static.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

template <class F>
struct SignatureOf : std::false_type {};
template <class R, class... P>
struct SignatureOf<R (*)(P...)> : std::true_type {
  using Parameters = std::tuple<std::decay_t<P>...>;
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...)> : SignatureOf<R (*)(P...)> {};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> : SignatureOf<R (*)(P...)> {};

template <class F, class = void>
struct CallableSignature : SignatureOf<F> {};
template <class F>
struct CallableSignature<F, std::void_t<decltype(&F::operator())>> : SignatureOf<decltype(&F::operator())> {};

// What a transform makes of F: a function with F's parameters, so that it too says what it takes.
template <class F, class Call>
struct Like {
  Call call;

  template <class... Args>
  auto operator()(const Args&... args) const {
    return call(args...);
  }
};
template <class F, class Call>
struct CallableSignature<Like<F, Call>, void> : CallableSignature<F> {};
template <class F, class Call>
Like<F, Call> like(Call call) {
  return {std::move(call)};
}

template <class P, class A>
decltype(auto) as_parameter(const A& argument) {
  if constexpr (std::is_same_v<P, A>)
    return (argument);
  else
    return P(argument);
}

// then(arguments...) with each argument as f's parameter.
template <class F, class Then, class... Args>
decltype(auto) with_parameters(Then&& then, const Args&... args) {
  using Signature = CallableSignature<std::decay_t<F>>;
  if constexpr (Signature::value) {
    using Parameters = typename Signature::Parameters;
    static_assert(std::tuple_size_v<Parameters> == sizeof...(Args), "the function takes another number of arguments");
    return [&]<size_t... I>(std::index_sequence<I...>)->decltype(auto) {
      return then(as_parameter<std::tuple_element_t<I, Parameters>>(args)...);
    }
    (std::index_sequence_for<Args...>{});
  } else {
    return then(args...);
  }
}

}  // namespace lockstep::detail
