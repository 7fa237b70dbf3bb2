// Moving a value from one layout on lanes to another: the cheapest sequence of slices, all-to-alls and all-gathers, and
// what is owed paid by an all-reduce, or by a reduce-scatter where the new layout is cut by an axis that is owed.
#pragma once

#include "ops/lane_ops.h"
#include "passes/partition.h"

namespace lockstep {

struct Layout {
  LaneCuts cuts;
  std::vector<std::string> owed;  // axes along which lanes hold terms
  Owed kind = Owed::nothing;
  bool operator==(const Layout&) const = default;
};

class Resharder {
 public:
  Resharder(const LaneGrid& grid, int64_t lane) : grid_(grid), lane_(lane) {}

  // `x` is this lane's piece of a value of shape `whole`. Afterwards its cuts are `to`; what is owed is paid
  // where the new cuts ask for it or where it is cheaper than later, and `from` says what still is.
  Value move(Value x, const Shape& whole, Layout& from, const LaneCuts& to) const;
  // Pays all that is owed.
  Value pay(Value x, Layout& from) const;

  LaneGroup group(const std::vector<std::string>& axes) const;

 private:
  // What each position along `more`, within this lane's position along `before`, holds of an extent.
  std::vector<int64_t> counts(const std::vector<std::string>& before, const std::vector<std::string>& more,
                              int64_t extent) const;
  // Do the pieces along before + more lie within those along before?
  bool nested(const std::vector<std::string>& before, const std::vector<std::string>& more, int64_t extent) const;
  // May a dimension that `before` cuts be cut by `more` too on its way to the cuts `to`, which begin with both?
  bool on_the_way(std::vector<std::string> before, const std::vector<std::string>& more,
                  const std::vector<std::string>& to, int64_t extent) const;

  Value pay_over(Value x, Layout& from, const std::vector<std::string>& axes) const;
  bool scatter(Value& x, const Shape& whole, Layout& from, const LaneCuts& to) const;
  bool slice_one(Value& x, const Shape& whole, Layout& from, const LaneCuts& to) const;
  bool exchange(Value& x, const Shape& whole, Layout& from, const LaneCuts& to) const;
  bool gather(Value& x, const Shape& whole, Layout& from, const LaneCuts& to) const;

  const LaneGrid& grid_;
  int64_t lane_;
};

}  // namespace lockstep
