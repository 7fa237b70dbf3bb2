// A row on pieces is the row on the whole: for every factor of its rule that may be cut, each device computes on its
// piece, and what comes out is the result cut alike, or a part of it that is owed a sum.
#include "ops/collectives.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

// The dimension of a factor, or -1.
int64_t place(const std::string& factors, char factor) {
  const size_t at = factors.find(factor);
  return at == std::string::npos ? -1 : static_cast<int64_t>(at);
}

// [.., n * k, ..] as [n, .., k, ..], and the other way round.
HostArray cut(const HostArray& x, int64_t dim, int64_t n) {
  Type type = x.type;
  const auto d = static_cast<size_t>(dim);
  type.shape[d] /= n;
  const int64_t k = type.shape[d];
  type.shape = prepend(n, type.shape);
  HostArray out(type);
  for_each_index(x.type.shape, [&](const Dims& at, int64_t i) {
    Dims to = prepend(at[d] / k, at);
    to[d + 1] %= k;
    copy_element(x, i, out, position(type.shape, to));
  });
  return out;
}
HostArray put_together(const HostArray& x, int64_t dim) {
  Type type = x.type;
  const auto d = static_cast<size_t>(dim);
  const int64_t n = type.shape[0], k = type.shape[d + 1];
  type.shape.erase(type.shape.begin());
  type.shape[d] *= n;
  HostArray out(type);
  for_each_index(type.shape, [&](const Dims& at, int64_t i) {
    Dims from = prepend(at[d] / k, at);
    from[d + 1] %= k;
    copy_element(x, position(x.type.shape, from), out, i);
  });
  return out;
}

// How parts computed from a cut reduced factor become the result; null: they do not.
using Combine = Value (*)(Value, const std::string&);
Combine combining(const Op& op) {
  if (&op == &reduce_max_op) return pmax;
  if (&op == &reduce_min_op) return pmin;
  return op.linear != Linear::no && op.name != "reduce_prod" ? static_cast<Combine>(psum) : nullptr;
}

// Can this factor be cut n ways, and do the pieces have the types that the row gives them?
bool cuttable(const Op& op, const Sample& sample, const Rule& rule, char factor, int64_t n, std::vector<Type>& pieces) {
  if (rule.whole.find(factor) != std::string::npos) return false;
  pieces = sample.types();
  bool any = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t d = place(rule.in[i], factor);
    if (d < 0) continue;
    if (place(rule.in[i].substr(static_cast<size_t>(d) + 1), factor) >= 0) return false;
    int64_t& extent = pieces[i].shape[static_cast<size_t>(d)];
    if (extent % n != 0 || extent == 0) return false;
    extent /= n;
    any = true;
  }
  if (!any) return false;
  std::vector<Type> wanted = infer_types(op, sample.types(), sample.attrs);
  size_t having = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const int64_t d = place(rule.out[k], factor);
    if (d < 0) continue;
    ++having;
    wanted[k].shape[static_cast<size_t>(d)] /= n;
  }
  if (having != 0 && having != wanted.size()) return false;
  if (having == 0 && !combining(op)) return false;
  try {
    return infer_types(op, pieces, sample.attrs) == wanted;
  } catch (const Error&) {
    return false;  // attributes speak of the whole
  }
}

void expect_sharded(const Op& op, const Sample& sample, const Rule& rule, char factor, int64_t n,
                    const std::vector<Type>& pieces, bool relative) {
  const HostArrays inputs = make_inputs(sample, 31);
  HostArrays parts = inputs;
  Builder b;
  Values in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type type = pieces[i];
    if (const int64_t d = place(rule.in[i], factor); d >= 0) {
      type.varying = {kAxis};
      parts[i] = cut(inputs[i], d, n);
    }
    in.push_back(b.input(type));
  }
  Values out = b.emit(op, in, sample.attrs);
  for (size_t k = 0; k < out.size(); ++k)
    if (place(rule.out[k], factor) < 0) out[k] = combining(op)(out[k], kAxis);
  const Program p = b.take(out);
  ASSERT_NO_THROW(check(p)) << print(p);
  const HostArrays got = planned(spread(p, n), parts), wanted = eager(program_of(op, sample), inputs);
  for (size_t k = 0; k < got.size(); ++k) {
    const int64_t d = place(rule.out[k], factor);
    expect_close(d < 0 ? got[k] : put_together(got[k], d), wanted[k], relative);
  }
}

TEST(ShardedRows, EqualUnsharded) {
  std::set<std::string> seen;
  for (const Row& row : rows()) {
    if (!row.op->rule || row.lowered) continue;
    for (const Sample& sample : row.samples) {
      int64_t elements = 0;
      for (const Operand& operand : sample.in) elements += count(operand.type.shape);
      if (elements > 4000) continue;
      const Rule rule = row.op->rule(sample.types(), sample.attrs);
      std::set<char> factors;
      for (const std::string& of_operand : rule.in) factors.insert(of_operand.begin(), of_operand.end());
      for (char factor : factors)
        for (int64_t n : {1, 2, 3, 4}) {
          std::vector<Type> pieces;
          if (!cuttable(*row.op, sample, rule, factor, n, pieces)) continue;
          SCOPED_TRACE(testing::Message() << sample.text(*row.op) << "factor " << factor << " cut " << n << " ways");
          expect_sharded(*row.op, sample, rule, factor, n, pieces, row.relative);
          seen.insert(std::string(row.op->name));
        }
    }
  }
  for (const char* name : {"add", "tanh", "select", "cast", "einsum", "reduce_sum", "reduce_max", "transpose", "gather",
                           "cumsum", "sort", "concatenate", "conv2d"})
    EXPECT_TRUE(seen.contains(name)) << name << " was cut nowhere";
  EXPECT_GT(seen.size(), 40u) << testing::PrintToString(seen);
}

}  // namespace
}  // namespace lockstep
