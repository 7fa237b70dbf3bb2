#include "nn/trained_leaves.h"

namespace lockstep::detail {

TrainedLeaves trained_leaves(TreeRef tree) {
  TrainedLeaves out;
  visit_leaves(tree, &out, [](void* list, const std::string& path, const Array& leaf, bool is_state) {
    if (is_state) return;
    auto& [paths, arrays] = *static_cast<TrainedLeaves*>(list);
    paths.push_back(path);
    arrays.push_back(leaf);
  });
  return out;
}

void assign_trained(TreeRef tree, const std::vector<Array>& arrays) {
  const Array* next = arrays.data();
  visit_leaves(tree, &next, [](void* at, const std::string&, const Array& leaf, bool is_state) {
    if (!is_state) const_cast<Array&>(leaf) = *(*static_cast<const Array**>(at))++;
  });
}

}  // namespace lockstep::detail
