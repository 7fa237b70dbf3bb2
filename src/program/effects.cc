#include "program/effects.h"

#include <algorithm>

namespace lockstep {
namespace {

const int64_t* effect_of(const Attrs& attrs) {
  const Attr* value = attrs.find("effect");
  return value ? std::get_if<int64_t>(value) : nullptr;
}

bool has_effect(const Program& p) {
  return std::any_of(p.eqns.begin(), p.eqns.end(), [](const Eqn& eqn) { return has_effect(eqn); });
}

}  // namespace

bool has_effect(const Eqn& eqn) {
  if (const int64_t* effect = effect_of(eqn.attrs)) return *effect != static_cast<int64_t>(Effect::none);
  return std::any_of(eqn.attrs.begin(), eqn.attrs.end(), [](const Attrs::Entry& entry) {
    const auto* body = std::get_if<ProgramPtr>(&entry.second);
    return body && has_effect(**body);
  });
}

namespace {

// `all`: without any effects.
Attrs silenced(const Attrs& attrs, bool all) {
  Attrs out = attrs;
  const int64_t* effect = effect_of(attrs);
  if (effect && (all || *effect == static_cast<int64_t>(Effect::once)))
    out.set("effect", static_cast<int64_t>(Effect::none));
  for (const auto& [name, value] : attrs) {
    const auto* body = std::get_if<ProgramPtr>(&value);
    if (!body || !has_effect(**body)) continue;
    Program silent = **body;
    for (Eqn& eqn : silent.eqns) eqn.attrs = silenced(eqn.attrs, all);
    out.set(name, std::make_shared<const Program>(std::move(silent)));
  }
  return out;
}

}  // namespace

Attrs without_repeated_effects(const Attrs& attrs) { return silenced(attrs, false); }

Program without_effects(const Program& program) {
  Program out = program;
  if (has_effect(program))
    for (Eqn& eqn : out.eqns) eqn.attrs = silenced(eqn.attrs, true);
  return out;
}

}  // namespace lockstep
