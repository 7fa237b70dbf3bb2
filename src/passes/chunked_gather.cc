#include "passes/chunked_gather.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/lane_ops.h"
#include "ops/shape_ops.h"
#include "passes/eqn_cost.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

// A view whose attributes do not depend on extents (a transpose), so that it is the same equation for every chunk.
bool is_chunkable_view(const Eqn& eqn) { return eqn.op->view && eqn.op->rule && !eqn.op->local; }

// An equation that is computed in chunks: along which factor of its rule, and which operand is already in chunks.
struct ChunkedEqn {
  size_t eqn = 0;
  char factor = 0;
  size_t operand = 0;
};

// The path from a gathered value to a product that uses it.
struct GatherUse {
  std::vector<ChunkedEqn> views;
  ChunkedEqn product;
  bool summed = false;  // the chunks of the product are terms of a sum;
  size_t dim = 0;       // else they are concatenated along this dimension
};

// All equations that are computed in chunks for one collective.
//
//   gather:   source -> before... -> gather -> uses: (views... -> product)...
//   scatter:  product -> after[0, scatter)... -> scatter -> after[scatter, end)...
struct ChunkRegion {
  // Of a gather.
  ValueId source = 0;     // a value that exists anyway; it is sliced
  size_t source_dim = 0;  // along this dimension
  std::vector<ChunkedEqn> before;
  std::vector<GatherUse> uses;
  // Of a scatter.
  ChunkedEqn product;
  std::vector<ChunkedEqn> after;
  size_t scatter = 0;  // the number of equations of `after` before the scatter
  size_t dim = 0;      // the dimension of the last result along which chunks are concatenated
};

// Finds the region of a collective from the uses of values and the ops' rules.
class RegionFinder {
 public:
  explicit RegionFinder(const Program& p) : p_(p), maker_(p.types.size(), p.eqns.size()), users_(p.types.size()) {
    for (size_t i = 0; i < p.eqns.size(); ++i) {
      for (ValueId id : p.eqns[i].out) maker_[id] = i;
      for (ValueId id : p.eqns[i].in) users_[id].push_back(i);
    }
    for (ValueId id : p.outputs) users_[id].push_back(p.eqns.size());  // an output of the program counts as a use
  }

  // The region of a collective whose operand is divided along `dim`; nullopt if that is not possible.
  std::optional<ChunkRegion> region(size_t collective, size_t dim) const {
    return is_all_gather(p_.eqns[collective]) ? gather_region(collective, dim) : scatter_region(collective, dim);
  }

  // The size of the largest array that has to be copied: operands that are sliced, and results that are concatenated.
  int64_t cost(const ChunkRegion& region, size_t collective) const {
    int64_t bytes = 0;
    const auto count_sliced = [&](const ChunkedEqn& step) {
      const Eqn& eqn = p_.eqns[step.eqn];
      const Rule rule = rule_of(eqn);
      for (size_t t = 0; t < eqn.in.size(); ++t)
        if (t != step.operand && rule.in[t].find(step.factor) != std::string::npos)
          bytes = std::max(bytes, p_.types[eqn.in[t]].bytes());
    };
    for (const GatherUse& use : region.uses) {
      count_sliced(use.product);
      bytes = std::max(bytes, p_.types[p_.eqns[use.product.eqn].out[0]].bytes());
    }
    if (is_reduce_scatter(p_.eqns[collective])) count_sliced(region.product);
    return bytes;
  }

  Rule rule_of(const Eqn& eqn) const {
    std::vector<Type> in;
    for (ValueId id : eqn.in) in.push_back(p_.types[id]);
    return eqn.op->rule(in, eqn.attrs);
  }

 private:
  const Eqn* producer(ValueId id) const { return maker_[id] < p_.eqns.size() ? &p_.eqns[maker_[id]] : nullptr; }

  // Whether an equation can be computed in chunks along this factor. Not with steps: they depend on extents, which
  // differ between lanes.
  static bool can_chunk(const Rule& rule, char factor) {
    const auto once = [&](const std::string& term) { return std::count(term.begin(), term.end(), factor) <= 1; };
    return rule.in_step.empty() && rule.out_step.empty() && rule.unsharded.find(factor) == std::string::npos &&
           rule.position_dependent.find(factor) == std::string::npos &&
           std::all_of(rule.in.begin(), rule.in.end(), once) && std::all_of(rule.out.begin(), rule.out.end(), once);
  }

  // The equation with its operand `t` divided along `dim`, and the dimension of its result that is thereby divided.
  std::optional<std::pair<ChunkedEqn, size_t>> from_operand(size_t i, size_t t, size_t dim) const {
    const Eqn& eqn = p_.eqns[i];
    if (!eqn.op->rule || eqn.out.size() != 1 || eqn.op->is_collective()) return std::nullopt;
    const Rule rule = rule_of(eqn);
    const char factor = rule.in[t][dim];
    const size_t at = rule.out[0].find(factor);
    if (!can_chunk(rule, factor)) return std::nullopt;
    return std::pair(ChunkedEqn{i, factor, t}, at);
  }

  // The equation with its result divided along `dim`, and the dimension of operand `t` that must be divided, or npos.
  std::optional<std::pair<ChunkedEqn, size_t>> from_result(size_t i, size_t t, size_t dim) const {
    const Eqn& eqn = p_.eqns[i];
    if (!eqn.op->rule || eqn.out.size() != 1 || eqn.op->is_collective()) return std::nullopt;
    const Rule rule = rule_of(eqn);
    const char factor = rule.out[0][dim];
    if (!can_chunk(rule, factor)) return std::nullopt;
    return std::pair(ChunkedEqn{i, factor, t}, t < rule.in.size() ? rule.in[t].find(factor) : std::string::npos);
  }

  bool is_product(size_t i) const {
    const Eqn& eqn = p_.eqns[i];
    return eqn.op->rule && eqn.op->pending == PendingReduction::sum && !eqn.op->is_collective() && !eqn.op->loop &&
           eqn.out.size() == 1;
  }

  std::optional<ChunkRegion> gather_region(size_t collective, size_t dim) const {
    ChunkRegion out;
    out.source = p_.eqns[collective].in[0];
    out.source_dim = dim;
    // Go back to an input if possible, so that views and casts are also applied to chunks.
    ValueId from = out.source;
    size_t at = dim;
    std::vector<ChunkedEqn> before;
    while (const Eqn* eqn = producer(from)) {
      if (!(is_chunkable_view(*eqn) || eqn->op->loop) || eqn->in.size() != 1) break;
      const auto step = from_result(maker_[from], 0, at);
      if (!step || step->second == std::string::npos) break;
      before.insert(before.begin(), step->first);
      from = eqn->in[0];
      at = step->second;
    }
    if (!producer(from)) {
      out.source = from;
      out.source_dim = at;
      out.before = std::move(before);
    }
    if (!collect(p_.eqns[collective].out[0], dim, {}, out.uses) || out.uses.empty()) return std::nullopt;
    // A second use gathers again. Only inputs: another source would have to be kept for it.
    if (out.uses.size() > 1 && producer(out.source)) return std::nullopt;
    return out;
  }

  bool collect(ValueId id, size_t dim, const std::vector<ChunkedEqn>& views, std::vector<GatherUse>& out) const {
    std::set<size_t> seen;
    for (size_t user : users_[id]) {
      if (user == p_.eqns.size() || !seen.insert(user).second) return false;
      const Eqn& eqn = p_.eqns[user];
      const auto t = static_cast<size_t>(std::find(eqn.in.begin(), eqn.in.end(), id) - eqn.in.begin());
      const auto step = from_operand(user, t, dim);
      if (!step) return false;
      const bool is_reduced = step->second == std::string::npos;
      if (is_chunkable_view(eqn)) {
        std::vector<ChunkedEqn> more = views;
        more.push_back(step->first);
        if (is_reduced || !collect(eqn.out[0], step->second, more, out)) return false;
        continue;
      }
      if (!is_product(user)) return false;
      out.push_back({views, step->first, is_reduced, is_reduced ? 0 : step->second});
    }
    return true;
  }

  std::optional<ChunkRegion> scatter_region(size_t collective, size_t dim) const {
    ChunkRegion out;
    std::vector<ChunkedEqn> up;
    ValueId id = p_.eqns[collective].in[0];
    size_t at = dim;
    for (;;) {
      const Eqn* eqn = producer(id);
      if (!eqn || users_[id].size() != 1) return std::nullopt;
      if (is_product(maker_[id])) break;
      if (!(is_chunkable_view(*eqn) || eqn->op->loop)) return std::nullopt;
      const size_t t = computed_operand(*eqn);
      const auto step = t < eqn->in.size() ? from_result(maker_[id], t, at) : std::nullopt;
      if (!step || step->second == std::string::npos) return std::nullopt;
      up.push_back(step->first);
      id = eqn->in[t];
      at = step->second;
    }
    const Eqn& product = p_.eqns[maker_[id]];
    const auto product_step = from_result(maker_[id], product.in.size(), at);
    if (!product_step) return std::nullopt;
    out.product = product_step->first;
    out.after.assign(up.rbegin(), up.rend());
    out.scatter = out.after.size();
    // Views of the scattered result are also done in chunks, so that it is stored as later equations read it.
    out.dim = dim;
    id = p_.eqns[collective].out[0];
    while (users_[id].size() == 1 && users_[id][0] < p_.eqns.size() && is_chunkable_view(p_.eqns[users_[id][0]])) {
      const auto step = from_operand(users_[id][0], 0, out.dim);
      if (!step || step->second == std::string::npos) break;
      out.after.push_back(step->first);
      out.dim = step->second;
      id = p_.eqns[step->first.eqn].out[0];
    }
    return out;
  }

  // The only operand that is computed; the others are inputs or free. in.size() if there is not exactly one.
  size_t computed_operand(const Eqn& eqn) const {
    size_t out = eqn.in.size();
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const Eqn* maker = producer(eqn.in[t]);
      if (!maker || (is_free(*maker) && eqn.in.size() > 1)) continue;
      if (out < eqn.in.size()) return eqn.in.size();
      out = t;
    }
    return out;
  }

  const Program& p_;
  std::vector<size_t> maker_;               // by value: its equation; eqns.size() for inputs
  std::vector<std::vector<size_t>> users_;  // by value
};

// Writes a lane's program with its regions in chunks.
class ChunkWriter {
 public:
  ChunkWriter(const Program& p, const std::vector<ChunkedCollective>& decided) : p_(p), map_(p.types.size()) {
    const RegionFinder finder(p);
    for (const ChunkedCollective& each : decided) {
      LOCKSTEP_CHECK(
          each.eqn < p.eqns.size() && (is_all_gather(p.eqns[each.eqn]) || is_reduce_scatter(p.eqns[each.eqn])),
          "equation {} is not a gather or scatter", each.eqn);
      const auto region = finder.region(each.eqn, each.dim);
      LOCKSTEP_CHECK(region, "equation {} cannot be done in chunks along dimension {}", each.eqn, each.dim);
      regions_.push_back({each, *region});
    }
    for (size_t k = 0; k < regions_.size(); ++k) {
      const auto& [each, region] = regions_[k];
      if (is_all_gather(p.eqns[each.eqn])) {
        replaced_.insert(each.eqn);
        for (size_t u = 0; u < region.uses.size(); ++u) {
          for (const ChunkedEqn& view : region.uses[u].views) replaced_.insert(view.eqn);
          emit_[region.uses[u].product.eqn] = {k, u};
        }
      } else {
        replaced_.insert(region.product.eqn);
        for (const ChunkedEqn& step : region.after) replaced_.insert(step.eqn);
        replaced_.erase(each.eqn);
        emit_[each.eqn] = {k, 0};
      }
    }
  }

  Program operator()() {
    for (ValueId id : p_.inputs) map_[id] = b_.input(p_.types[id]);
    for (size_t i = 0; i < p_.eqns.size(); ++i) {
      if (const auto here = emit_.find(i); here != emit_.end()) {
        const auto& [decided, region] = regions_[here->second.first];
        if (is_all_gather(p_.eqns[decided.eqn]))
          gather(decided, region, region.uses[here->second.second]);
        else
          scatter(decided, region);
      } else if (!replaced_.count(i)) {
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

  // Emits one chunk of an equation; `chunk` replaces the operand that is already in chunks.
  Value chunk_of(const ChunkedEqn& step, const Range& range, Value chunk) {
    const Eqn& eqn = p_.eqns[step.eqn];
    std::vector<Type> types;
    for (ValueId id : eqn.in) types.push_back(p_.types[id]);
    const Rule rule = eqn.op->rule(types, eqn.attrs);
    Values in;
    for (size_t t = 0; t < eqn.in.size(); ++t) {
      const size_t at = rule.in[t].find(step.factor);
      if (t == step.operand)
        in.push_back(chunk);
      else
        in.push_back(at == std::string::npos ? map_[eqn.in[t]] : slice_dim(map_[eqn.in[t]], at, range));
    }
    return b_.emit(*eqn.op, in, local_eqn(*eqn.op, types, eqn.attrs, {{step.factor, range}}).attrs)[0];
  }

  Value emit_collective(size_t i, Value chunk) { return b_.emit(*p_.eqns[i].op, Values{chunk}, p_.eqns[i].attrs)[0]; }

  // Writes a chunk to its position in `all`. The first chunk creates `all`.
  Value write_chunk(Value all, Value chunk, size_t dim, const Range& range, int64_t extent) {
    const auto rank = static_cast<size_t>(chunk.rank());
    if (!all) {
      std::vector<int64_t> none(rank, 0), high(rank, 0);
      high[dim] = extent - range.size();
      return pad(chunk, full(b_, {chunk.dtype(), {}}, 0), none, high, none);
    }
    Values starts;
    for (size_t d = 0; d < rank; ++d) starts.push_back(index_scalar(b_, d == dim ? range.begin : 0, all.shape()[d]));
    return update_slice(all, chunk, starts);
  }

  // Gathers chunk k + 1 before the product with chunk k.
  void gather(const ChunkedCollective& decided, const ChunkRegion& region, const GatherUse& use) {
    const Value source = map_[region.source];
    const int64_t extent = source.shape()[region.source_dim];
    const ValueId result = p_.eqns[use.product.eqn].out[0];
    const DType dtype = p_.types[result].dtype;
    // Sums of 16-bit products are computed in f32.
    const bool narrow = use.summed && is_floating(dtype) && size_of(dtype) < size_of(DType::f32);
    const auto gathered = [&](int64_t k) {
      const Range range = shard_range(extent, decided.chunks, k);
      Value x = slice_dim(source, region.source_dim, range);
      for (const ChunkedEqn& step : region.before) x = chunk_of(step, range, x);
      return emit_collective(decided.eqn, x);
    };
    Value next = gathered(0), all;
    for (int64_t k = 0; k < decided.chunks; ++k) {
      const Range range = shard_range(extent, decided.chunks, k);
      Value x = next;
      if (k + 1 < decided.chunks) next = gathered(k + 1);
      for (const ChunkedEqn& view : use.views) x = chunk_of(view, range, x);
      Value y = chunk_of(use.product, range, x);
      if (narrow) y = cast(y, DType::f32);
      if (use.summed)
        all = all ? add(all, y) : y;
      else
        all = write_chunk(all, y, use.dim, range, extent);
    }
    map_[result] = narrow ? cast(all, dtype) : all;
  }

  // Writes chunk k - 1 of the result after the product of chunk k.
  void scatter(const ChunkedCollective& decided, const ChunkRegion& region) {
    const size_t last = region.after.size() > region.scatter ? region.after.back().eqn : decided.eqn;
    const ValueId result = p_.eqns[last].out[0];
    const int64_t extent = p_.types[result].shape[region.dim];
    Value all, in_flight;
    const auto write_result = [&](int64_t k) {
      const Range range = shard_range(extent, decided.chunks, k);
      for (size_t i = region.scatter; i < region.after.size(); ++i)
        in_flight = chunk_of(region.after[i], range, in_flight);
      all = write_chunk(all, in_flight, region.dim, range, extent);
    };
    for (int64_t k = 0; k < decided.chunks; ++k) {
      const Range range = shard_range(extent, decided.chunks, k);
      Value x = chunk_of(region.product, range, {});
      if (k > 0) write_result(k - 1);
      for (size_t i = 0; i < region.scatter; ++i) x = chunk_of(region.after[i], range, x);
      in_flight = emit_collective(decided.eqn, x);
    }
    write_result(decided.chunks - 1);
    map_[result] = all;
  }

  const Program& p_;
  Builder b_;
  Values map_;
  std::vector<std::pair<ChunkedCollective, ChunkRegion>> regions_;
  std::set<size_t> replaced_;                         // equations that are only done in chunks
  std::map<size_t, std::pair<size_t, size_t>> emit_;  // by the equation that is replaced by chunks: region and use
};

}  // namespace

std::vector<ChunkedCollective> choose_chunks(const Program& p, const ChunkOptions& options) {
  const RegionFinder finder(p);
  std::vector<ChunkedCollective> out;
  std::set<size_t> taken;  // an equation is divided along one factor only
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    if (!is_all_gather(eqn) && !is_reduce_scatter(eqn)) continue;
    const Type& array = p.types[is_all_gather(eqn) ? eqn.out[0] : eqn.in[0]];
    const auto lanes = static_cast<int64_t>(eqn.attrs.ints("counts").size());
    const int64_t chunk = std::max({array.bytes() / (lanes * options.chunks_per_piece), options.min_bytes,
                                    lanes * options.min_bytes_per_lane, int64_t{1}});
    if (lanes == 1 || array.bytes() < 2 * chunk) continue;
    std::optional<std::pair<ChunkedCollective, ChunkRegion>> best;
    int64_t least_cost = array.bytes();
    for (size_t dim = 1; dim < array.shape.size(); ++dim) {
      const int64_t chunks =
          std::min((array.bytes() + chunk - 1) / chunk, array.shape[dim] / std::max<int64_t>(options.min_extent, 2));
      if (chunks < 2) continue;
      const auto region = finder.region(i, dim);
      if (!region || finder.cost(*region, i) > least_cost || (best && finder.cost(*region, i) == least_cost)) continue;
      least_cost = finder.cost(*region, i);
      best = {ChunkedCollective{i, dim, chunks}, *region};
    }
    if (!best) continue;
    std::vector<size_t> products;
    for (const GatherUse& use : best->second.uses) products.push_back(use.product.eqn);
    if (is_reduce_scatter(eqn)) products.push_back(best->second.product.eqn);
    if (std::any_of(products.begin(), products.end(), [&](size_t at) { return taken.count(at) > 0; })) continue;
    taken.insert(products.begin(), products.end());
    out.push_back(best->first);
  }
  return out;
}

Program apply_chunks(const Program& p, const std::vector<ChunkedCollective>& decided) {
  return decided.empty() ? p : checked(ChunkWriter(p, decided)());
}

}  // namespace lockstep
