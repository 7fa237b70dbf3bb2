// Jacobians and Hessians.
//
//   Array j = jacfwd(f)(x);                                   // [m, n] for f from [n] to [m]
//   auto [jx, jy] = jacrev<0, 1>(g)(x, y);                    // with respect to several arguments
//   Array h = hessian(loss)(w);                               // [n, n] for w of [n]
//
// With `has_aux` as the last argument the function returns a std::pair of its result and anything else (aux), and
// the new function {derivatives, aux}. All functions nest with each other, with grad, jvp, jit, vmap, scan and
// shard_map, and may be called from any thread.
#pragma once

#include "lockstep/forward.h"

namespace lockstep {
namespace detail {

// Maps inputs to all outputs, then, for each of the first `outputs` and each wanted input, to the derivatives, of the
// output's shape followed by the input's. Throws Error for one of these outputs that is not floating.
enum class JacobianMode : uint8_t { forward, reverse };
ProgramPtr jacobian_program(const Traced&, std::vector<bool> wanted, size_t outputs, JacobianMode);

// Its results. The derivatives of each of the `outputs` outputs have `inputs` arrays.
struct JacobianResults {
  Gradients results;  // with the derivatives of the first output
  size_t outputs, inputs;
};
JacobianResults jacobian_flat(const char* what, TreeRefs args, Positions positions, const FlatFunction& f,
                              bool with_aux, JacobianMode mode);

// A tree like `result` with a tree in place of each array, from `next` on, which it advances. The arrays of a plain
// struct, whose fields are arrays, become a std::vector of trees instead.
template <class Tree, class R>
auto with_trees(const R& result, const Tree*& next) {
  if constexpr (std::is_same_v<R, Array>) {
    return Tree(*next++);
  } else if constexpr (is_static_value<R>) {
    return result;
  } else if constexpr (is_tuple<R>) {
    return std::apply(
        [&](const auto&... each) {
          if constexpr (is_pair<R>)
            return std::pair{with_trees(each, next)...};
          else
            return std::tuple<decltype(with_trees(each, next))...>{with_trees(each, next)...};
        },
        result);
  } else if constexpr (is_vector<R> || is_std_array<R>) {
    std::vector<decltype(with_trees(*result.begin(), next))> out;
    for (const auto& each : result) out.push_back(with_trees(each, next));
    return out;
  } else if constexpr (is_map<R>) {
    std::map<typename R::key_type, decltype(with_trees(result.begin()->second, next))> out;
    for (const auto& [key, each] : result) out.emplace(key, with_trees(each, next));
    return out;
  } else {
    std::vector<Tree> out;
    for_each_array(result, [&](const Array&) { out.push_back(*next++); });
    return out;
  }
}

template <JacobianMode mode, bool with_aux, size_t... I, class F>
auto jacobian(const char* what, F f, SourceLine at) {
  return with_parameters_of<F>([what, f = std::move(f), at](const auto&... passed) {
    const CallerLine line(at);
    static_assert(((I < sizeof...(passed)) && ...), "jacfwd, jacrev: the argument position is out of range");
    return with_parameters<F>(
        [&f, what](const auto&... args) {
          ResultSlot<ResultOf<F, std::decay_t<decltype(args)>...>> slot;
          const JacobianResults all =
              jacobian_flat(what, {TreeRef(args)...}, {I...}, on_arrays(slot, f, args...), with_aux, mode);
          const Array* next = all.results.outputs();
          const auto value = slot.take_and_advance(next);
          const auto& result = without_aux<with_aux>(value);
          const auto derivatives_of = [&](size_t output) {
            return gradients_like<I...>([&](size_t i) { return all.results.of(i) + output * all.inputs; }, args...);
          };
          using Tree = decltype(derivatives_of(0));
          const auto derivatives = [&] {
            if constexpr (std::is_same_v<Tree, Array>) {
              return replace_arrays(result, next);
            } else {
              std::vector<Tree> trees;
              for (size_t k = 0; k < all.outputs; ++k) trees.push_back(derivatives_of(k));
              const Tree* tree = trees.data();
              return with_trees(result, tree);
            }
          };
          if constexpr (with_aux)
            return std::pair{derivatives(), value.second};
          else
            return derivatives();
        },
        passed...);
  });
}

// At the positions I..., by default 0.
template <JacobianMode mode, bool with_aux, size_t... I, class F>
auto jacobian_of(F f, SourceLine at) {
  constexpr const char* what = mode == JacobianMode::forward ? "jacfwd" : "jacrev";
  if constexpr (sizeof...(I) == 0)
    return jacobian<mode, with_aux, 0>(what, std::move(f), at);
  else
    return jacobian<mode, with_aux, I...>(what, std::move(f), at);
}

}  // namespace detail

// Returns a function of the same arguments that returns the Jacobian with respect to the arguments at positions
// I... (default: 0), computed column by column (jacfwd: for more results than arguments) or row by row (jacrev).
// For arrays it has the shape of the result followed by that of the argument. For trees it is a tree like the
// result with trees like the arguments (a tuple for several positions) in place of arrays; a result that is a plain
// struct with arrays becomes a std::vector of them. With has_aux the function returns {Jacobian, aux}. Throws Error
// for results that are not floating.
template <size_t... I, class F>
auto jacfwd(F f, SourceLine at = SourceLine::here()) {
  return detail::jacobian_of<detail::JacobianMode::forward, false, I...>(std::move(f), at);
}
template <size_t... I, class F>
auto jacfwd(F f, HasAux, SourceLine at = SourceLine::here()) {
  return detail::jacobian_of<detail::JacobianMode::forward, true, I...>(std::move(f), at);
}
template <size_t... I, class F>
auto jacrev(F f, SourceLine at = SourceLine::here()) {
  return detail::jacobian_of<detail::JacobianMode::reverse, false, I...>(std::move(f), at);
}
template <size_t... I, class F>
auto jacrev(F f, HasAux, SourceLine at = SourceLine::here()) {
  return detail::jacobian_of<detail::JacobianMode::reverse, true, I...>(std::move(f), at);
}

// Returns a function of the same arguments that returns the second derivatives: jacfwd of jacrev.
template <size_t... I, class F>
auto hessian(F f, SourceLine at = SourceLine::here()) {
  return jacfwd<I...>(jacrev<I...>(std::move(f), at), at);
}
template <size_t... I, class F>
auto hessian(F f, HasAux aux, SourceLine at = SourceLine::here()) {
  return jacfwd<I...>(jacrev<I...>(std::move(f), aux, at), aux, at);
}

}  // namespace lockstep
