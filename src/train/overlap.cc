#include "train/overlap.h"

#include <algorithm>

namespace lockstep::detail {

Overlap::Overlap(const IndexBox& a, const IndexBox& b, int64_t size) : run_(size) {
  const size_t rank = a.size();
  IndexBox both;
  for (size_t d = 0; d < rank; ++d) {
    both.push_back({std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)});
    if (both[d].end <= both[d].begin) return;
  }
  std::vector<int64_t> a_step(rank, size), b_step(rank, size);
  for (size_t d = rank; d-- > 1;) {
    a_step[d - 1] = a_step[d] * a[d].size();
    b_step[d - 1] = b_step[d] * b[d].size();
  }
  for (size_t d = 0; d < rank; ++d) {
    a_ += (both[d].begin - a[d].begin) * a_step[d];
    b_ += (both[d].begin - b[d].begin) * b_step[d];
  }
  // Both boxes cover the dimensions from `inner` on completely, so one run spans these and the dimension before them.
  size_t inner = rank;
  while (inner > 0 && both[inner - 1].size() == a[inner - 1].size() && both[inner - 1].size() == b[inner - 1].size())
    run_ *= both[--inner].size();
  if (inner > 0) run_ *= both[--inner].size();
  left_ = 1;
  for (size_t d = 0; d < inner; ++d) {
    left_ *= both[d].size();
    extent_.push_back(both[d].size());
  }
  at_.assign(inner, 0);
  a_step_.assign(a_step.begin(), a_step.begin() + static_cast<std::ptrdiff_t>(inner));
  b_step_.assign(b_step.begin(), b_step.begin() + static_cast<std::ptrdiff_t>(inner));
}

void Overlap::skip(int64_t n) {
  past_ += n;
  if (past_ < run_) return;
  past_ = 0;
  if (--left_ == 0) return;
  for (size_t d = extent_.size(); d-- > 0;) {
    a_ += a_step_[d];
    b_ += b_step_[d];
    if (++at_[d] < extent_[d]) return;
    a_ -= at_[d] * a_step_[d];
    b_ -= at_[d] * b_step_[d];
    at_[d] = 0;
  }
}

}  // namespace lockstep::detail
