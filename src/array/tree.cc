// The parts of tree functions that do not depend on C++ types.
#include "lockstep/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

TreeVisitor::~TreeVisitor() = default;
void TreeVisitor::state() {}
void TreeVisitor::size(size_t) {}
void TreeVisitor::boolean(bool, bool) {}
void TreeVisitor::integer(int64_t, bool) {}
void TreeVisitor::real(double, bool) {}
void TreeVisitor::text(const std::string&, bool) {}
void TreeVisitor::leaf(const void*) {}

void TreeVisitor::field(std::string_view name, const Array& a) {
  enter(name);
  array(a);
  leave();
}
void TreeVisitor::elements(const std::vector<Array>& list) {
  size(list.size());
  int64_t i = 0;
  for (const Array& a : list) {
    enter(i++);
    array(a);
    leave();
  }
}

void TreeVisitor::enter_path(std::string_view name) {
  std::string& path = paths_->path;
  paths_->lengths.push_back(path.size());
  if (!path.empty()) path += '/';
  path += name;
}
void TreeVisitor::enter_path(int64_t number) { enter_path(std::to_string(number)); }
void TreeVisitor::leave_path() {
  paths_->path.resize(paths_->lengths.back());
  paths_->lengths.pop_back();
}

PathVisitor::~PathVisitor() = default;

namespace {

struct LeafLister final : TreeVisitor {
  Arrays out;
  void array(const Array& a) override { out.push_back(a); }
};
struct ArrayCounter final : TreeVisitor {
  size_t n = 0;
  void array(const Array&) override { ++n; }
};
struct ArrayAssigner final : TreeVisitor {
  const Array* next;
  explicit ArrayAssigner(const Array* first) : next(first) {}
  void array(const Array& a) override { const_cast<Array&>(a) = *next++; }
};
struct ArrayMover final : TreeVisitor {
  Array* next;
  explicit ArrayMover(Array* first) : next(first) {}
  void array(const Array& a) override { const_cast<Array&>(a) = std::move(*next++); }
};
struct ArrayClearer final : TreeVisitor {
  void array(const Array& a) override { const_cast<Array&>(a) = Array(); }
};
struct ArrayCaller final : TreeVisitor {
  void* function;
  void (*call)(void*, const Array&);
  ArrayCaller(void* f, void (*c)(void*, const Array&)) : function(f), call(c) {}
  void array(const Array& a) override { call(function, a); }
};
struct LeafCaller final : PathVisitor {
  using Call = void (*)(void*, const std::string&, const Array&, bool);
  void* function;
  Call call;
  bool is_state = false;
  LeafCaller(void* f, Call c) : function(f), call(c) {}
  void state() override { is_state = true; }
  void array(const Array& a) override { call(function, path, a, std::exchange(is_state, false)); }
};

}  // namespace

Arrays leaves_of_trees(TreeRefs trees) {
  LeafLister lister;
  for (const TreeRef& tree : trees) tree.visit(lister);
  return std::move(lister.out);
}

size_t array_count(TreeRef tree) {
  ArrayCounter counter;
  tree.visit(counter);
  return counter.n;
}

void assign_arrays(TreeRef tree, const Array*& next) {
  ArrayAssigner assigner(next);
  tree.visit(assigner);
  next = assigner.next;
}

void move_arrays(TreeRef tree, Array* next) {
  ArrayMover mover(next);
  tree.visit(mover);
}

void clear_arrays(TreeRef tree) {
  ArrayClearer clearer;
  tree.visit(clearer);
}

void visit_arrays(TreeRef tree, void* function, void (*call)(void*, const Array&)) {
  ArrayCaller caller(function, call);
  tree.visit(caller);
}

void visit_leaves(TreeRef tree, void* function, void (*call)(void*, const std::string&, const Array&, bool)) {
  LeafCaller caller(function, call);
  tree.visit(caller);
}

std::vector<std::pair<std::string, Array>> leaves_with_paths(TreeRef tree) {
  std::vector<std::pair<std::string, Array>> out;
  visit_leaves(tree, &out, [](void* list, const std::string& path, const Array& a, bool) {
    static_cast<std::vector<std::pair<std::string, Array>>*>(list)->emplace_back(path, a);
  });
  return out;
}

void unflatten(TreeRef tree, const std::vector<Array>& leaves) {
  const size_t n = array_count(tree);
  if (n != leaves.size()) throw_tree_mismatch("tree_unflatten", n, leaves.size());
  const Array* next = leaves.data();
  assign_arrays(tree, next);
}

LeafTable::LeafTable(const char* what, TreeRefs trees) {
  size_t tree = 0;
  for (const TreeRef& each : trees) {
    const Arrays more = leaves_of_trees({each});
    if (tree++ == 0) size_ = more.size();
    if (more.size() != size_) throw_tree_mismatch(what, size_, more.size());
    leaves_.insert(leaves_.end(), more.begin(), more.end());
  }
}
LeafTable::~LeafTable() = default;

Arrays LeafTable::map(const void* f, Array (*call)(const void*, size_t)) const {
  Arrays out;
  out.reserve(size_);
  for (size_t i = 0; i < size_; ++i) out.push_back(call(f, i));
  return out;
}

void check_same_structure(const char* what, TreeRef tree, TreeRef other) {
  TreeStructure(tree, false)
      .check_same(TreeStructure(other, false), what, "in one tree", "in another",
                  "the trees must have the same structure");
}

TreeStructure::TreeStructure(TreeRef tree, bool with_values) : with_values_(with_values) { tree.visit(*this); }
TreeStructure::TreeStructure(const TreeStructure&) = default;
TreeStructure& TreeStructure::operator=(const TreeStructure&) = default;
TreeStructure::~TreeStructure() = default;
void TreeStructure::array(const Array&) { add("an array"); }
void TreeStructure::size(size_t n) { add(std::to_string(n) + (n == 1 ? " element" : " elements")); }
void TreeStructure::boolean(bool value, bool is_key) { add_value(value ? "true" : "false", is_key); }
void TreeStructure::integer(int64_t value, bool is_key) { add_value(std::to_string(value), is_key); }
void TreeStructure::real(double value, bool is_key) { add_value(fmt::format("{}", value), is_key); }
void TreeStructure::text(const std::string& value, bool is_key) { add_value('"' + value + '"', is_key); }
void TreeStructure::add(std::string what) { entries_.emplace_back(path, std::move(what)); }
void TreeStructure::add_value(const std::string& value, bool is_key) {
  if (is_key)
    add("key " + value);
  else if (with_values_)
    add(value);
}

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
