// Forward-mode derivatives, and user-defined tangents.
//
//   auto [y, dy] = jvp(f, x, dx);                                       // f of one argument
//   auto [z, dz] = jvp(g, std::tuple{x, y}, std::tuple{dx, dy});        // g of several
//
// Tangents are trees like the arguments and results. Arrays that are not floating have no derivative: their
// tangents are ignored in arguments and 0 in results. With `has_aux` as the last argument the function returns a
// std::pair of its result and anything else (aux), which is returned unchanged. All functions nest with each other,
// with grad, jit, vmap, scan and shard_map, and may be called from any thread.
#pragma once

#include "lockstep/grad.h"

namespace lockstep {

struct HasAux {};
inline constexpr HasAux has_aux;

namespace detail {

// Runs {outputs, tangents of the first `outputs` outputs} on these arguments; results that are not floating get
// tangents of 0. Throws Error when a tangent does not have the type of its argument.
Arrays jvp_results(const Traced&, const Arrays& args, const Arrays& tangents, size_t outputs);

// Converts tangents of numbers to the types of the primals and drops those of arrays that are not floating. Throws
// Error when types differ.
Arrays checked_tangents(const char* what, std::span<const Type> types, const Arrays& tangents);

// The programs of linearize. `forward` as for vjp; `backward` maps residuals, and one tangent per wanted input, to
// tangents of the floating outputs.
VjpPrograms linear_programs(const Traced&, std::vector<bool> wanted);

// Maps captures and cotangents to gradients of the wanted inputs. Throws Error if these depend on the inputs.
ProgramPtr transposed_program(const Traced&, const std::vector<bool>& wanted);

Arrays custom_jvp(const Traced& body, const Traced& rule, const Arrays& args);

std::vector<Type> types_of_arrays(const Arrays&);

template <class T>
inline constexpr bool is_std_tuple = false;
template <class... T>
inline constexpr bool is_std_tuple<std::tuple<T...>> = true;

// Calls f with the elements of a tuple, or with one argument.
template <class F, class T>
decltype(auto) apply_arguments(F&& f, const T& arguments) {
  if constexpr (is_std_tuple<T>)
    return std::apply(f, arguments);
  else
    return f(arguments);
}

// One argument, or the tuple of several.
template <class... Args>
auto together(const Args&... args) {
  if constexpr (sizeof...(Args) == 1)
    return std::get<0>(std::tuple<Args...>{args...});
  else
    return std::tuple<Args...>{args...};
}

template <bool with_aux, class R>
const auto& without_aux(const R& result) {
  if constexpr (with_aux) {
    static_assert(is_pair<R>, "has_aux: the function must return a std::pair of its result and aux");
    return result.first;
  } else {
    return result;
  }
}

std::vector<bool> floating(const Arrays& arrays);

// jvp(), linearize(), linear_transpose() and custom_jvp() of functions of arrays.
Arrays jvp_flat(TreeRefs args, TreeRefs tangents, const FlatFunction& f, bool with_aux);
class LinearMap {
 public:
  LinearMap(TreeRefs args, const FlatFunction& f);
  LinearMap(const LinearMap&);
  LinearMap(LinearMap&&) noexcept;
  ~LinearMap();
  const Array* outputs() const { return outputs_.data(); }  // of f
  // The tangents of a result that is like `like`.
  Arrays operator()(TreeRefs tangents, TreeRef like) const;

 private:
  Arrays outputs_, residuals_;
  std::vector<Type> types_;  // of the arguments
  ProgramPtr program_;
};
class TransposedMap {
 public:
  TransposedMap(TreeRefs args, const FlatFunction& f);
  TransposedMap(const TransposedMap&);
  TransposedMap(TransposedMap&&) noexcept;
  ~TransposedMap();
  Arrays operator()(TreeRef cotangent) const;

 private:
  Arrays captures_;
  std::vector<Type> types_;  // of the results
  ProgramPtr program_;
};
Arrays custom_jvp_flat(TreeRefs args, const FlatFunction& f, const FlatFunction& rule);

}  // namespace detail

namespace detail {
template <bool with_aux, class F, class Primals, class Tangents>
auto jvp_of(const F& f, const Primals& primals, const Tangents& tangents, SourceLine line_of_call) {
  const CallerLine line(line_of_call);
  const auto at = [&](const auto&... args) {
    const auto along = [&](const auto&... directions) {
      (detail::check_alike("jvp", args, directions), ...);
      detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(args)>...>> slot;
      const detail::Arrays results = detail::jvp_flat({detail::TreeRef(args)...}, {detail::TreeRef(directions)...},
                                                      detail::on_arrays(slot, f, args...), with_aux);
      const Array* next = results.data();
      const auto value = slot.take_and_advance(next);
      const auto& result = detail::without_aux<with_aux>(value);
      auto tangent = detail::replace_arrays(result, next);
      if constexpr (with_aux)
        return std::tuple{result, std::move(tangent), value.second};
      else
        return std::pair{result, std::move(tangent)};
    };
    return detail::apply_arguments([&](const auto&... each) { return detail::with_parameters<F>(along, each...); },
                                   tangents);
  };
  return detail::apply_arguments([&](const auto&... each) { return detail::with_parameters<F>(at, each...); }, primals);
}
}  // namespace detail

// Returns {f(primals), tangent}: the derivative of f at `primals` along `tangents`; with has_aux, a tuple {result,
// tangent, aux}. A function of several arguments takes std::tuples. Memory does not grow with the depth of the
// computation, as it does for grad. Throws Error when a tangent has another type than its primal, and for functions
// with custom_vjp.
template <class F, class Primals, class Tangents>
auto jvp(const F& f, const Primals& primals, const Tangents& tangents, SourceLine at = SourceLine::here()) {
  return detail::jvp_of<false>(f, primals, tangents, at);
}
template <class F, class Primals, class Tangents>
auto jvp(const F& f, const Primals& primals, const Tangents& tangents, HasAux, SourceLine at = SourceLine::here()) {
  return detail::jvp_of<true>(f, primals, tangents, at);
}

namespace detail {
template <class F, class... Passed>
auto linearize_at(const F& f, const Passed&... passed) {
  return detail::with_parameters<F>(
      [&f]<class... Args>(const Args&... args) {
        detail::ResultSlot<detail::ResultOf<F, Args...>> slot;
        detail::LinearMap map({detail::TreeRef(args)...}, detail::on_arrays(slot, f, args...));
        auto value = slot.take(map.outputs());
        auto linear = [map = std::move(map), like = value](const Args&... tangents) {
          const detail::Arrays out = map({detail::TreeRef(tangents)...}, like);
          const Array* next = out.data();
          return detail::replace_arrays(like, next);
        };
        using Line = detail::LinearCall<decltype(linear), Args...>;
        return std::pair<decltype(value), Line>{std::move(value), Line{std::move(linear)}};
      },
      passed...);
}
template <class F, class... Passed>
auto transpose_of(const F& f, const Passed&... passed) {
  return detail::with_parameters<F>(
      [&f]<class... Args>(const Args&... args) {
        using Result = detail::ResultOf<F, Args...>;
        detail::ResultSlot<Result> slot;
        auto transposed = [map = detail::TransposedMap({detail::TreeRef(args)...}, detail::on_arrays(slot, f, args...)),
                           like = std::tuple<Args...>{args...}](const Result& cotangent) {
          return tree_unflatten(like, map(cotangent));
        };
        return detail::LinearCall<decltype(transposed), Result>{std::move(transposed)};
      },
      passed...);
}
}  // namespace detail

// Returns {f(primals...), linear}. linear(tangents...) is the tangent of the result; it does not compute f again,
// and may be called any number of times.
template <class F, class A>
auto linearize(const F& f, const A& a, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::linearize_at(f, a);
}
template <class F, class A, class B>
auto linearize(const F& f, const A& a, const B& b, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::linearize_at(f, a, b);
}
template <class F, class A, class B, class C, class... Rest>
auto linearize(const F& f, const A& a, const B& b, const C& c, const Rest&... rest) {
  return detail::linearize_at(f, a, b, c, rest...);
}

// Returns the transpose of f, which must be linear: a function from a cotangent (a tree like the result) to a tuple
// of trees, one per argument. Of the arguments only the types matter. Throws Error if f is not linear, and for
// arguments that are not floating.
template <class F, class A>
auto linear_transpose(const F& f, const A& a, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::transpose_of(f, a);
}
template <class F, class A, class B>
auto linear_transpose(const F& f, const A& a, const B& b, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::transpose_of(f, a, b);
}
template <class F, class A, class B, class C, class... Rest>
auto linear_transpose(const F& f, const A& a, const B& b, const C& c, const Rest&... rest) {
  return detail::transpose_of(f, a, b, c, rest...);
}

// Returns f with user-defined tangents. rule(primals, tangents) returns {result, tangent of the result}, where a
// function of several arguments has its primals and its tangents in std::tuples. The tangent must be linear in the
// tangents: grad transposes it. Captured arrays get no tangent. Throws Error when the results of the rule have the
// wrong types.
template <class F, class Rule>
auto custom_jvp(F f, Rule rule, SourceLine at = SourceLine::here()) {
  return detail::with_parameters_of<F>([f = std::move(f), rule = std::move(rule), at](const auto&... passed) {
    const detail::CallerLine line(at);
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          const auto primals = detail::together(args...);
          using Primals = std::decay_t<decltype(primals)>;
          using Derived = detail::ResultOf<Rule, Primals, Primals>;
          static_assert(detail::is_pair<Derived>, "custom_jvp: the rule must return a std::pair{result, tangent}");
          detail::ResultSlot<detail::ResultOf<F, std::decay_t<decltype(args)>...>> result;
          detail::ResultSlot<Derived> derived;
          const detail::Arrays results =
              detail::custom_jvp_flat({detail::TreeRef(args)...}, detail::on_arrays(result, f, args...),
                                      detail::on_arrays(derived, rule, primals, primals));
          return result.take(results.data());
        },
        passed...);
  });
}

}  // namespace lockstep
