// A row on shards equals the row on the complete arrays. For every row with a rule, and every assignment of mesh axes
// to factors that may be sharded, each device computes on its shard. Its result is a shard of the complete result, or
// partial, with a sum or extreme pending.
#include "lockstep/shard_map.h"

#include <map>
#include <set>

#include "array/apply.h"
#include "ops/collectives.h"
#include "ops/ops.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxElements = 4000;  // in all operands of a sample

class FourDevices : public testing::Environment {
  void SetUp() override { set_cpu_devices(4); }
};
testing::Environment* const environment = testing::AddGlobalTestEnvironment(new FourDevices);

class ShardedRows : public testing::TestWithParam<const Op*> {
 protected:
  const Op& op() const { return *GetParam(); }
  const Row& row() const { return row_of(op()); }
};

std::vector<const Op*> ops_with_rules() {
  std::vector<const Op*> out;
  for (const Op* op : all_ops())
    if (op->rule) out.push_back(op);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Op, ShardedRows, testing::ValuesIn(ops_with_rules()),
                         [](const auto& op) { return std::string(op.param->name); });

bool has(const std::string& factors, char factor) { return factors.find(factor) != std::string::npos; }

bool is_small(const Sample& sample) {
  int64_t elements = 0;
  for (const SampleOperand& operand : sample.in) elements += count(operand.type.shape);
  return elements <= kMaxElements;
}

// The factors of a row on a sample.
struct FactorTable {
  Rule rule;
  std::map<char, int64_t> extent;  // in steps
  std::string free;                // may be sharded
  std::string unplaced;            // of these, may be sharded over devices that share one program

  FactorTable(const Op& op, const Sample& sample) : rule(op.rule(sample.types(), sample.attrs)) {
    const std::vector<Type> in = sample.types(), out = infer_types(op, in, sample.attrs);
    auto learn = [&](Types types, const std::vector<std::string>& terms, const Steps& steps) {
      ASSERT_EQ(terms.size(), types.size());
      for (size_t t = 0; t < terms.size(); ++t) {
        ASSERT_EQ(terms[t].size(), types[t].shape.size());
        for (size_t d = 0; d < terms[t].size(); ++d) {
          const int64_t step = step_of(steps, t, terms[t][d]), n = types[t].shape[d] / step;
          EXPECT_EQ(n * step, types[t].shape[d]) << terms[t][d];
          EXPECT_EQ(extent.emplace(terms[t][d], n).first->second, n) << terms[t][d];
          EXPECT_FALSE(has(terms[t].substr(d + 1), terms[t][d])) << "a factor twice in " << terms[t];
        }
      }
    };
    learn(in, rule.in, rule.in_step);
    learn(out, rule.out, rule.out_step);
    for (const auto& [factor, n] : extent)
      if (!has(rule.unsharded, factor)) free += factor;
    for (char factor : free)
      if (!has(rule.position_dependent, factor)) unplaced += factor;
    for (char factor : free)
      EXPECT_TRUE(
          op.pending != PendingReduction::none ||
          std::all_of(rule.out.begin(), rule.out.end(), [&](const std::string& term) { return has(term, factor); }))
          << "factor " << factor << " is reduced and may be sharded, but the row has no pending reduction";
  }

  // Whether each of n shards is as large as the halos of its neighbors, as the partitioner requires.
  bool contains_halos(char factor, int64_t n) const {
    for (size_t t = 0; t < rule.in_halo.size(); ++t)
      if (const Halo halo = halo_of(rule, t, factor); rule.in_halo[t].contains(factor))
        if (extent.at(factor) / n * step_of(rule.in_step, t, factor) < std::max<int64_t>({halo.before, halo.after, 1}))
          return false;
    return true;
  }

  // The role of a factor in the row, independent of its letter: the operands and results that have it.
  std::string role(char factor) const {
    auto places = [&](const std::vector<std::string>& terms) {
      std::string out;
      for (size_t t = 0; t < terms.size(); ++t)
        if (has(terms[t], factor)) out += std::to_string(t) + " ";
      const auto n = std::count_if(terms.begin(), terms.end(), [&](const auto& term) { return has(term, factor); });
      return n == 0 ? "none " : n == std::ssize(terms) ? "all " : out;
    };
    return places(rule.in) + "-> " + places(rule.out);
  }
};

// The factor that each mesh axis shards, '-' for none.
using Assignment = std::string;

std::vector<Assignment> assignments(size_t axes, const std::string& factors) {
  std::vector<Assignment> out{""};
  for (size_t a = 0; a < axes; ++a) {
    std::vector<Assignment> longer;
    for (const Assignment& assignment : out)
      for (char factor : "-" + factors) longer.push_back(assignment + factor);
    out = std::move(longer);
  }
  return out;
}

// A row whose factors are sharded over the axes of a mesh.
struct Assigned {
  const Op& op;
  const Sample& sample;
  const FactorTable& factors;
  Mesh mesh;
  Assignment assignment;

  std::vector<std::string> axes_of(char factor) const {
    std::vector<std::string> out;
    for (size_t a = 0; a < assignment.size(); ++a)
      if (assignment[a] == factor) out.push_back(mesh.axis_names()[a]);
    return out;
  }
  int64_t pieces(char factor) const {
    int64_t n = 1;
    for (const std::string& axis : axes_of(factor)) n *= mesh.size(axis);
    return n;
  }
  bool divides() const {
    return std::all_of(assignment.begin(), assignment.end(),
                       [&](char factor) { return factor == '-' || factors.extent.at(factor) % pieces(factor) == 0; });
  }
  std::vector<PartitionSpec> specs(const std::vector<std::string>& terms) const {
    std::vector<PartitionSpec> out(terms.size());
    for (size_t t = 0; t < terms.size(); ++t)
      for (char factor : terms[t]) out[t].entries.emplace_back(axes_of(factor));
    return out;
  }
  // The equation of the device that has shard `at` of all sharded factors.
  LocalEqn eqn(int64_t at) const {
    FactorRanges cut;
    for (char factor : assignment) {
      if (factor == '-') continue;
      const int64_t n = pieces(factor);
      cut[factor] = shard_range(factors.extent.at(factor), n, std::min(at, n - 1));
    }
    return local_eqn(op, sample.types(), sample.attrs, cut);
  }
};

// Combines the parts of all devices along the axis to the same value on each.
template <class T>
T joined(PendingReduction pending, const T& part, const std::string& axis) {
  return pending == PendingReduction::sum   ? psum(part, axis)
         : pending == PendingReduction::max ? pmax(part, axis)
                                            : pmin(part, axis);
}

// `part`, a result of the row on shards, after the pending reduction.
template <class T>
T settled(const Assigned& a, T part, size_t result) {
  for (size_t axis = 0; axis < a.assignment.size(); ++axis)
    if (const char factor = a.assignment[axis]; factor != '-' && !has(a.factors.rule.out[result], factor))
      part = joined(a.op.pending, part, a.mesh.axis_names()[axis]);
  return part;
}

Program program_of(const Assigned& a, const LocalEqn& eqn) {
  Builder b;
  Values in;
  for (size_t i = 0; i < eqn.in.size(); ++i) {
    Type type = eqn.in[i];
    for (char factor : a.factors.rule.in[i]) type.varying = union_of(type.varying, a.axes_of(factor));
    in.push_back(b.input(type));
  }
  Values out = b.emit(a.op, in, eqn.attrs);
  for (size_t k = 0; k < out.size(); ++k) out[k] = settled(a, out[k], k);
  return b.take(out);
}

detail::Arrays to_arrays(const HostArrays& hosts) {
  detail::Arrays out;
  for (const HostArray& x : hosts) out.push_back(detail::concrete(detail::intern(x.type), x.buffer));
  return out;
}
HostArray to_host(const Array& array) {
  HostArray out;
  out.type = array.type();
  out.buffer = detail::buffer_of(array, "test");
  return out;
}

// Runs the row as shard_map does, which takes one device's program.
void expect_sharded(const Assigned& a, const HostArrays& inputs, const HostArrays& wanted, bool relative) {
  const LocalEqn eqn = a.eqn(0);
  EXPECT_TRUE(eqn.attrs == a.eqn(a.mesh.size()).attrs) << "devices with equal shards have different attributes";
  const Program p = program_of(a, eqn);
  ASSERT_NO_THROW(check(p)) << print(p);
  const detail::Arrays got =
      detail::run_per_device({std::make_shared<const Program>(p), {}}, to_arrays(inputs), a.specs(a.factors.rule.in),
                             a.specs(a.factors.rule.out), {a.mesh, {}, {}});
  for (size_t k = 0; k < wanted.size(); ++k) expect_close(to_host(got[k]), wanted[k], relative);
}

std::vector<Mesh> meshes() {
  return {make_mesh({{"x", 1}}), make_mesh({{"x", 2}}), make_mesh({{"x", 3}}), make_mesh({{"x", 4}}),
          make_mesh({{"x", 2}, {"y", 2}})};
}

// Checks that the samples cover: each role of a factor sharded 2, 3 and 4 ways by one axis and 4 ways by two, and every
// two roles that occur in a sample sharded together.
class Coverage {
 public:
  void want(const FactorTable& factors) {
    for (char f : factors.unplaced) {
      for (const char* mesh : {"[2]", "[3]", "[4]"}) wanted_.insert(factors.role(f) + "on " + mesh);
      for (char g : factors.unplaced)
        wanted_.insert(factors.role(f) + (f == g ? "twice " : "and " + factors.role(g)) + "on [2, 2]");
    }
  }
  void saw(const Assigned& a) {
    ++count_;
    std::string roles;
    for (size_t axis = 0; axis < a.assignment.size(); ++axis) {
      const char factor = a.assignment[axis];
      if (factor == '-' || a.factors.extent.at(factor) == 0) return;
      const bool twice = axis > 0 && a.assignment[0] == factor;
      roles += twice ? "twice " : (axis > 0 ? "and " : "") + a.factors.role(factor);
    }
    seen_.insert(roles + "on " + to_string(a.mesh.shape()));
  }
  int count() const { return count_; }
  bool wanted() const { return !wanted_.empty(); }
  std::set<std::string> missed() const {
    std::set<std::string> out;
    std::set_difference(wanted_.begin(), wanted_.end(), seen_.begin(), seen_.end(), std::inserter(out, out.end()));
    return out;
  }

 private:
  std::set<std::string> wanted_, seen_;
  int count_ = 0;
};

TEST_P(ShardedRows, EqualUnsharded) {
  Coverage coverage;
  for (const Sample& sample : row().samples) {
    SCOPED_TRACE(sample.text(op()));
    const FactorTable factors(op(), sample);
    coverage.want(factors);
    if (!is_small(sample)) continue;
    const HostArrays inputs = make_inputs(sample, 31), wanted = eager(program_of(op(), sample), inputs);
    for (const Mesh& mesh : meshes())
      for (const Assignment& assignment : assignments(mesh.shape().size(), factors.unplaced)) {
        const Assigned assigned{op(), sample, factors, mesh, assignment};
        if (!assigned.divides()) continue;
        SCOPED_TRACE("factors " + assignment + " on " + to_string(mesh));
        expect_sharded(assigned, inputs, wanted, row().relative);
        coverage.saw(assigned);
      }
  }
  RecordProperty("assignments", coverage.count());
  EXPECT_TRUE(coverage.wanted()) << "no sample has a factor that may be sharded";
  EXPECT_EQ(coverage.missed(), std::set<std::string>{}) << "add samples with extents that divide by 2, 3 and 4";
}

// Calls f(global index, local index) for every element of a shard that begins at `begin` of dimension `dim`.
void for_piece(const Shape& whole, const Shape& piece, size_t dim, int64_t begin,
               const std::function<void(int64_t, int64_t)>& f) {
  for_each_index(piece, [&](Dims at, int64_t i) {
    at[dim] += begin;
    f(position(whole, at), i);
  });
}

// Shards one factor over lanes, in shards of different sizes, some of which may be empty.
void expect_cut_unevenly(const Op& op, const Sample& sample, const FactorTable& factors, char factor, int64_t n,
                         const HostArrays& inputs, const HostArrays& wanted, bool relative) {
  const Op& join = op.pending == PendingReduction::sum   ? add_op
                   : op.pending == PendingReduction::max ? maximum_op
                                                         : minimum_op;
  HostArrays got;
  for (const HostArray& y : wanted) got.emplace_back(y.type);
  for (int64_t lane = 0; lane < n; ++lane) {
    const Range range = shard_range(factors.extent.at(factor), n, lane);
    const LocalEqn eqn = local_eqn(op, sample.types(), sample.attrs, {{factor, range}});
    HostArrays in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      in.push_back(inputs[i]);
      const size_t d = factors.rule.in[i].find(factor);
      if (d == std::string::npos) continue;
      in[i] = HostArray(eqn.in[i]);
      const int64_t before = halo_of_shard(factors.rule, i, factor, range, factors.extent.at(factor)).before;
      for_piece(inputs[i].type.shape, eqn.in[i].shape, d,
                range.begin * step_of(factors.rule.in_step, i, factor) - before,
                [&](int64_t whole, int64_t piece) { copy_element(inputs[i], whole, in[i], piece); });
    }
    const HostArrays parts = eager_op(op, eqn.attrs, in);
    for (size_t k = 0; k < parts.size(); ++k) {
      if (const size_t d = factors.rule.out[k].find(factor); d != std::string::npos)
        for_piece(got[k].type.shape, eqn.out[k].shape, d, range.begin * step_of(factors.rule.out_step, k, factor),
                  [&](int64_t whole, int64_t piece) { copy_element(parts[k], piece, got[k], whole); });
      else
        got[k] = lane == 0 ? parts[k] : eager_op(join, {}, {got[k], parts[k]})[0];
    }
  }
  for (size_t k = 0; k < wanted.size(); ++k) expect_close(got[k], wanted[k], relative);
}

TEST_P(ShardedRows, EqualUnshardedWithUnevenShards) {
  int cuts = 0;
  for (const Sample& original : row().samples) {
    if (!is_small(original)) continue;
    // Every partial sum is rounded, which is visible in 16 bits.
    const bool widens = op().pending == PendingReduction::sum && !op().takes_float8;
    const Sample sample = widens ? in_f64(original) : original;
    SCOPED_TRACE(sample.text(op()));
    const FactorTable factors(op(), sample);
    const HostArrays inputs = make_inputs(sample, 37), wanted = eager(program_of(op(), sample), inputs);
    for (char factor : factors.free)
      for (int64_t n : {2, 3, 5}) {
        if (factors.extent.at(factor) % n == 0 && !has(factors.rule.position_dependent, factor)) continue;
        if (!factors.contains_halos(factor, n)) continue;
        SCOPED_TRACE(testing::Message() << "factor " << factor << " on " << n << " lanes");
        expect_cut_unevenly(op(), sample, factors, factor, n, inputs, wanted, row().relative);
        ++cuts;
      }
  }
  EXPECT_GT(cuts, 0);
}

// The property that the column `linear` promises: the row of a sum is the sum of the rows of the terms, in each operand
// separately or in all of them together.
TEST_P(ShardedRows, LinearRowsCommuteWithSums) {
  if (op().linear == Linear::no) return;
  int sums = 0;
  for (const Sample& original : row().samples) {
    const Sample sample = in_f64(original);
    const std::vector<Type> types = sample.types();
    if (!is_small(sample) || !sample.smooth ||
        !std::all_of(types.begin(), types.end(), [](const Type& t) { return t.dtype == f64; }))
      continue;
    SCOPED_TRACE(sample.text(op()));
    const HostArrays some = make_inputs(sample, 43), others = make_inputs(sample, 47);
    const bool at_once = op().linear == Linear::all;
    for (size_t i = 0; i < (at_once ? 1 : types.size()); ++i) {
      HostArrays other = some, sum = some;
      for (size_t k = 0; k < types.size(); ++k) {
        if (!at_once && k != i) continue;
        other[k] = others[k];
        sum[k] = eager_op(add_op, {}, {some[k], others[k]})[0];
      }
      const HostArrays wanted = eager_op(op(), sample.attrs, sum), a = eager_op(op(), sample.attrs, some),
                       b = eager_op(op(), sample.attrs, other);
      for (size_t k = 0; k < wanted.size(); ++k) expect_close(eager_op(add_op, {}, {a[k], b[k]})[0], wanted[k]);
      ++sums;
    }
  }
  EXPECT_GT(sums, 0);
}

// The row inside a function for the public shard_map.
Array by_shard_map(const Assigned& a, const detail::Arrays& args) {
  const LocalEqn eqn = a.eqn(0);
  auto one_device = [&](const detail::Arrays& pieces) {
    const Array part =
        detail::apply("row", pieces, {}, [&](Builder& b, const Values& v) { return b.emit(a.op, v, eqn.attrs); })[0];
    return settled(a, part, 0);
  };
  const ShardMapOptions options{a.mesh, a.specs(a.factors.rule.in), a.specs(a.factors.rule.out)};
  if (args.size() == 1) return shard_map([&](Array x) { return one_device({x}); }, options)(args[0]);
  return shard_map([&](Array x, Array y) { return one_device({x, y}); }, options)(args[0], args[1]);
}

TEST(ShardMapOfRows, EqualsUnsharded) {
  int runs = 0;
  for (const Op* op :
       {&add_op, &tanh_op, &broadcast_op, &reshape_op, &slice_op, &reduce_sum_op, &reduce_max_op, &reduce_and_op,
        &cumsum_op, &cummax_op, &gather_op, &einsum_op, &conv2d_op, &conv2d_filter_grad_op}) {
    for (const Sample& sample : row_of(*op).samples) {
      if (!is_small(sample)) continue;
      SCOPED_TRACE(sample.text(*op));
      const FactorTable factors(*op, sample);
      const HostArrays inputs = make_inputs(sample, 41), wanted = eager(program_of(*op, sample), inputs);
      for (const Assignment& assignment : assignments(2, factors.unplaced)) {
        const Assigned assigned{*op, sample, factors, make_mesh({{"x", 2}, {"y", 2}}), assignment};
        if (!assigned.divides()) continue;
        SCOPED_TRACE("factors " + assignment);
        expect_close(to_host(by_shard_map(assigned, to_arrays(inputs))), wanted[0], row_of(*op).relative);
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 500);
}

}  // namespace
}  // namespace lockstep
