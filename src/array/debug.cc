#include "lockstep/debug.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "array/apply.h"
#include "array/host_checks.h"
#include "base/check.h"
#include "ops/host_call.h"

namespace lockstep {
namespace detail {
namespace {

using Named = std::vector<std::pair<std::string, Array>>;

// A format: text, then the number of a value and how it is printed, and so on.
struct Format {
  struct Field {
    std::string before;
    size_t value;
    std::string spec;  // ":.3f" of a scalar; may be empty
  };
  std::vector<Field> fields;
  std::string rest;
};

[[noreturn]] void throw_format(const char* what, std::string_view text, const std::string& why) {
  throw_error("{}: the format \"{}\" {}", what, text, why);
}

// The number of the value that a field's text names: "", "2" or "x".
size_t value_of_field(const char* what, std::string_view text, const std::string& field, size_t& next,
                      const std::vector<std::string>& names) {
  if (field.empty()) {
    if (next >= names.size())
      throw_format(what, text,
                   fmt::format("has more fields {{}} than the {} values; pass a value for each", names.size()));
    return next++;
  }
  if (std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    const size_t at = field.size() < 6 ? std::stoul(field) : names.size();
    if (at >= names.size())
      throw_format(what, text,
                   fmt::format("names value {}, but there are {}; values count from 0", field, names.size()));
    return at;
  }
  const auto at = std::find(names.begin(), names.end(), field);
  if (at == names.end())
    throw_format(what, text,
                 fmt::format("names \"{}\", which is not among the values; pass {{\"{}\", value}}", field, field));
  return static_cast<size_t>(at - names.begin());
}

Format parse_format(const char* what, std::string_view text, const std::vector<std::string>& names) {
  Format out;
  std::string before;
  size_t next = 0;
  std::vector<bool> used(names.size(), false);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] == '{' || text[i] == '}') && doubled) {
      before += text[i++];
    } else if (text[i] == '}') {
      throw_format(what, text, "has a } without {; write }} for a brace");
    } else if (text[i] != '{') {
      before += text[i];
    } else {
      const size_t end = text.find('}', i);
      if (end == text.npos) throw_format(what, text, "has a { without }; write {{ for a brace");
      const std::string field(text.substr(i + 1, end - i - 1));
      const size_t colon = std::min(field.find(':'), field.size());
      const size_t value = value_of_field(what, text, field.substr(0, colon), next, names);
      used[value] = true;
      out.fields.push_back({std::move(before), value, field.substr(colon)});
      before.clear();
      i = end;
    }
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      throw_format(what, text,
                   fmt::format("does not use value {}{}; add a field {{}} for it", i,
                               names[i].empty() ? "" : ", \"" + names[i] + "\""));
  out.rest = std::move(before);
  return out;
}

// A scalar prints as a number, any other array as Array::to_string() does.
std::string value_text(const Array& a, const std::string& spec) {
  if (a.rank() != 0) return a.to_string();
  if (!spec.empty()) {
    try {
      if (is_floating(a.dtype())) return fmt::format(fmt::runtime("{" + spec + "}"), a.item<double>());
      return fmt::format(fmt::runtime("{" + spec + "}"), a.item<int64_t>());
    } catch (const fmt::format_error&) {
      return a.to_string();
    }
  }
  const std::string text = a.to_string();
  const size_t space = text.find(' ');
  return space == text.npos ? text : text.substr(space + 1);
}

std::string formatted(const Format& format, const Arrays& values) {
  std::string out;
  for (const Format::Field& field : format.fields) out += field.before + value_text(values[field.value], field.spec);
  return out + format.rest;
}

std::vector<std::string> names_of(const Named& values) {
  std::vector<std::string> out;
  for (const auto& [name, value] : values) out.push_back(name);
  return out;
}

void print_line(const std::string& line) {
  const std::string text = line + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Concrete arrays with copies of the operands.
Arrays to_arrays(Types types, const void* const* operands) {
  Arrays out;
  for (size_t i = 0; i < types.size(); ++i) out.push_back(from_bytes(operands[i], {types[i].dtype, types[i].shape}));
  return out;
}

bool any_traced(const Arrays& args) {
  return tracing() ||
         std::any_of(args.begin(), args.end(), [](const Array& a) { return a.defined() && a.is_traced(); });
}

void emit_callback(const char* what, const Arrays& args, const HostFunctionPtr& function, const std::string& text,
                   Effect effect) {
  apply(what, args, {}, [&](Builder& b, const Values& v) {
    debug_callback(b, v, function, text, effect);
    return Values{};
  });
}

bool all_nonzero(const Array& condition) {
  const std::vector<double> values = condition.to_vector<double>();
  return std::all_of(values.begin(), values.end(), [](double x) { return x != 0; });
}

// Throws Error unless the results of a function have these types.
void check_results(const Arrays& results, Types types) {
  if (results.size() != types.size())
    throw_error(
        "pure_callback: the function returned {} arrays and `like` has {}; they must be trees of the same structure",
        results.size(), types.size());
  for (size_t k = 0; k < types.size(); ++k) {
    const Array a = is_number(results[k]) ? Array() : results[k];
    if (!a.defined() || a.shape() != types[k].shape || a.dtype() != types[k].dtype)
      throw_error("pure_callback: result {} of the function is {}, but `like` has {}; return that type", k,
                  to_string(results[k].type()), to_string(types[k]));
  }
}

// The same elements in host memory, as an array of its own.
Array on_host(const Array& a) { return concrete(intern(a.type()), buffer_of(a, "pure_callback")); }

// Whether a function of the host can be called without a program: nothing is traced, and no array has a sharding, which
// the results would inherit. The search for NaN needs the program.
bool can_call_now(const Arrays& args) {
  return !any_traced(args) && !checks_nans() && std::none_of(args.begin(), args.end(), [](const Array& a) {
    return !a.defined() || a.node()->sharding.defined();
  });
}

Arrays call_now(const ArraysFunction& f, Types types, const Arrays& args) {
  check_outside_host_call("call");
  Arrays operands, out;
  for (const Array& a : args) operands.push_back(on_host(a));
  const HostCallScope scope;
  const Arrays results = f(operands);
  check_results(results, types);
  for (const Array& a : results) out.push_back(on_host(a));
  return out;
}

}  // namespace

void debug_print(std::string_view text, const Named& values) {
  const Format format = parse_format("debug::print", text, names_of(values));
  Arrays args;
  for (const auto& [name, value] : values) args.push_back(value);
  if (!any_traced(args)) return print_line(formatted(format, args));
  std::string key = "print " + std::string(text);
  for (const auto& [name, value] : values) key += "\n" + name;
  const auto call = [format](Types in, const void* const* operands, Types, void* const*) {
    print_line(formatted(format, to_arrays(in, operands)));
  };
  emit_callback("debug::print", args, HostFunction::make(call, key), std::string(text), Effect::once);
}

void debug_callback(ArraysFunction f, const Arrays& args, const std::string& key) {
  if (!any_traced(args)) {
    f(args);
    return;
  }
  const auto call = [f = std::move(f)](Types in, const void* const* operands, Types, void* const*) {
    f(to_arrays(in, operands));
  };
  emit_callback("debug::callback", args, HostFunction::make(call, key.empty() ? key : "callback " + key), "",
                Effect::once);
}

Arrays pure_callback(ArraysFunction f, const std::vector<Type>& results, const Arrays& args, const std::string& key) {
  if (can_call_now(args)) return call_now(f, results, args);
  const auto call = [f = std::move(f)](Types in, const void* const* operands, Types out, void* const* to) {
    const Arrays arrays = f(to_arrays(in, operands));
    check_results(arrays, out);
    for (size_t k = 0; k < out.size(); ++k)
      std::copy_n(buffer_of(arrays[k], "pure_callback")->data(), out[k].bytes(), static_cast<std::byte*>(to[k]));
  };
  const HostFunctionPtr function = HostFunction::make(call, key.empty() ? key : "pure " + key);
  return apply("pure_callback", args, {},
               [&](Builder& b, const Values& v) { return lockstep::pure_callback(b, v, function, results); });
}

void check_values(const Operand& condition, std::string_view message, const Arrays& values, const SourceLine& at) {
  const Format format = parse_format("check", message, std::vector<std::string>(values.size()));
  const std::string where = fmt::format("check at {}: ", to_string(at));
  Arrays args = values;
  args.push_back(condition);
  if (!any_traced(args)) {
    if (!all_nonzero(condition)) throw Error(where + formatted(format, args));
    return;
  }
  const auto call = [format, where](Types in, const void* const* operands, Types, void* const*) {
    const Arrays arrays = to_arrays(in, operands);
    if (!all_nonzero(arrays.back())) add_failed_check(where + formatted(format, arrays));
  };
  const HostFunctionPtr function = HostFunction::make(call, fmt::format("check {} {}", where, message));
  emit_callback("check", args, function, std::string(message), Effect::everywhere);
}

}  // namespace detail

namespace debug {

void print(const PrintFormat& format, const std::vector<std::pair<std::string, Array>>& named) {
  const detail::CallerLine line(format.at);
  detail::debug_print(format.text, named);
}

}  // namespace debug
}  // namespace lockstep
