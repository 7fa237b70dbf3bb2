#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "passes/free_early.h"
#include "passes/passes.h"
#include "program/effects.h"

namespace lockstep {
namespace {

uint64_t attr_hash(const Attrs& attrs) {
  // operator== compares attributes exactly; the hash may ignore some.
  Hasher h;
  for (const auto& [name, value] : attrs) {
    h.add(std::string_view(name));
    if (const auto* i = std::get_if<int64_t>(&value))
      h.add(static_cast<uint64_t>(*i));
    else if (const auto* x = std::get_if<double>(&value))
      h.add(std::bit_cast<uint64_t>(*x));
    else if (const auto* s = std::get_if<std::string>(&value))
      h.add(std::string_view(*s));
    else if (const auto* v = std::get_if<std::vector<int64_t>>(&value))
      for (int64_t k : *v) h.add(static_cast<uint64_t>(k));
  }
  return h.value();
}

struct SeenEqn {
  const Op* op;
  Attrs attrs;
  Values in;
  Values out;
};

// One round of folds and, with `merge`, common-subexpression elimination, front to back. Constants are always merged.
Program round(const Program& p, bool merge) {
  Builder b;
  Values map(p.types.size());
  for (ValueId id : p.inputs) map[id] = b.input(p.types[id]);
  std::unordered_multimap<uint64_t, SeenEqn> seen;
  for (const Eqn& eqn : p.eqns) {
    Values in;
    for (ValueId id : eqn.in) in.push_back(map[id]);
    if (eqn.op->fold && eqn.out.size() == 1) {
      if (Value v = eqn.op->fold({eqn.attrs, in, p.types[eqn.out[0]], b})) {
        map[eqn.out[0]] = v;
        continue;
      }
    }
    Hasher h;
    h.add(eqn.op->name);
    h.add(attr_hash(eqn.attrs));
    for (const Value& v : in) h.add(v.id());
    const uint64_t key = h.value();
    const Values* seen_out = nullptr;
    const bool ordered = is_ordered(eqn);
    for (auto [it, end] = seen.equal_range(key);
         it != end && !seen_out && !ordered && (merge || in.empty()); ++it)
      if (it->second.op == eqn.op && it->second.in == in && it->second.attrs == eqn.attrs) seen_out = &it->second.out;
    if (seen_out) {
      for (size_t k = 0; k < seen_out->size(); ++k) map[eqn.out[k]] = (*seen_out)[k];
      continue;
    }
    b.copy(p, eqn, map);
    Values out;
    for (ValueId id : eqn.out) out.push_back(map[id]);
    seen.emplace(key, SeenEqn{eqn.op, eqn.attrs, std::move(in), std::move(out)});
  }
  Values outputs;
  for (ValueId id : p.outputs) outputs.push_back(map[id]);
  return b.take(outputs);
}

}  // namespace

Program drop_dead(const Program& p) {
  std::vector<bool> live(p.types.size(), false);
  for (ValueId id : p.outputs) live[id] = true;
  std::vector<bool> keep(p.eqns.size(), false);
  for (size_t i = p.eqns.size(); i-- > 0;) {
    keep[i] = is_ordered(p.eqns[i]);
    for (ValueId id : p.eqns[i].out) keep[i] = keep[i] || live[id];
    if (keep[i])
      for (ValueId id : p.eqns[i].in) live[id] = true;
  }
  // Renumbers values, so that the types of dead ones are dropped too.
  Program out;
  std::vector<ValueId> number(p.types.size(), 0);
  auto define = [&](ValueId id) {
    number[id] = static_cast<ValueId>(out.types.size());
    out.types.push_back(p.types[id]);
    return number[id];
  };
  for (ValueId id : p.inputs) out.inputs.push_back(define(id));
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    if (!keep[i]) continue;
    Eqn eqn{p.eqns[i].op, p.eqns[i].attrs, {}, {}};
    for (ValueId id : p.eqns[i].in) eqn.in.push_back(number[id]);
    for (ValueId id : p.eqns[i].out) eqn.out.push_back(define(id));
    out.eqns.push_back(std::move(eqn));
  }
  for (ValueId id : p.outputs) out.outputs.push_back(number[id]);
  return out;
}

Program simplify(const Program& program, bool merge) {
  Program p = drop_dead(program);
  // Folds shrink programs, so a few rounds reach the fixed point; the limit only bounds the work.
  constexpr int kRounds = 8;
  for (int i = 0; i < kRounds; ++i) {
    Program next = drop_dead(round(p, merge));
    if (next == p) break;
    p = std::move(next);
  }
  return p;
}

Program inline_bodies(const Program& p, Inline when) {
  bool any = false;
  for (const Eqn& eqn : p.eqns) any |= eqn.op->inline_body == when;
  if (!any) return p;
  Builder b;
  Values map(p.types.size());
  for (ValueId id : p.inputs) map[id] = b.input(p.types[id]);
  for (const Eqn& eqn : p.eqns) {
    if (eqn.op->inline_body != when) {
      b.copy(p, eqn, map);
      continue;
    }
    Values in;
    for (ValueId id : eqn.in) in.push_back(map[id]);
    const Program body = inline_bodies(eqn.attrs.program("body"), Inline::early);
    const Values out = b.inline_program(when == Inline::late ? inline_bodies(simplify(body), when) : body, in);
    for (size_t k = 0; k < eqn.out.size(); ++k) map[eqn.out[k]] = out[k];
  }
  Values outputs;
  for (ValueId id : p.outputs) outputs.push_back(map[id]);
  return b.take(outputs);
}

namespace {

// Whether the program, or one nested in it, has an annotation that is not of the mesh `keep`.
bool has_annotations(const Program& p, std::string_view keep) {
  for (const Eqn& eqn : p.eqns) {
    if (eqn.op->annotation && eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs).mesh != keep) return true;
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value); body && has_annotations(**body, keep)) return true;
  }
  return false;
}

}  // namespace

Program drop_annotations(const Program& p, std::string_view keep) {
  if (!has_annotations(p, keep)) return p;
  Program out = p;
  out.eqns.clear();
  std::vector<ValueId> replacement(p.types.size());
  for (size_t id = 0; id < replacement.size(); ++id) replacement[id] = static_cast<ValueId>(id);
  for (Eqn eqn : p.eqns) {
    for (ValueId& id : eqn.in) id = replacement[id];
    if (eqn.op->annotation && eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs).mesh != keep) {
      replacement[eqn.out[0]] = eqn.in[0];
      continue;
    }
    Attrs attrs = eqn.attrs;
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value); body && has_annotations(**body, keep))
        attrs.set(name, std::make_shared<const Program>(drop_annotations(**body, keep)));
    eqn.attrs = std::move(attrs);
    out.eqns.push_back(std::move(eqn));
  }
  for (ValueId& id : out.outputs) id = replacement[id];
  return out;
}

Program checked(Program p) {
#ifndef NDEBUG
  check(p);
#endif
  return p;
}

Program lower(const Program& program, bool merge) {
  Program p = checked(inline_bodies(drop_annotations(checked(program)), Inline::early));
  p = checked(simplify(p, merge));
  const bool recomputes =
      std::any_of(p.eqns.begin(), p.eqns.end(), [](const Eqn& eqn) { return eqn.op->inline_body == Inline::late; });
  p = checked(fuse(checked(drop_dead(inline_bodies(p, Inline::late)))));
  return recomputes ? checked(free_early(p)) : p;
}

}  // namespace lockstep
