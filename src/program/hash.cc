#include "base/hash.h"

#include <cmath>
#include <limits>

#include "program/host_function.h"
#include "program/op.h"

namespace lockstep {
namespace {

void add_type(Hasher& h, const Type& t) {
  h.add(static_cast<uint64_t>(t.dtype) << 32 | t.shape.size());
  for (int64_t d : t.shape) h.add(static_cast<uint64_t>(d));
  for (const std::string& axis : t.varying) h.add(std::string_view(axis));
}

void add_program(Hasher& h, const Program& p);

void add_attr(Hasher& h, const Attr& attr) {
  struct Visitor {
    Hasher& h;
    void operator()(bool b) const { h.add(static_cast<uint64_t>(b)); }
    void operator()(int64_t i) const { h.add(static_cast<uint64_t>(i)); }
    void operator()(double x) const {
      // Every NaN prints alike, and machines differ in the NaN that arithmetic produces.
      h.add(std::bit_cast<uint64_t>(std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x));
    }
    void operator()(const std::string& s) const { h.add(std::string_view(s)); }
    void operator()(DType t) const { h.add(static_cast<uint64_t>(t)); }
    void operator()(const std::vector<int64_t>& v) const {
      h.add(v.size());
      for (int64_t i : v) h.add(static_cast<uint64_t>(i));
    }
    void operator()(const ProgramPtr& p) const { add_program(h, *p); }
    void operator()(const HostFunctionPtr& f) const { h.add(static_cast<uint64_t>(f->number())); }
  };
  h.add(attr.index());
  std::visit(Visitor{h}, attr);
}

void add_program(Hasher& h, const Program& p) {
  // Values are hashed by their order of definition: the numbering does not matter.
  std::vector<uint64_t> number(p.types.size(), 0);
  uint64_t next = 0;
  h.add(p.inputs.size());
  for (ValueId id : p.inputs) {
    number[id] = next++;
    add_type(h, p.types[id]);
  }
  h.add(p.eqns.size());
  for (const Eqn& eqn : p.eqns) {
    h.add(eqn.op->name);
    for (const auto& [name, value] : eqn.attrs) {
      h.add(std::string_view(name));
      add_attr(h, value);
    }
    for (ValueId id : eqn.in) h.add(number[id]);
    for (ValueId id : eqn.out) {
      number[id] = next++;
      add_type(h, p.types[id]);
    }
  }
  for (ValueId id : p.outputs) h.add(number[id]);
}

}  // namespace

uint64_t hash(const Program& p) {
  Hasher h;
  add_program(h, p);
  return h.value();
}

}  // namespace lockstep
