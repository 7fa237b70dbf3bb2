// One value for each array of a tree: specs, shardings, and the axes of vmap.
//
//   template <class T> struct LayerOf { T w, b; };
//   using Layer = LayerOf<Array>;
//   struct Params { Layer up, down; };
//
//   {P()}                                                     // all arrays of the argument
//   {LayerOf<PartitionSpec>{P({}, "model"), P("model")}}      // by field, for an argument of type Layer
//   {std::map<std::string, PartitionSpec>{{"up/w", P({}, "model")}, {"down", P("model")}, ...}}
//   {specs_by_path({{"*/w", P({}, "model")}, {"*", P()}})}    // by the first pattern that matches
//
// A value for a part of the tree is for all arrays in it. So a struct of values may stop early: a field of it may be one
// value where the argument has a struct. Values are matched by paths (tree.h): field names, indices and keys.
//
// Plain values, safe to use from any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/detail/tree_visitor.h"
#include "lockstep/sharding.h"

namespace lockstep {

// An axis of vmap; nullopt: none.
using Axis = std::optional<int64_t>;

namespace detail {

// Where the values of a PerLeaf belong.
struct LeafPaths {
  std::vector<std::string> paths;  // one for each value; "" is the whole tree
  bool patterns = false;
};
// For each array of a tree, by its path: the index of its value. Throws Error for an array without a value, and for a
// value without an array. `what` names the option in errors: "shard_map: in_specs[0]".
std::vector<size_t> match_leaves(const LeafPaths& values, std::span<const std::string> arrays, const std::string& what);
// Whether a path matches a pattern of specs_by_path().
bool matches_pattern(std::string_view pattern, std::string_view path);

}  // namespace detail

// One value of type L for each array of a tree. L is PartitionSpec, NamedSharding or Axis.
template <class L>
class PerLeaf {
 public:
  // One value for the whole tree: the default, a value, or {mesh, spec} for a sharding.
  PerLeaf();
  template <class A, class B>
  requires std::is_constructible_v<L, A, B> PerLeaf(A&& a, B&& b)  // NOLINT
      : PerLeaf(Whole{}, L(std::forward<A>(a), std::forward<B>(b))) {}
  template <class U>
  requires std::is_convertible_v<U&&, L> PerLeaf(U&& value)  // NOLINT: {P("data"), P()}
      : PerLeaf(Whole{}, static_cast<Value<U&&>>(std::forward<U>(value))) {}
  // A tree of values.
  template <class Tree>
  requires(!std::is_convertible_v<const Tree&, L> && !std::is_same_v<Tree, PerLeaf> && detail::is_tree<Tree>)
      PerLeaf(const Tree& tree)  // NOLINT
      : PerLeaf(&tree, [](const void* any, detail::TreeVisitor& v) {
          detail::visit_tree<L>(*static_cast<const Tree*>(any), v);
        }) {}
  // By paths or patterns of paths.
  PerLeaf(detail::LeafPaths paths, std::vector<L> values);
  PerLeaf(const PerLeaf&);
  PerLeaf(PerLeaf&&) noexcept;
  PerLeaf& operator=(const PerLeaf&);
  PerLeaf& operator=(PerLeaf&&) noexcept;
  ~PerLeaf();

  // One value for each of these arrays, given by their paths. Throws Error when they do not fit; see match_leaves().
  std::vector<L> for_arrays(std::span<const std::string> arrays, const std::string& what) const;
  // All values, and where they belong.
  const std::vector<L>& values() const { return values_; }
  const detail::LeafPaths& paths() const { return paths_; }

 private:
  struct Whole {};
  // U if that is a reference to L, so that the library makes the copy; else L.
  template <class U>
  using Value = std::conditional_t<std::is_same_v<std::remove_cvref_t<U>, L>, U, L>;
  PerLeaf(Whole, const L& value);
  PerLeaf(Whole, L&& value);
  PerLeaf(const void* tree, void (*visit)(const void* tree, detail::TreeVisitor&));

  detail::LeafPaths paths_;
  std::vector<L> values_;
};

// A PerLeaf for each argument or each element of a result: {P("data"), P()}. One that is not in a list stands for all.
template <class L>
class PerArgument {
 public:
  PerArgument();
  PerArgument(std::initializer_list<PerLeaf<L>> each);  // NOLINT: {P("data"), P()}
  PerArgument(const std::vector<L>& each);              // NOLINT
  PerArgument(std::vector<PerLeaf<L>> each);            // NOLINT
  template <class U>
  requires std::is_convertible_v<U&&, L> PerArgument(U&& value)  // NOLINT
      : PerArgument(All{}, PerLeaf<L>(std::forward<U>(value))) {}
  PerArgument(const PerArgument&);
  PerArgument(PerArgument&&) noexcept;
  PerArgument& operator=(const PerArgument&);
  PerArgument& operator=(PerArgument&&) noexcept;
  ~PerArgument();

  size_t size() const { return each_.size(); }
  bool empty() const { return each_.empty(); }
  const PerLeaf<L>& operator[](size_t i) const { return each_[i]; }
  auto begin() const { return each_.begin(); }
  auto end() const { return each_.end(); }

 private:
  struct All {};
  PerArgument(All, PerLeaf<L> value);

  std::vector<PerLeaf<L>> each_;
};

// In the library.
extern template class PerLeaf<PartitionSpec>;
extern template class PerLeaf<NamedSharding>;
extern template class PerLeaf<Axis>;
extern template class PerArgument<PartitionSpec>;
extern template class PerArgument<NamedSharding>;
extern template class PerArgument<Axis>;

// Values by pattern: the first pattern that matches an array's path gives its value. `*` stands for any text and `?` for
// one character. A leading "*/" also matches nothing: "*/w" matches "w" and "layers/0/w". An array without a pattern is an
// error; end with {"*", ...} to give the others a value.
PerLeaf<PartitionSpec> specs_by_path(const std::vector<std::pair<std::string, PartitionSpec>>& rules);
PerLeaf<NamedSharding> shardings_by_path(const Mesh& mesh,
                                         const std::vector<std::pair<std::string, PartitionSpec>>& rules);
PerLeaf<Axis> axes_by_path(const std::vector<std::pair<std::string, Axis>>& rules);

// The shardings of these specs over a mesh.
PerLeaf<NamedSharding> named_shardings(const Mesh& mesh, const PerLeaf<PartitionSpec>& specs);

}  // namespace lockstep
