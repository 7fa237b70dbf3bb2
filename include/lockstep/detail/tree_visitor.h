// Visitors of trees (tree.h): how transforms walk the arrays of their arguments and results. Not part of the
// public API. Pure functions, safe to call from any thread.
//
// To keep users' compile times short, the only code that is compiled for each tree type is visit_tree(). Visitors are
// ordinary classes of the library, and a TreeRef passes a tree of any type to them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/detail/fields.h"
#include "lockstep/detail/tree_check.h"
#include "lockstep/detail/tree_traits.h"

namespace lockstep::detail {

class PathVisitor;

// Is called for everything in a tree, in order. state() precedes array() for an nn::State. size(n) gets the number of
// elements of a container. Numbers, enums and strings are static values, or keys of a map.
class TreeVisitor {
 public:
  virtual ~TreeVisitor();
  // Arrays are passed as const; visitors may cast that away if the tree is not.
  virtual void array(const Array&) = 0;
  virtual void state();
  virtual void size(size_t);
  virtual void boolean(bool value, bool is_key);
  virtual void integer(int64_t value, bool is_key);
  virtual void real(double value, bool is_key);
  virtual void text(const std::string& value, bool is_key);
  // A PartitionSpec, NamedSharding or axis in a tree of these (per_leaf.h).
  virtual void leaf(const void*);

  // Enter and leave a child: a field by its name, an element by its number or key.
  void enter(std::string_view name) {
    if (paths_) enter_path(name);
  }
  void enter(int64_t number) {
    if (paths_) enter_path(number);
  }
  void leave() {
    if (paths_) leave_path();
  }
  // Visit a field, or the elements of a list. Not inline, because trees have many.
  void field(std::string_view name, const Array&);
  void elements(const std::vector<Array>&);

 protected:
  TreeVisitor() = default;
  explicit TreeVisitor(PathVisitor* paths) : paths_(paths) {}
  TreeVisitor& operator=(const TreeVisitor&) { return *this; }

 private:
  void enter_path(std::string_view name);
  void enter_path(int64_t number);
  void leave_path();

  PathVisitor* const paths_ = nullptr;
};

// Keeps track of the path of the current child: "layers/0/w".
class PathVisitor : public TreeVisitor {
 public:
  PathVisitor() : TreeVisitor(this) {}
  PathVisitor(const PathVisitor& other) : TreeVisitor(this), path(other.path), lengths(other.lengths) {}
  PathVisitor& operator=(const PathVisitor&) = default;
  ~PathVisitor() override;

  std::string path;
  std::vector<size_t> lengths;
};

template <class T>
void visit_static(const T& value, TreeVisitor& v, bool is_key) {
  if constexpr (std::is_same_v<T, std::string>)
    v.text(value, is_key);
  else if constexpr (std::is_same_v<T, bool>)
    v.boolean(value, is_key);
  else if constexpr (std::is_floating_point_v<T>)
    v.real(static_cast<double>(value), is_key);
  else
    v.integer(static_cast<int64_t>(value), is_key);
}

template <class Leaf, class T>
void visit_tree(const T& tree, TreeVisitor& v);

template <class Leaf, class T>
void visit_field(std::string_view name, const T& field, TreeVisitor& v) {
  if constexpr (std::is_same_v<T, Array>) {
    v.field(name, field);
  } else {
    v.enter(name);
    visit_tree<Leaf>(field, v);
    v.leave();
  }
}

// Visits a tree in order. Values of type Leaf are its leaves; void: there are none besides arrays.
template <class Leaf, class T>
void visit_tree(const T& tree, TreeVisitor& v) {
  if constexpr (std::is_same_v<Leaf, T>) {
    v.leaf(&tree);
  } else if constexpr (is_tree_leaf<T>) {
    // of a tree that is not visited for these leaves
  } else if constexpr (std::is_same_v<T, Array>) {
    v.array(tree);
  } else if constexpr (std::is_same_v<T, nn::State>) {
    v.state();
    v.array(tree);
  } else if constexpr (std::is_same_v<T, std::vector<Array>>) {
    v.elements(tree);
  } else if constexpr (is_static_value<T>) {
    visit_static(tree, v, false);
  } else if constexpr (is_vector<T> || is_std_array<T>) {
    v.size(tree.size());
    if constexpr (std::is_same_v<T, std::vector<bool>>) {
      for (const bool b : tree) v.boolean(b, false);
    } else {
      int64_t i = 0;
      for (const auto& child : tree) {
        v.enter(i++);
        visit_tree<Leaf>(child, v);
        v.leave();
      }
    }
  } else if constexpr (is_tuple<T>) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((v.enter(static_cast<int64_t>(I)), visit_tree<Leaf>(std::get<I>(tree), v), v.leave()), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (is_map<T>) {
    v.size(tree.size());
    for (const auto& [key, child] : tree) {
      visit_static(key, v, true);
      if constexpr (std::is_same_v<typename T::key_type, std::string>)
        v.enter(key);
      else
        v.enter(static_cast<int64_t>(key));
      visit_tree<Leaf>(child, v);
      v.leave();
    }
  } else if constexpr (is_optional<T>) {
    v.size(tree.has_value());
    if (tree) visit_tree<Leaf>(*tree, v);
  } else {
    static_assert(check_tree<T>);
    with_fields(tree, [&v](const auto&... field) {
      [[maybe_unused]] const std::string_view* name = field_names<T>();
      (visit_field<Leaf>(*name++, field, v), ...);
    });
  }
}

// Refers to a tree of any type.
class TreeRef {
 public:
  template <class T>
  requires(!std::is_same_v<T, TreeRef>) TreeRef(const T& tree)  // NOLINT: implicit, to pass trees
      : tree_(&tree), visit_([](const void* any, TreeVisitor& v) { visit_tree<void>(*static_cast<const T*>(any), v); }) {}
  void visit(TreeVisitor& v) const { visit_(tree_, v); }

 private:
  const void* tree_;
  void (*visit_)(const void*, TreeVisitor&);
};
// Several trees, such as the arguments of a call. Passed on in place, not stored.
using TreeRefs = std::initializer_list<TreeRef>;

using Arrays = std::vector<Array>;

// The arrays of all trees, in order, and how many there are.
Arrays leaves_of_trees(TreeRefs trees);
size_t array_count(TreeRef tree);
// Replaces the arrays of a tree, which must not be const, by those from `next` on, which it advances.
void assign_arrays(TreeRef tree, const Array*& next);
// Same, but moves them.
void move_arrays(TreeRef tree, Array* next);
// Makes all arrays of a tree, which must not be const, empty.
void clear_arrays(TreeRef tree);

// Call call(function, leaf...) for every array of a tree.
void visit_arrays(TreeRef tree, void* function, void (*call)(void* function, const Array& leaf));
void visit_leaves(TreeRef tree, void* function,
                  void (*call)(void* function, const std::string& path, const Array& leaf, bool is_state));

template <class T>
using LeafOfTree = std::conditional_t<std::is_const_v<T>, const Array, Array>;

// Calls f(Array&) or f(const Array&) for every leaf, in order.
template <class T, class F>
void for_each_array(T& tree, F&& f) {
  using Function = std::remove_reference_t<F>;
  visit_arrays(tree, const_cast<void*>(static_cast<const void*>(&f)), [](void* function, const Array& a) {
    (*static_cast<Function*>(function))(const_cast<LeafOfTree<T>&>(a));
  });
}

// Calls f(path, array, is_state) for every leaf, in order; is_state: the leaf is an nn::State.
template <class T, class F>
void for_each_leaf(T& tree, F&& f) {
  using Function = std::remove_reference_t<F>;
  visit_leaves(tree, const_cast<void*>(static_cast<const void*>(&f)),
               [](void* function, const std::string& path, const Array& a, bool is_state) {
                 (*static_cast<Function*>(function))(path, const_cast<LeafOfTree<T>&>(a), is_state);
               });
}

// Calls f(path, array) for every leaf, in order.
template <class T, class F>
void for_each_path(T& tree, F&& f) {
  for_each_leaf(tree, [&f](const std::string& path, LeafOfTree<T>& a, bool) { f(path, a); });
}

// The structure of a tree: the sizes and keys of its containers and, if `with_values`, its static values.
class TreeStructure final : public PathVisitor {
 public:
  TreeStructure(TreeRef tree, bool with_values);
  TreeStructure(const TreeStructure&);
  TreeStructure& operator=(const TreeStructure&);
  ~TreeStructure() override;
  void array(const Array&) override;
  void size(size_t n) override;
  void boolean(bool value, bool is_key) override;
  void integer(int64_t value, bool is_key) override;
  void real(double value, bool is_key) override;
  void text(const std::string& value, bool is_key) override;

  // Throws Error unless both structures are equal. The message names the first difference: "`what`: at
  // layers/0: 1 element `here` and 2 elements `there`; `remedy`".
  void check_same(const TreeStructure& other, const char* what, const char* here, const char* there,
                  const char* remedy) const;
  // A line for each entry: "layers/0/w: an array".
  std::string to_string() const;
  const std::vector<std::pair<std::string, std::string>>& entries() const { return entries_; }
  bool operator==(const TreeStructure& other) const { return entries_ == other.entries_; }

 private:
  void add(std::string what);
  void add_value(const std::string& value, bool is_key);

  bool with_values_;
  std::vector<std::pair<std::string, std::string>> entries_;  // path and description
};

// Throws Error unless two trees of one type have the same structure. Trees of different types are matched
// leaf by leaf.
void check_same_structure(const char* what, TreeRef tree, TreeRef other);
template <class T, class U>
void check_alike(const char* what, const T& tree, const U& other) {
  if constexpr (std::is_same_v<T, U>) check_same_structure(what, tree, other);
}

// Throws Error: the trees have different numbers of leaves.
[[noreturn]] void throw_tree_mismatch(const char* what, size_t wanted, size_t got);

}  // namespace lockstep::detail
