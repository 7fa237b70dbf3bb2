#include "array/host_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "array/apply.h"
#include "array/node.h"
#include "base/check.h"
#include "base/os/environment.h"
#include "base/runtime_parts.h"
#include "lockstep/debug.h"
#include "ops/host_call.h"
#include "passes/passes.h"

namespace lockstep {
namespace detail {
namespace {

// A part of the runtime.
struct FailedChecks {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::vector<std::string> messages;
};

constexpr int kUnset = -1;
std::atomic<int> nans_enabled = kUnset;
thread_local bool searching = false;

struct SearchScope {
  SearchScope() { searching = true; }
  ~SearchScope() { searching = false; }
};

// The index of the first NaN; -1 if there is none.
int64_t first_nan(const Array& a) {
  if (!a.defined() || !is_floating(a.dtype()) || a.node()->kind == Node::Kind::donated || a.is_traced()) return -1;
  const std::vector<double> values = a.to_vector<double>();
  const auto at = std::find_if(values.begin(), values.end(), [](double x) { return std::isnan(x); });
  return at == values.end() ? -1 : at - values.begin();
}

std::string index_text(int64_t at, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; at /= shape[d]) index[d] = at % shape[d];
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string abbreviated(const Array& a) {
  constexpr size_t kMost = 120;
  const std::string text = a.to_string();
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

// The results of one equation.
Arrays computed(const Program& p, const Eqn& eqn, const Arrays& values) {
  Builder b;
  Values in;
  Arrays args;
  for (ValueId id : eqn.in) {
    in.push_back(b.input(p.types[id]));
    args.push_back(values[id]);
  }
  std::vector<Type> types;
  for (ValueId id : eqn.out) types.push_back(p.types[id]);
  const Values out = b.emit_typed(*eqn.op, in, eqn.attrs, types);
  return run_now(b.take(out), args);
}

[[noreturn]] void throw_nan(const Program& p, const Eqn& eqn, size_t result, int64_t at, const Arrays& values,
                            const Arrays& out) {
  const CallerLine line(eqn.at);
  std::string operands;
  bool had_nan = false;
  for (size_t i = 0; i < eqn.in.size(); ++i) {
    operands += fmt::format("{}{}", i ? ", " : "", abbreviated(values[eqn.in[i]]));
    had_nan |= first_nan(values[eqn.in[i]]) >= 0;
  }
  throw_error("{}: result {} at {} is NaN, computed from {}; {}", eqn.op->name, to_string(p.types[eqn.out[result]]),
              index_text(at, out[result].shape()), operands.empty() ? "no operands" : operands,
              had_nan ? "an operand has a NaN already: search for it in the arguments of the call"
                      : "check the range of the operands, for example with clip() or where()");
}

}  // namespace

void add_failed_check(const std::string& message) {
  FailedChecks& checks = runtime_part<FailedChecks>();
  const std::lock_guard lock(checks.mutex);
  if (std::find(checks.messages.begin(), checks.messages.end(), message) == checks.messages.end())
    checks.messages.push_back(message);
  checks.any = true;
}

void throw_failed_checks() {
  FailedChecks& checks = runtime_part<FailedChecks>();
  if (!checks.any.load(std::memory_order_relaxed)) return;
  constexpr size_t kMost = 5;
  const std::lock_guard lock(checks.mutex);
  std::string text;
  for (size_t i = 0; i < std::min(checks.messages.size(), kMost); ++i) text += (i ? "\n" : "") + checks.messages[i];
  if (checks.messages.size() > kMost) text += fmt::format("\n... and {} more", checks.messages.size() - kMost);
  checks.messages.clear();
  checks.any = false;
  throw Error(text);
}

bool checks_nans() {
  int enabled = nans_enabled.load(std::memory_order_relaxed);
  if (enabled == kUnset) {
    enabled = environment_variable("LOCKSTEP_DEBUG_NANS") == "1" ? 1 : 0;
    nans_enabled = enabled;
  }
  return enabled == 1 && !searching;
}

void check_nans(const Program& original, std::span<const Array> args, std::span<const Array> results) {
  if (std::none_of(results.begin(), results.end(), [](const Array& a) { return first_nan(a) >= 0; })) return;
  for (const Array& a : args)
    if (a.node()->kind == Node::Kind::donated)
      throw_error(
          "check_nans: a result has a NaN, but an argument of the call was donated, so it cannot be computed again; "
          "call "
          "debug::check_nans() before the function is compiled");
  const SearchScope scope;
  const Program p = without_effects(inline_bodies(inline_bodies(original, Inline::early), Inline::late));
  Arrays values(p.types.size());
  for (size_t i = 0; i < p.inputs.size(); ++i) values[p.inputs[i]] = args[i];
  for (const Eqn& eqn : p.eqns) {
    const Arrays out = computed(p, eqn, values);
    for (size_t k = 0; k < out.size(); ++k) {
      if (const int64_t at = first_nan(out[k]); at >= 0) throw_nan(p, eqn, k, at, values, out);
      values[eqn.out[k]] = out[k];
    }
  }
  throw_error(
      "check_nans: a result has a NaN that computing the program again, equation by equation, does not show; it may "
      "come "
      "from an argument that the function returns");
}

void check_outside_host_call(const char* what) {
  if (in_host_call())
    throw_error(
        "{}: a function of the host (debug::callback, pure_callback) computes with arrays; it may only read and create "
        "them: use data(), item() or to_vector(), and Array::from()",
        what);
}

}  // namespace detail

namespace debug {

void check_nans(bool enabled) { detail::nans_enabled = enabled ? 1 : 0; }

}  // namespace debug
}  // namespace lockstep
