#include "passes/pieces.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "passes/costly.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

bool is_gather(const Eqn& eqn) { return eqn.op == &lane_all_gather_op; }
bool is_scatter(const Eqn& eqn) { return eqn.op == &lane_reduce_scatter_op; }

// Of views only these are the same whatever the extents on a lane are.
bool is_turned(const Eqn& eqn) { return eqn.op == &transpose_op; }

// An equation that is computed in pieces: along which factor of its rule, and which operand comes in pieces already.
struct Link {
  size_t eqn = 0;
  char factor = 0;
  size_t operand = 0;
};

// From the operand of a gather to one of the equations that use what was gathered.
struct Use {
  std::vector<Link> views;
  Link product;
  bool added = false;  // the pieces of its result are terms of a sum
  size_t dim = 0;      // else: the dimension along which they lie side by side
};

// All that is computed in pieces for one meeting.
struct Region {
  std::vector<Link> before;  // for a gather: what makes its operand of a value that is there anyway
  ValueId source = 0;        // that value,
  size_t source_dim = 0;     // and its dimension that is cut
  std::vector<Use> uses;     // of a gather
  Link product;              // of a scatter,
  std::vector<Link> after;   // and what comes between the two, then what follows the scatter
  size_t scatter = 0;        // how many of `after` stand before it
  size_t dim = 0;            // of the last result, along which pieces lie side by side
};

// Who makes and who uses what; and what follows from the ops' rules.
class Finder {
 public:
  explicit Finder(const Program& p) : p_(p), maker_(p.types.size(), p.eqns.size()), users_(p.types.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in) users_[id].push_back(i);
    }
    for (ValueId id : p.outputs) users_[id].push_back(p.eqns.size());  // whoever takes the outputs
  }

  // What has to be done to cut the operand of a meeting along a dimension, if that can be.
  std::optional<Region> region(size_t meeting, size_t dim) const {
    return is_gather(p_.eqns[meeting]) ? of_gather(meeting, dim) : of_scatter(meeting, dim);
  }

  // Bytes that are copied because of it: operands that have to be cut too, and results that are put together.
  int64_t cost(const Region& region, size_t meeting) const {
    int64_t bytes = 0;
    const auto others = [&](const Link& link) {
      const Eqn& eqn = p_.eqns[link.eqn];
      const Rule rule = rule_of(eqn);
      for (size_t t = 0; t < eqn.in.size(); ++t)
        if (t != link.operand && rule.in[t].find(link.factor) != std::string::npos)
          bytes = std::max(bytes, p_.types[eqn.in[t]].bytes());
    };
    for (const Use& use : region.uses) {
      others(use.product);
      bytes = std::max(bytes, p_.types[p_.eqns[use.product.eqn].out[0]].bytes());
    }
    if (is_scatter(p_.eqns[meeting])) others(region.product);
    return bytes;
  }

  Rule rule_of(const Eqn& eqn) const {
    std::vector<Type> in;
    for (ValueId id : eqn.in) in.push_back(p_.types[id]);
    return eqn.op->rule(in, eqn.attrs);
  }

 private:
  const Eqn* made_by(ValueId id) const { return maker_[id] < p_.eqns.size() ? &p_.eqns[maker_[id]] : nullptr; }

  // May an equation be computed piece by piece along this factor? Steps depend on extents, which differ between lanes.
  static bool can_cut(const Rule& rule, char factor) {
    const auto once = [&](const std::string& term) { return std::count(term.begin(), term.end(), factor) <= 1; };
    return rule.in_step.empty() && rule.out_step.empty() && rule.whole.find(factor) == std::string::npos &&
           rule.placed.find(factor) == std::string::npos && std::all_of(rule.in.begin(), rule.in.end(), once) &&
           std::all_of(rule.out.begin(), rule.out.end(), once);
  }

  // The equation with its operand `t` cut along `dim`, and the dimension of its result that is cut thereby.
  std::optional<std::pair<Link, size_t>> downwards(size_t i, size_t t, size_t dim) const {
    const Eqn& eqn = p_.eqns[i];
    if (!eqn.op->rule || eqn.out.size() != 1 || eqn.op->meets) return std::nullopt;
    const Rule rule = rule_of(eqn);
    const char factor = rule.in[t][dim];
    const size_t at = rule.out[0].find(factor);
    if (!can_cut(rule, factor)) return std::nullopt;
    return std::pair(Link{i, factor, t}, at);
  }

  // The equation with its result cut along `dim`, and the dimension of its operand `t` that has to be; if it has to.
  std::optional<std::pair<Link, size_t>> upwards(size_t i, size_t t, size_t dim) const {
    const Eqn& eqn = p_.eqns[i];
    if (!eqn.op->rule || eqn.out.size() != 1 || eqn.op->meets) return std::nullopt;
    const Rule rule = rule_of(eqn);
    const char factor = rule.out[0][dim];
    if (!can_cut(rule, factor)) return std::nullopt;
    return std::pair(Link{i, factor, t}, t < rule.in.size() ? rule.in[t].find(factor) : std::string::npos);
  }

  bool is_product(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    return eqn.op->rule && eqn.op->owed == Owed::sum && !eqn.op->meets && !eqn.op->loop && eqn.out.size() == 1;
  }

  std::optional<Region> of_gather(size_t meeting, size_t dim) const {
    Region out;
    out.source = p_.eqns[meeting].in[0];
    out.source_dim = dim;
    // Pieces of an input, where it is one, so that views and casts are of pieces too.
    ValueId from = out.source;
    size_t at = dim;
    std::vector<Link> before;
    while (const Eqn* eqn = made_by(from)) {
      if (!(is_turned(*eqn) || eqn->op->loop) || eqn->in.size() != 1) break;
      const auto link = upwards(maker_[from], 0, at);
      if (!link || link->second == std::string::npos) break;
      before.insert(before.begin(), link->first);
      from = eqn->in[0];
      at = link->second;
    }
    if (!made_by(from)) {
      out.source = from;
      out.source_dim = at;
      out.before = std::move(before);
    }
    if (!collect(p_.eqns[meeting].out[0], dim, {}, out.uses) || out.uses.empty()) return std::nullopt;
    // For a second use it is gathered again: not what would have to be kept for that.
    if (out.uses.size() > 1 && made_by(out.source)) return std::nullopt;
    return out;
  }

  bool collect(ValueId id, size_t dim, const std::vector<Link>& views, std::vector<Use>& out) const {
    std::set<size_t> seen;
    for (size_t user : users_[id]) {
      if (user == p_.eqns.size() || !seen.insert(user).second) return false;
      const Eqn& eqn = p_.eqns[user];
      const auto t = static_cast<size_t>(std::find(eqn.in.begin(), eqn.in.end(), id) - eqn.in.begin());
      const auto link = downwards(user, t, dim);
      if (!link) return false;
      const bool reduced = link->second == std::string::npos;
      if (is_turned(eqn)) {
        std::vector<Link> more = views;
        more.push_back(link->first);
        if (reduced || !collect(eqn.out[0], link->second, more, out)) return false;
        continue;
      }
      if (!is_product(user)) return false;
      out.push_back({views, link->first, reduced, reduced ? 0 : link->second});
    }
    return true;
  }

  std::optional<Region> of_scatter(size_t meeting, size_t dim) const {
    Region out;
    std::vector<Link> up;
    ValueId id = p_.eqns[meeting].in[0];
    size_t at = dim;
    for (;;) {
      const Eqn* eqn = made_by(id);
      if (!eqn || users_[id].size() != 1) return std::nullopt;
      if (is_product(maker_[id])) break;
      if (!(is_turned(*eqn) || eqn->op->loop)) return std::nullopt;
      const size_t t = first_large(*eqn);
      const auto link = t < eqn->in.size() ? upwards(maker_[id], t, at) : std::nullopt;
      if (!link || link->second == std::string::npos) return std::nullopt;
      up.push_back(link->first);
      id = eqn->in[t];
      at = link->second;
    }
    const Eqn& product = p_.eqns[maker_[id]];
    const auto cut = upwards(maker_[id], product.in.size(), at);
    if (!cut) return std::nullopt;
    out.product = cut->first;
    out.after.assign(up.rbegin(), up.rend());
    out.scatter = out.after.size();
    // What is only another view of the part is made piece by piece, so that the part lies as those after it want it.
    out.dim = dim;
    id = p_.eqns[meeting].out[0];
    while (users_[id].size() == 1 && users_[id][0] < p_.eqns.size() && is_turned(p_.eqns[users_[id][0]])) {
      const auto link = downwards(users_[id][0], 0, out.dim);
      if (!link || link->second == std::string::npos) break;
      out.after.push_back(link->first);
      out.dim = link->second;
      id = p_.eqns[link->first.eqn].out[0];
    }
    return out;
  }

  // The one operand that is computed; the others are there or cost nothing.
  size_t first_large(const Eqn& eqn) const {
    size_t out = eqn.in.size();
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const Eqn* maker = made_by(eqn.in[t]);
      if (!maker || (is_free(*maker) && eqn.in.size() > 1)) continue;
      if (out < eqn.in.size()) return eqn.in.size();
      out = t;
    }
    return out;
  }

  const Program& p_;
  std::vector<size_t> maker_;               // by value: its equation, or how many there are
  std::vector<std::vector<size_t>> users_;  // by value
};

// Writes a lane's program with its regions in pieces.
class Writer {
 public:
  Writer(const Program& p, const std::vector<InPieces>& decided) : p_(p), map_(p.types.size()) {
    const Finder finder(p);
    for (const InPieces& each : decided) {
      LOCKSTEP_CHECK(
          each.meeting < p.eqns.size() && (is_gather(p.eqns[each.meeting]) || is_scatter(p.eqns[each.meeting])),
          "equation {} is no gather or scatter", each.meeting);
      const auto region = finder.region(each.meeting, each.dim);
      LOCKSTEP_CHECK(region, "equation {} cannot be done in pieces along dimension {}", each.meeting, each.dim);
      todo_.push_back({each, *region});
    }
    for (size_t k = 0; k < todo_.size(); ++k) {
      const auto& [each, region] = todo_[k];
      if (is_gather(p.eqns[each.meeting])) {
        gone_.insert(each.meeting);
        for (size_t u = 0; u < region.uses.size(); ++u) {
          for (const Link& view : region.uses[u].views) gone_.insert(view.eqn);
          at_[region.uses[u].product.eqn] = {k, u};
        }
      } else {
        gone_.insert(region.product.eqn);
        for (const Link& link : region.after) gone_.insert(link.eqn);
        gone_.erase(each.meeting);
        at_[each.meeting] = {k, 0};
      }
    }
  }

  Program operator()() {
    for (ValueId id : p_.inputs) map_[id] = b_.input(p_.types[id]);
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      if (const auto here = at_.find(i); here != at_.end()) {
        const auto& [decided, region] = todo_[here->second.first];
        if (is_gather(p_.eqns[decided.meeting]))
          gather(decided, region, region.uses[here->second.second]);
        else
          scatter(decided, region);
      } else if (!gone_.count(i)) {
        b_.copy(p_, p_.eqns[i], map_);
      }
    }
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map_[id]);
    return b_.take(outputs);
  }

 private:
  static Value slice_dim(Value x, size_t d, const Range& range) {
    std::vector<int64_t> starts(x.shape().size(), 0), limits = x.shape(), strides(x.shape().size(), 1);
    starts[d] = range.begin;
    limits[d] = range.end;
    return slice(x, starts, limits, strides);
  }

  // One piece of an equation, `piece` standing for the operand that comes in pieces.
  Value piece_of(const Link& link, const Range& range, Value piece) {
    const Eqn& eqn = p_.eqns[link.eqn];
    std::vector<Type> types;
    for (ValueId id : eqn.in) types.push_back(p_.types[id]);
    const Rule rule = eqn.op->rule(types, eqn.attrs);
    Values in;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const size_t at = rule.in[t].find(link.factor);
      if (t == link.operand)
        in.push_back(piece);
      else
        in.push_back(at == std::string::npos ? map_[eqn.in[t]] : slice_dim(map_[eqn.in[t]], at, range));
    }
    return b_.emit(*eqn.op, in, local_eqn(*eqn.op, types, eqn.attrs, {{link.factor, range}}).attrs)[0];
  }

  Value meet(size_t i, Value piece) { return b_.emit(*p_.eqns[i].op, Values{piece}, p_.eqns[i].attrs)[0]; }

  // A piece into its place among `all`, which the first one makes.
  Value put(Value all, Value piece, size_t dim, const Range& range, int64_t extent) {
    const auto rank = static_cast<size_t>(piece.rank());
    if (!all) {
      std::vector<int64_t> none(rank, 0), high(rank, 0);
      high[dim] = extent - range.size();
      return pad(piece, full(b_, {piece.dtype(), {}}, 0), none, high, none);
    }
    Values starts;
    for (size_t d = 0; d < rank; ++d) starts.push_back(full(b_, {DType::i32, {}}, d == dim ? range.begin : 0));
    return update_slice(all, piece, starts);
  }

  // Each piece is gathered before the product with the one before it.
  void gather(const InPieces& decided, const Region& region, const Use& use) {
    const Value source = map_[region.source];
    const int64_t extent = source.shape()[region.source_dim];
    const ValueId result = p_.eqns[use.product.eqn].out[0];
    const DType dtype = p_.types[result].dtype;
    // Sums of rounded products are taken in f32.
    const bool narrow = use.added && is_floating(dtype) && size_of(dtype) < size_of(DType::f32);
    const auto gathered = [&](int64_t k) {
      const Range range = shard_range(extent, decided.pieces, k);
      Value x = slice_dim(source, region.source_dim, range);
      for (const Link& link : region.before) x = piece_of(link, range, x);
      return meet(decided.meeting, x);
    };
    Value next = gathered(0), all;
    for (int64_t k = 0; k < decided.pieces; ++k) {
      const Range range = shard_range(extent, decided.pieces, k);
      Value x = next;
      if (k + 1 < decided.pieces) next = gathered(k + 1);
      for (const Link& view : use.views) x = piece_of(view, range, x);
      Value y = piece_of(use.product, range, x);
      if (narrow) y = cast(y, DType::f32);
      if (use.added)
        all = all ? add(all, y) : y;
      else
        all = put(all, y, use.dim, range, extent);
    }
    map_[result] = narrow ? cast(all, dtype) : all;
  }

  // Each piece is put into its place after the product of the next.
  void scatter(const InPieces& decided, const Region& region) {
    const size_t last = region.after.size() > region.scatter ? region.after.back().eqn : decided.meeting;
    const ValueId result = p_.eqns[last].out[0];
    const int64_t extent = p_.types[result].shape[region.dim];
    Value all, under_way;
    const auto land = [&](int64_t k) {
      const Range range = shard_range(extent, decided.pieces, k);
      for (size_t i = region.scatter; i < region.after.size(); ++i)
        under_way = piece_of(region.after[i], range, under_way);
      all = put(all, under_way, region.dim, range, extent);
    };
    for (int64_t k = 0; k < decided.pieces; ++k) {
      const Range range = shard_range(extent, decided.pieces, k);
      Value x = piece_of(region.product, range, {});
      if (k > 0) land(k - 1);
      for (size_t i = 0; i < region.scatter; ++i) x = piece_of(region.after[i], range, x);
      under_way = meet(decided.meeting, x);
    }
    land(decided.pieces - 1);
    map_[result] = all;
  }

  const Program& p_;
  Builder b_;
  Values map_;
  std::vector<std::pair<InPieces, Region>> todo_;
  std::set<size_t> gone_;                           // equations that are done in pieces only
  std::map<size_t, std::pair<size_t, size_t>> at_;  // by the equation where pieces are written: which, and which use
};

}  // namespace

std::vector<InPieces> decide_pieces(const Program& p, const PiecesOptions& options) {
  const Finder finder(p);
  std::vector<InPieces> out;
  std::set<size_t> taken;  // an equation is cut along one factor only
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    if (!is_gather(eqn) && !is_scatter(eqn)) continue;
    const Type& whole = p.types[is_gather(eqn) ? eqn.out[0] : eqn.in[0]];
    const auto lanes = static_cast<int64_t>(eqn.attrs.ints("counts").size());
    const int64_t piece = std::max(
        {whole.bytes() / (lanes * options.per_lane), options.least_bytes, lanes * options.least_share, int64_t{1}});
    if (lanes == 1 || whole.bytes() < 2 * piece) continue;
    std::optional<std::pair<InPieces, Region>> best;
    int64_t least = whole.bytes();
    for (size_t dim = 1; dim < whole.shape.size(); ++dim) {
      const int64_t pieces =
          std::min((whole.bytes() + piece - 1) / piece, whole.shape[dim] / std::max<int64_t>(options.least_extent, 2));
      if (pieces < 2) continue;
      const auto region = finder.region(i, dim);
      if (!region || finder.cost(*region, i) > least || (best && finder.cost(*region, i) == least)) continue;
      least = finder.cost(*region, i);
      best = {InPieces{i, dim, pieces}, *region};
    }
    if (!best) continue;
    std::vector<size_t> products;
    for (const Use& use : best->second.uses) products.push_back(use.product.eqn);
    if (is_scatter(eqn)) products.push_back(best->second.product.eqn);
    if (std::any_of(products.begin(), products.end(), [&](size_t at) { return taken.count(at) > 0; })) continue;
    taken.insert(products.begin(), products.end());
    out.push_back(best->first);
  }
  return out;
}

Program in_pieces(const Program& p, const std::vector<InPieces>& decided) {
  return decided.empty() ? p : checked(Writer(p, decided)());
}

}  // namespace lockstep
