// Attrs: the attributes of an equation, as data: a sorted list of names and values. Values are of a closed
// set of types, so equality, hashing, printing and parsing are written once for all ops. Plain values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep {

struct Program;
using ProgramPtr = std::shared_ptr<const Program>;  // as an attribute: compared and hashed by content
class HostFunction;
using HostFunctionPtr = std::shared_ptr<const HostFunction>;  // as an attribute: compared and hashed by number

using Attr = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>, ProgramPtr, HostFunctionPtr>;

// NaN equals NaN; programs are compared by content, functions of the host by number.
bool equal_attrs(const Attr& a, const Attr& b);

class Attrs {
 public:
  using Entry = std::pair<std::string, Attr>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  // Replaces or adds one attribute.
  void set(std::string name, Attr value);
  void erase(std::string_view name);

  // null if there is no such attribute.
  const Attr* find(std::string_view name) const;

  // REQUIRES: the attribute exists and is a T.
  template <class T>
  const T& get(std::string_view name) const {
    return std::get<T>(require(name));
  }
  template <class T>
  T get_or(std::string_view name, T otherwise) const {
    const Attr* a = find(name);
    return a ? std::get<T>(*a) : otherwise;
  }
  const std::vector<int64_t>& ints(std::string_view name) const { return get<std::vector<int64_t>>(name); }
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  const Program& program(std::string_view name) const { return *get<ProgramPtr>(name); }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }
  bool operator==(const Attrs& other) const;

 private:
  const Attr& require(std::string_view name) const;
  std::vector<Entry> entries_;  // sorted by name
};

}  // namespace lockstep
