// The parts of tree functions that do not depend on C++ types.
#include "lockstep/tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "array/apply.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep::detail {

void throw_tree_mismatch(const char* what, size_t wanted, size_t got) {
  throw_error("{}: one tree has {} arrays, another {}; the trees must have the same structure", what, wanted, got);
}

void throw_empty_transpose() {
  throw_error("tree_transpose: the container is empty, so the tree in it is not known; pass at least one tree");
}

std::string TreeStructure::text_of_real(double value) { return fmt::format("{}", value); }

std::string TreeStructure::to_string() const {
  std::string out;
  for (const auto& [where, what] : entries_) out += where.empty() ? what + "\n" : where + ": " + what + "\n";
  return out;
}

void TreeStructure::check_same(const TreeStructure& other, const char* what, const char* here, const char* there,
                               const char* remedy) const {
  static const std::pair<std::string, std::string> kNothing{"", "nothing"};
  for (size_t i = 0; i < std::max(entries_.size(), other.entries_.size()); ++i) {
    const auto& a = i < entries_.size() ? entries_[i] : kNothing;
    const auto& b = i < other.entries_.size() ? other.entries_[i] : kNothing;
    if (a == b) continue;
    const std::string& where = a.first.empty() ? b.first : a.first;
    throw_error("{}: {}{} {} and {} {}; {}", what, where.empty() ? "" : fmt::format("at {}: ", where), a.second, here,
                b.second, there, remedy);
  }
}

Array all_of_leaves(const std::vector<Array>& leaves) {
  Array out = true;
  for (const Array& leaf : leaves) out = logical_and(out, all(leaf));
  return out;
}

std::vector<Type> types_of_leaves(const std::vector<Array>& leaves) {
  std::vector<Type> out;
  for (const Array& leaf : leaves) out.push_back(leaf.type());
  return out;
}

Array ravel(const std::vector<Array>& leaves) {
  if (leaves.empty()) return Array::from(std::vector<float>{}, {0});
  DType dtype = leaves[0].dtype();
  for (const Array& leaf : leaves) dtype = promote(dtype, leaf.dtype());
  std::vector<Array> parts;
  for (const Array& leaf : leaves) {
    const Array flat = reshape(leaf, {leaf.size()});
    parts.push_back(flat.dtype() == dtype ? flat : astype(flat, dtype));
  }
  return parts.size() == 1 ? parts[0] : concatenate(parts, 0);
}

std::vector<Array> unravel(const Array& flat, const std::vector<Type>& types) {
  int64_t total = 0;
  for (const Type& type : types) total += count(type.shape);
  if (flat.shape() != Shape{total})
    throw_error("unravel: the vector is {}, but the tree has {} elements; pass an array of shape [{}]",
                to_string(flat.type()), total, total);
  std::vector<Array> out;
  int64_t at = 0;
  for (const Type& type : types) {
    const int64_t n = count(type.shape);
    const Array part = reshape(slice(flat, {at}, {at + n}), type.shape);
    out.push_back(part.dtype() == type.dtype ? part : astype(part, type.dtype));
    at += n;
  }
  return out;
}

}  // namespace lockstep::detail
