#include "export/c_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "export/c_ops.h"
#include "export/export_row.h"

namespace lockstep {
namespace {

bool is_alias(const Eqn& eqn) { return export_row(*eqn.op).c == c_alias; }

}  // namespace

std::string_view c_type(DType dtype) {
  if (dtype == f32) return "float";
  if (is_floating(dtype)) throw_error("export: the model computes in {}, which C code is not written for", name(dtype));
  return "int";
}

std::string c_literal(float value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "-INFINITY";
  if (value == std::round(value) && std::abs(value) < 1e6f) return fmt::format("{:.1f}f", value);
  return fmt::format("{:a}f", value);
}

CEmitter::CEmitter(const Program& program)
    : program_(program),
      values_(program.types.size()),
      owners_(program.types.size()),
      last_use_(program.types.size(), 0),
      blocks_(program.types.size()) {
  std::iota(owners_.begin(), owners_.end(), ValueId{0});
  for (size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& eqn = program.eqns[i];
    if (is_alias(eqn)) owners_[eqn.out[0]] = owners_[eqn.in[0]];
    for (const ValueId id : eqn.in) last_use_[owners_[id]] = i;
    for (const ValueId id : eqn.out) last_use_[owners_[id]] = std::max(last_use_[owners_[id]], i);
  }
  for (const ValueId id : program.outputs) last_use_[owners_[id]] = program.eqns.size();
}

void CEmitter::fail(const std::string& reason) const {
  throw_error("export: the op {} {} cannot be written as C++: {}; use --format onnx", eqn_->op->name,
              to_string(out_type()), reason);
}

int64_t CEmitter::Memory::take(int64_t count) {
  for (auto& [begin, space] : free) {
    if (space < count) continue;
    const int64_t out = begin;
    begin += count, space -= count;
    return out;
  }
  size += count;
  return size - count;
}

std::string CEmitter::declare(ValueId value) {
  const Type& type = program_.types[value];
  const std::string_view element = c_type(type.dtype);
  Memory& memory = type.dtype == f32 ? floats_ : ints_;
  const int64_t size = std::max<int64_t>(count(type.shape), 1);
  blocks_[value] = {&memory, memory.take(size), size};
  values_[value] = {fmt::format("v{}", value), false};
  line(fmt::format("{0}* const v{1} = {0}s.data() + {2};  // {3}", element, value, blocks_[value].begin,
                   to_string(type)));
  return values_[value].text;
}

std::string CEmitter::array(ValueId value) {
  Named& named = values_[value];
  if (!named.is_literal) return named.text;
  const std::string literal = named.text;
  const std::string out = declare(value);
  line(fmt::format("for (int i = 0; i < {}; ++i) {}[i] = {};", count(program_.types[value].shape), out, literal));
  // An array of a literal may be the operand of later equations, too; it is rare, and is kept.
  last_use_[value] = program_.eqns.size();
  return out;
}

std::string CEmitter::element(size_t i, std::string_view index) const {
  const Named& named = values_[eqn_->in[i]];
  return named.is_literal ? named.text : fmt::format("{}[{}]", named.text, index);
}

void CEmitter::emit(size_t index) {
  eqn_ = &program_.eqns[index];
  const ExportRow& row = export_row(*eqn_->op);
  if (row.c) {
    row.c(*this);
  } else if (row.c_expression) {
    c_elementwise(*this, row.c_expression);
  } else {
    fail("it has no code for it");
  }
  release_after(index);
}

void CEmitter::release_after(size_t index) {
  for (size_t v = 0; v < blocks_.size(); ++v)
    if (blocks_[v].memory && last_use_[v] == index) {
      blocks_[v].memory->free.emplace_back(blocks_[v].begin, blocks_[v].size);
      blocks_[v].memory = nullptr;
    }
}

}  // namespace lockstep
