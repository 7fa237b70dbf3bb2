// Looking into compiled functions: printing, calling functions of the host, and checking values.
//
//   debug::print("loss {} after step {}", loss, step);
//   debug::print("x = {x}, y = {y}", {{"x", x}, {"y", y}});
//   debug::callback([&](const Array& g) { norms.push_back(g.item<float>()); }, gradient_norm);
//   Array y = pure_callback([](const Array& x) { return lookup(x); }, like, x);
//   check(all(isfinite(loss)), "the loss is {}", loss);
//
// All work inside and outside of jit, grad, vmap, scan, cond and shard_map. Under vmap they act for each example, in
// shard_map for each device, where values differ between devices. Prints, callbacks and checks are never dropped, and on one
// lane they act in program order. On a GPU their arrays are copied to the host, which waits for the GPU: use them for debugging, not in fast loops.
// A function of the host gets concrete arrays. It may read and create arrays but not compute with them. Safe to call from
// any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/detail/flat_call.h"
#include "lockstep/operand.h"
#include "lockstep/source_line.h"

namespace lockstep {

namespace detail {

// A function of the host on the arrays of its arguments. Compiled programs keep it.
using ArraysFunction = std::function<Arrays(const Arrays&)>;
void debug_print(std::string_view format, const std::vector<std::pair<std::string, Array>>& values);
// Functions of the same key, unless it is empty, are the same function: programs that differ in nothing else are equal.
void debug_callback(ArraysFunction f, const Arrays& args, const std::string& key);
Arrays pure_callback(ArraysFunction f, const std::vector<Type>& results, const Arrays& args, const std::string& key);

template <class F, class... Args>
inline constexpr char kHostFunctionTag = 0;

// The key of a function without state of its own whose arguments are arrays, else empty.
template <class F, class... Args>
std::string host_function_key([[maybe_unused]] const F& f) {
  if constexpr (!(std::is_base_of_v<Array, Args> && ...)) {
    return "";
  } else {
    const void* const tag = &kHostFunctionTag<F, Args...>;
    if constexpr (std::is_function_v<std::remove_pointer_t<F>>)
      return std::to_string(reinterpret_cast<uintptr_t>(tag)) + " " +
             std::to_string(reinterpret_cast<uintptr_t>(static_cast<const std::decay_t<F>>(f)));
    else
      return std::is_empty_v<F> ? std::to_string(reinterpret_cast<uintptr_t>(tag)) : "";
  }
}
void check_values(const Operand& condition, std::string_view message, const Arrays& values, const SourceLine& at);

}  // namespace detail

namespace debug {

// The format of a print, with the line of the call, which errors name.
struct PrintFormat {
  PrintFormat(const char* format, SourceLine line = SourceLine::here()) : text(format), at(line) {}         // NOLINT
  PrintFormat(std::string_view format, SourceLine line = SourceLine::here()) : text(format), at(line) {}    // NOLINT
  PrintFormat(const std::string& format, SourceLine line = SourceLine::here()) : text(format), at(line) {}  // NOLINT
  std::string_view text;
  SourceLine at;
};

// Prints a line on standard output when the values are computed. `{}` stands for the next value, `{2}` for value 2, and
// `{name}` for a named one; write {{ and }} for braces. Throws Error when the format and the values do not fit.
template <class... Values>
void print(const PrintFormat& format, const Values&... values) {
  const detail::CallerLine line(format.at);
  detail::debug_print(format.text, {std::pair<std::string, Array>("", values)...});
}
void print(const PrintFormat& format, const std::vector<std::pair<std::string, Array>>& named);

// Calls f with the values of the arguments, which are trees, when they are computed.
template <class F, class... Args>
void callback(const F& f, const Args&... args) {
  detail::debug_callback(
      [f, args...](const detail::Arrays& arrays) {
        const Array* next = arrays.data();
        const std::tuple<Args...> inputs{detail::replace_arrays(args, next)...};  // braces: in order
        std::apply(f, inputs);
        return detail::Arrays();
      },
      detail::flat_arguments(args...).arrays, detail::host_function_key<F, Args...>(f));
}

// Whether each call looks for NaN in its results, at the price of waiting for them. If there is one, the program is computed
// again, equation by equation, and the call throws Error with the first operation whose result has a NaN and its operands.
// Functions that are compiled while it is enabled donate nothing. LOCKSTEP_DEBUG_NANS=1 and --debug-nans enable it.
void check_nans(bool enabled = true);

}  // namespace debug

// The result of a function of the host: f(args...) returns a tree like `like`, of which only the structure and the types
// matter (zeros({3}), or what eval_shape() returns). f must depend on its arguments only: it may be called more or less often
// than written. When called, throws Error when a result has another type. It has no gradient: wrap it in custom_vjp.
template <class F, class T, class... Args>
T pure_callback(const F& f, const T& like, const Args&... args) {
  std::vector<Type> types;
  for (const Array& a : detail::flat_arguments(like).arrays) types.push_back(a.type());
  const detail::Arrays results = detail::pure_callback(
      [f, args...](const detail::Arrays& arrays) {
        const Array* next = arrays.data();
        const std::tuple<Args...> inputs{detail::replace_arrays(args, next)...};  // braces: in order
        return detail::flat_arguments(std::apply(f, inputs)).arrays;
      },
      types, detail::flat_arguments(args...).arrays, detail::host_function_key<F, Args...>(f));
  const Array* next = results.data();
  return detail::replace_arrays(like, next);
}

// Throws Error when an element of `condition` is zero: at once, or in compiled code at the end of the call, with the line
// of the check. `{}` in the message stands for the next value.
struct CheckMessage {
  CheckMessage(const char* format, SourceLine line = SourceLine::here()) : text(format), at(line) {}  // NOLINT
  CheckMessage(std::string format, SourceLine line = SourceLine::here())
      : text(std::move(format)), at(line) {}  // NOLINT
  std::string text;
  SourceLine at;
};
template <class... Values>
void check(const Operand& condition, const CheckMessage& message, const Values&... values) {
  detail::check_values(condition, message.text, {Array(values)...}, message.at);
}

}  // namespace lockstep
