#include "program/attrs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "program/host_function.h"
#include "program/program.h"

namespace lockstep {
namespace {

struct ByName {
  bool operator()(const Attrs::Entry& e, std::string_view n) const { return e.first < n; }
};

}  // namespace

bool equal_attrs(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const auto* p = std::get_if<ProgramPtr>(&a)) {
    const auto& q = std::get<ProgramPtr>(b);
    return *p == q || **p == *q;
  }
  if (const auto* f = std::get_if<HostFunctionPtr>(&a)) return (*f)->number() == std::get<HostFunctionPtr>(b)->number();
  if (const auto* x = std::get_if<double>(&a)) {
    const double y = std::get<double>(b);
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(y) || (std::isnan(*x) && std::isnan(y));
  }
  return a == b;
}

Attrs::Attrs(std::initializer_list<Entry> entries) : entries_(entries) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
}

void Attrs::set(std::string name, Attr value) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), std::string_view(name), ByName{});
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::move(name), std::move(value));
  }
}

void Attrs::erase(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& e) { return e.first == name; });
}

const Attr* Attrs::find(std::string_view name) const {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name, ByName{});
  return it != entries_.end() && it->first == name ? &it->second : nullptr;
}

const Attr& Attrs::require(std::string_view name) const {
  const Attr* a = find(name);
  LOCKSTEP_CHECK(a, "attribute {} is missing", name);
  return *a;
}

bool Attrs::operator==(const Attrs& other) const {
  return std::equal(
      entries_.begin(), entries_.end(), other.entries_.begin(), other.entries_.end(),
      [](const Entry& a, const Entry& b) { return a.first == b.first && equal_attrs(a.second, b.second); });
}

}  // namespace lockstep
