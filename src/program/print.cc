#include <fmt/ranges.h>

#include <cmath>

#include "program/host_function.h"
#include "program/text_parser.h"

namespace lockstep {
namespace {

// Prints a double so that parse() reads the same bits and does not take it for an integer.
std::string real(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", x);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

void print_program(const Program& p, const std::string& indent, std::string& out);

void print_attr(const Attr& attr, const std::string& indent, std::string& out) {
  struct Visitor {
    const std::string& indent;
    std::string& out;
    void operator()(bool b) const { out += b ? "true" : "false"; }
    void operator()(int64_t i) const { out += fmt::format("{}", i); }
    void operator()(double x) const { out += real(x); }
    void operator()(const std::string& s) const { out += quoted(s); }
    void operator()(DType t) const { out += name(t); }
    void operator()(const std::vector<int64_t>& v) const { out += fmt::format("[{}]", fmt::join(v, ",")); }
    void operator()(const ProgramPtr& p) const { print_program(*p, indent + "  ", out); }
    void operator()(const HostFunctionPtr& f) const { out += fmt::format("host({})", f->number()); }
  };
  std::visit(Visitor{indent, out}, attr);
}

void print_program(const Program& p, const std::string& indent, std::string& out) {
  std::vector<int> number(p.types.size(), -1);
  int next = 0;
  auto define = [&](ValueId id) {
    number[id] = next++;
    out += fmt::format("%{}:{}", number[id], to_string(p.types[id]));
  };
  out += "program(";
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    if (i) out += ", ";
    define(p.inputs[i]);
  }
  out += ") {\n";
  for (const Eqn& eqn : p.eqns) {
    out += indent + "  ";
    for (size_t i = 0; i < eqn.out.size(); ++i) {
      if (i) out += ", ";
      define(eqn.out[i]);
    }
    if (!eqn.out.empty()) out += " = ";
    out += print_op(*eqn.op, eqn.attrs, indent + "  ");
    for (ValueId id : eqn.in) out += fmt::format(" %{}", number[id]);
    out += '\n';
  }
  out += indent + "  return";
  for (ValueId id : p.outputs) out += fmt::format(" %{}", number[id]);
  out += '\n' + indent + '}';
}

}  // namespace

std::string print_op(const Op& op, const Attrs& attrs, const std::string& indent) {
  std::string out(op.name);
  if (attrs.empty()) return out;
  out += '[';
  bool first = true;
  for (const auto& [key, value] : attrs) {
    if (!first) out += ", ";
    first = false;
    out += key + '=';
    print_attr(value, indent, out);
  }
  return out + ']';
}

std::string print(const Program& p) {
  std::string out;
  print_program(p, "", out);
  out += '\n';
  return out;
}

}  // namespace lockstep
