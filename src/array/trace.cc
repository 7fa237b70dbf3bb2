#include "array/trace.h"

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "array/node.h"
#include "array/promote.h"
#include "base/check.h"
#include "ops/complex.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep::detail {
namespace {

thread_local std::vector<std::unique_ptr<Trace>> open_traces;

// The traces that are open on any thread.
class OpenTraceIds {
 public:
  void add(uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.insert(id);
  }
  void remove(uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.erase(id);
  }
  bool contains(uint64_t id) {
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<uint64_t> ids_;
};
OpenTraceIds& open_trace_ids() {
  static OpenTraceIds* const ids = new OpenTraceIds;  // used until the last thread ends
  return *ids;
}
thread_local bool recognition_enabled = true;

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Trace::Trace(const char* what) : what_(what), id_(next_id()) {}

Trace* Trace::current() { return open_traces.empty() ? nullptr : open_traces.back().get(); }

Trace* Trace::find(uint64_t id) {
  for (auto& trace : open_traces)
    if (trace->id() == id) return trace.get();
  return nullptr;
}

Value Trace::input(const Type& type) { return builder_.input(type); }

Value Trace::lift(const Array& array, DType literal_dtype) {
  if (!array.defined()) throw_error("{}: an operand is an empty Array; assign it before use", what_);
  const Node& node = *array.node();
  if (node.kind == Node::Kind::literal) {
    const Type type{literal_dtype, {}};
    const bool is_real = is_inexact(node.type->dtype);
    if (is_complex(literal_dtype) && node.type->dtype == DType::c64) {
      const Type part{real_of(literal_dtype), {}};
      const Value re = full(builder_, part, node.real);
      return complex(re, full(builder_, part, node.imaginary));
    }
    if (node.type->dtype == DType::c64 && node.imaginary != 0)
      throw_error("{}: the number {} + {}i is not a {}; use its real part, or a complex type", what_, node.real,
                  node.imaginary, name(literal_dtype));
    if (is_inexact(literal_dtype)) return full(builder_, type, is_real ? node.real : static_cast<double>(node.integer));
    return full(builder_, type,
                is_real ? checked_integer(what_, node.real, literal_dtype)
                        : checked_integer(what_, node.integer, literal_dtype));
  }
  if (node.kind == Node::Kind::traced) {
    if (node.trace == id_) return {&builder_, node.value};
    if (!find(node.trace)) throw_escaped(what_, node);
  } else {
    check_readable(array, what_);
  }
  const auto key = node.kind == Node::Kind::traced
                       ? std::pair<uint64_t, uint64_t>{node.trace, node.value}
                       : std::pair<uint64_t, uint64_t>{0, reinterpret_cast<uintptr_t>(&node)};
  auto [it, fresh] = captured_.try_emplace(key);
  if (fresh) {
    captures_.push_back(array);
    it->second = builder_.input(*node.type);
  }
  return it->second;
}

void Trace::throw_escaped(const char* wanted_by, const Node& node) {
  const Type& type = *node.type;
  if (open_trace_ids().contains(node.trace))
    throw_error(
        "{}: the array {} belongs to a function that another thread is tracing; use it on that thread, or return it "
        "from "
        "the function and share the result",
        wanted_by, to_string(type));
  throw_error(
      "{}: the array {} was created while another function was traced, and that trace has ended; return it from the "
      "function (as a result or as aux) instead of storing it in a variable outside",
      wanted_by, to_string(type));
}

Array Trace::wrap(Value v) { return traced(v.type(), id_, v.id()); }

Traced Trace::finish(std::span<const Array> outputs) {
  Values values;
  for (const Array& array : outputs) {
    if (!array.defined())
      throw_error("{}: result {} is an empty Array; assign it before returning it", what_, values.size());
    values.push_back(lift(array));
  }
  std::vector<NamedSharding> shardings;
  for (const Array& array : outputs) shardings.push_back(array.node()->sharding);
  return {std::make_shared<const Program>(builder_.take(values)), std::move(captures_), std::move(shardings)};
}

namespace {

void close_innermost_trace() {
  open_trace_ids().remove(open_traces.back()->id());
  open_traces.pop_back();
}

}  // namespace

Tracing::Tracing(const char* what) {
  open_traces.push_back(std::make_unique<Trace>(what));
  open_trace_ids().add(open_traces.back()->id());
}

Tracing::~Tracing() {
  if (open_) close_innermost_trace();
}

Array Tracing::input(const Type& type, const Array& argument) {
  Trace& trace = *Trace::current();
  const Value v = trace.input(type);
  return traced(v.type(), trace.id(), v.id(), is_number(argument));
}

Traced Tracing::finish(std::span<const Array> outputs) {
  Traced traced = Trace::current()->finish(outputs);
  close_innermost_trace();
  open_ = false;
  return traced;
}

bool tracing() { return !open_traces.empty(); }

RecognitionScope::RecognitionScope(bool enabled) : before_(recognition_enabled) { recognition_enabled = enabled; }
RecognitionScope::~RecognitionScope() { recognition_enabled = before_; }

ProgramPtr recognized(const Traced& traced) {
  if (!recognition_enabled) return traced.program;
  const size_t own = traced.program->inputs.size() - traced.captures.size();
  const auto contents = [&](size_t input) -> const void* {
    if (input < own) return nullptr;
    const Array& array = traced.captures[input - own];
    const Node& node = *array.node();
    if (node.kind != Node::Kind::concrete || node.pieces.divided) return nullptr;
    return buffer_of(array, "jit")->data();
  };
  return std::make_shared<const Program>(recognize(*traced.program, contents));
}

}  // namespace lockstep::detail
