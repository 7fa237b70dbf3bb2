// Control flow inside a compiled function: scan (a loop with a carry), fori_loop (a counted loop), cond and
// switch_case (a choice between computations). Loops with a condition are in loops.h.
//
//   auto [total, sums] = scan([](Array carry, Array x) { return std::pair{carry + x, carry + x}; }, Array(0.f), xs);
//   Array y = cond(x > 0, [](Array x) { return x; }, [](Array x) { return -x; }, x);
//
// Bodies are traced once. All functions may be nested, differentiated, and called from any thread.
#pragma once

#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/operand.h"
#include "lockstep/source_line.h"

namespace lockstep {

struct ScanOptions {
  int64_t length = -1;   // number of iterations; required without xs
  bool reverse = false;  // iterate from the last x to the first
  int64_t unroll = 1;    // iterations in each round of the compiled loop; at least the length: no loop
};

// Stands for missing xs: scan(f, init, Nothing{}, {.length = n}). Then f's second argument is a Nothing.
struct Nothing {};

namespace detail {

// Returns the number of iterations. Throws Error unless all xs have a leading axis of one length, or `length`
// is given, and unless `unroll` is positive.
int64_t scan_length(std::span<const Array> xs, const ScanOptions& options);
Arrays unrolled_scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length,
                     const ScanOptions& options);
Type element_type(const Operand& xs);
// Unify the types of a carry before and after an iteration, and of the results of all branches. Numbers take
// the other side's element type; a value that varies on one side varies in the result. Throw Error where the
// types still differ; `what` is the function called.
std::vector<Type> carry_types(const char* what, std::span<const Array> init, std::span<const Array> carry);
std::vector<Type> branch_types(const char* what, std::span<const Arrays> results);
bool have_types(std::span<const Array>, std::span<const Type>);
// Converts an array to a type.
Array widened(const Array&, const Type&);
void check_predicate(const Array&);
// Throws Error unless the index is an integer scalar; returns it as i32.
Array branch_index(const Operand& index, size_t branches);
// All branches map the operands, and their own captures, to results of the same types.
Arrays switch_case(const Operand& index, std::span<const Traced> branches, std::span<const Array> operands);

// Calls f with each function of a tuple, pair, vector or array.
template <class Branches, class F>
void for_each_branch(const Branches& branches, const F& f) {
  if constexpr (is_tuple<Branches>) {
    std::apply([&](const auto&... each) { (f(each), ...); }, branches);
  } else {
    for (const auto& each : branches) f(each);
  }
}
template <class Branches>
auto first_branch_of(const Branches& branches) {
  if constexpr (is_tuple<Branches>)
    return std::get<0>(branches);
  else
    return *std::begin(branches);
}
template <class Branches>
using FirstBranch = std::decay_t<decltype(first_branch_of(std::declval<const Branches&>()))>;

// scan() of functions of arrays, and choices between them, by an index or (cond) a predicate.
Arrays scan_flat(TreeRef init, TreeRef xs, const FlatFunction& f, const ScanOptions& options);
Arrays branches_flat(const char* what, bool by_index, const Array& choice, std::span<const FlatFunction> branches,
                     TreeRefs operands);

// Runs one of the branches on the operands, chosen by a predicate (cond) or an index (switch_case).
template <class Branches, class... Args>
auto run_branches(const char* what, bool by_index, const Array& choice, const Branches& branches,
                  const Args&... operands) {
  using Result = ResultOf<FirstBranch<Branches>, Args...>;
  if constexpr (is_tuple<Branches>) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      static_assert(
          (std::is_same_v<ResultOf<std::remove_cvref_t<std::tuple_element_t<I, Branches>>, Args...>, Result> && ...),
          "cond, switch_case: the branches return different types");
      ResultSlot<Result> results[sizeof...(I)];
      const std::tuple functions{on_arrays(results[I], std::get<I>(branches), operands...)...};
      const FlatFunction list[] = {FlatFunction(std::get<I>(functions))...};
      const Arrays made = branches_flat(what, by_index, choice, list, {TreeRef(operands)...});
      return results[0].take(made.data());
    }
    (std::make_index_sequence<std::tuple_size_v<Branches>>{});
  } else {
    using Function = decltype(on_arrays(std::declval<ResultSlot<Result>&>(), *std::begin(branches), operands...));
    const size_t n = static_cast<size_t>(std::end(branches) - std::begin(branches));
    std::vector<ResultSlot<Result>> results(n);
    std::vector<Function> functions;
    std::vector<FlatFunction> list;
    functions.reserve(n);
    for (const auto& each : branches) {
      functions.push_back(on_arrays(results[functions.size()], each, operands...));
      list.emplace_back(functions.back());
    }
    const Arrays made = branches_flat(what, by_index, choice, list, {TreeRef(operands)...});
    return results[0].take(made.data());
  }
}

}  // namespace detail

// Calls f(carry, x) -> {carry, y} for each x along the leading axis of the arrays of `stacked`. Returns {last
// carry, all y stacked along a leading axis}. Throws Error when f changes the carry's structure or types, or
// a static value in it.
template <class F, class C, class X>
auto scan(const F& f, const C& first, const X& stacked, ScanOptions options = {}, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::with_parameters<F>(
      [&]<class Carry, class Xs>(const Carry& init, const Xs& xs) {
        using Result = detail::ResultOf<F, Carry, Xs>;
        static_assert(detail::is_pair<Result>, "scan: the body must return a std::pair{carry, y}");
        detail::ResultSlot<Result> result;  // {carry, y}
        const detail::Arrays results = detail::scan_flat(init, xs, detail::on_arrays(result, f, init, xs), options);
        return result.take(results.data());
      },
      first, stacked);
}

// Computes carry = f(i, carry) for i in [lower, upper) and returns the last carry. i is an Array: i32, or i64
// if a bound needs it.
template <class F, class C>
auto fori_loop(int64_t lower, int64_t upper, const F& f, const C& first, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::with_parameters<F>(
      [&]<class Index, class Carry>(const Index&, const Carry& init) {
        const auto body = [&f](const Carry& carry, const Array& i) { return std::pair{f(i, carry), Nothing{}}; };
        return scan(body, init, arange(lower, upper)).first;
      },
      Array(lower), first);
}

// Computes if_true(operands...) or if_false(operands...). Both must return trees of the same structure and
// types. Only the chosen branch runs, except where the predicate varies over devices: then both run. Throws
// Error unless `predicate` is a bool scalar.
template <class T, class E, class... Args>
auto cond(const Operand& predicate, const T& if_true, const E& if_false, const Args&... passed) {
  return detail::with_parameters<T>(
      [&](const auto&... operands) {
        static_assert(std::is_same_v<detail::ResultOf<T, std::decay_t<decltype(operands)>...>,
                                     detail::ResultOf<E, std::decay_t<decltype(operands)>...>>,
                      "cond, switch_case: the branches return different types");
        detail::check_predicate(predicate);
        return detail::run_branches("cond", false, predicate, std::tuple<const T&, const E&>(if_true, if_false),
                                    operands...);
      },
      passed...);
}

// Computes branches[index](operands...). `branches` is a tuple, vector or array of functions, which must return trees
// of the same structure and types. The index, an integer scalar, is clamped to the range of branches. Only the chosen
// branch runs, except where the index varies over devices or examples: then all run. Throws Error for any other index.
template <class Branches, class... Args>
auto switch_case(const Operand& index, const Branches& branches, const Args&... passed) {
  return detail::with_parameters<detail::FirstBranch<Branches>>(
      [&](const auto&... operands) { return detail::run_branches("switch_case", true, index, branches, operands...); },
      passed...);
}

}  // namespace lockstep
