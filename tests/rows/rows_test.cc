// Properties of every row: its kernels match the reference, its gradient and its tangents match finite differences, its
// batching matches a loop, and its text can be parsed again.
#include "rows/rows.h"

#include <map>
#include <random>
#include <string>

#ifdef LOCKSTEP_WITH_CUDA
#include "ops/ops.h"
#include "rows/on_gpu.h"
#endif

namespace lockstep {
namespace {

constexpr int64_t kSmallSample = 2000;  // larger samples are used only for kernels

bool is_small_sample(const Sample& sample) {
  for (const SampleOperand& operand : sample.in)
    if (count(operand.type.shape) > kSmallSample) return false;
  return true;
}

class Rows : public testing::TestWithParam<const Op*> {
 protected:
  const Op& op() const { return *GetParam(); }
  const Row& row() const { return row_of(op()); }
};
class RowsWithGradient : public Rows {};
class TracedRows : public Rows {};
class DerivedRows : public Rows {};  // their batching is derived from their rule

std::vector<const Op*> ops_where(bool (*wanted)(const Op&)) {
  std::vector<const Op*> out;
  for (const Op* op : all_ops())
    if (wanted(*op) && !op->is_collective()) out.push_back(op);  // collectives between lanes have their own tests
  return out;
}

// Whether traces contain this row. Rows that only lowering emits are never batched.
bool traced(const Op& op) {
  for (const Row& row : rows())
    if (row.op == &op) return !row.lowered;
  return true;
}

std::string op_name(const testing::TestParamInfo<const Op*>& op) { return std::string(op.param->name); }

INSTANTIATE_TEST_SUITE_P(Op, Rows, testing::ValuesIn(ops_where([](const Op&) { return true; })), op_name);
INSTANTIATE_TEST_SUITE_P(Op, RowsWithGradient,
                         testing::ValuesIn(ops_where([](const Op& op) { return op.vjp != nullptr; })), op_name);
INSTANTIATE_TEST_SUITE_P(Op, TracedRows, testing::ValuesIn(ops_where(traced)), op_name);
INSTANTIATE_TEST_SUITE_P(Op, DerivedRows,
                         testing::ValuesIn(ops_where([](const Op& op) { return op.rule && !op.batch; })), op_name);

TEST_P(Rows, HasSamplesAndAReference) {
  ASSERT_NO_THROW(row());
  EXPECT_FALSE(row().samples.empty());
  EXPECT_TRUE(row().reference);
}

TEST_P(Rows, CpuMatchesReference) {
  for (const Sample& sample : row().samples) {
    SCOPED_TRACE(sample.text(op()));
    const HostArrays in = make_inputs(sample, 7);
    RefArrays wide;
    for (const HostArray& x : in) wide.push_back(to_reference(x));
    const RefArrays wanted = reference_of(op(), sample, wide);
    const Program p = for_all_devices(program_of(op(), sample), sample.devices);
    const HostArrays got = eager(p, in), plan = planned(p, in);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t k = 0; k < got.size(); ++k) {
      expect_close(got[k], from_reference(wanted[k]), row().relative);
      expect_close(plan[k], from_reference(wanted[k]), row().relative);
    }
  }
}

#ifdef LOCKSTEP_WITH_CUDA
TEST_P(Rows, GpuMatchesReference) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_why_not();
  for (const Sample& sample : row().samples) {
    SCOPED_TRACE(sample.text(op()));
    const HostArrays in = make_inputs(sample, 7);
    RefArrays wide;
    for (const HostArray& x : in) wide.push_back(to_reference(x));
    const RefArrays wanted = reference_of(op(), sample, wide);
    const HostArrays got = planned_on_gpu(for_all_devices(program_of(op(), sample), sample.devices), in);
    for (size_t k = 0; k < got.size(); ++k) expect_close(got[k], from_reference(wanted[k]), row().relative);
  }
}
#endif

// The sum over the finite floating outputs of ct * p(inputs).
double weighted(const Program& p, const HostArrays& inputs, const HostArrays& cts) {
  const HostArrays y = eager(p, inputs);
  double sum = 0;
  size_t next = 0;
  for (const HostArray& part : y) {
    if (!is_inexact(part.type.dtype)) continue;
    const HostArray& ct = cts[next++];
    for (int64_t i = 0; i < part.size(); ++i)
      if (std::isfinite(part.get(i))) sum += pairing_sign(ct, i) * ct.get(i) * part.get(i);
  }
  return sum;
}

// The derivative along `directions` of the combination of the floating outputs with weights `cts`, by forward mode.
double forward_derivative(const Program& one, HostArrays inputs, const std::vector<bool>& wanted,
                          const HostArrays& directions, const HostArrays& cts, int64_t devices) {
  const Program p = jvp(one, wanted);
  EXPECT_NO_THROW(check(p)) << print(p);
  inputs.insert(inputs.end(), directions.begin(), directions.end());
  const HostArrays results = planned(for_all_devices(p, devices), inputs);
  double sum = 0;
  for (size_t k = 0; k < cts.size(); ++k) {
    const HostArray& tangent = results.at(one.outputs.size() + k);
    for (int64_t i = 0; i < tangent.size(); ++i) sum += pairing_sign(tangent, i) * cts[k].get(i) * tangent.get(i);
  }
  return sum;
}

// Compares the gradient of an f64 program along a random direction of the wanted inputs with central differences, and
// with forward mode. `devices`: as in Sample.
void expect_gradient_along(const Program& one, const HostArrays& inputs, const std::vector<bool>& wanted,
                           int64_t devices) {
  const Program joined = joint(one, wanted);
  ASSERT_NO_THROW(check(joined)) << print(joined);
  const Program p = for_all_devices(one, devices), both = for_all_devices(joined, devices);
  HostArrays args = inputs, cts;
  uint32_t seed = 50;
  for (const Type& t : p.output_types())
    if (is_inexact(t.dtype)) cts.push_back(normal_numbers(t, ++seed));
  args.insert(args.end(), cts.begin(), cts.end());
  const HostArrays results = planned(both, args);
  constexpr double kStep = 1e-5;
  HostArrays up = inputs, down = inputs, directions;
  double along = 0, scale = 1;
  size_t next = p.outputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!wanted[i]) continue;
    directions.push_back(normal_numbers(inputs[i].type, ++seed));
    const HostArray &direction = directions.back(), &gradient = results.at(next++);
    ASSERT_EQ(to_string(gradient.type), to_string(inputs[i].type));
    up[i] = copy_of(inputs[i]);
    down[i] = copy_of(inputs[i]);
    for (int64_t k = 0; k < direction.size(); ++k) {
      along += pairing_sign(gradient, k) * gradient.get(k) * direction.get(k);
      scale += std::abs(gradient.get(k) * direction.get(k));
      up[i].set(k, inputs[i].get(k) + kStep * direction.get(k));
      down[i].set(k, inputs[i].get(k) - kStep * direction.get(k));
    }
  }
  const double difference = (weighted(p, up, cts) - weighted(p, down, cts)) / (2 * kStep);
  EXPECT_NEAR(along, difference, 2e-6 * scale) << print(simplify(both));
  if (!has_tangents(one)) return;
  EXPECT_NEAR(along, forward_derivative(one, inputs, wanted, directions, cts, devices), 1e-9 * scale)
      << print(simplify(jvp(one, wanted)));
}

std::vector<bool> differentiable(const Sample& sample) {
  std::vector<bool> wanted;
  for (const SampleOperand& operand : sample.in) wanted.push_back(is_inexact(operand.type.dtype) && operand.differentiable);
  return wanted;
}

// Each wanted operand alone, and all of them together.
std::vector<std::vector<bool>> choices(const std::vector<bool>& wanted) {
  std::vector<std::vector<bool>> out;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    out.emplace_back(wanted.size(), false);
    out.back()[i] = true;
  }
  if (out.size() > 1) out.push_back(wanted);
  return out;
}

TEST_P(RowsWithGradient, GradientMatchesFiniteDifference) {
  for (const Sample& original : row().samples) {
    if (!original.smooth || !is_small_sample(original)) continue;
    const Sample sample = in_f64(original);
    SCOPED_TRACE(sample.text(op()));
    const Program p = program_of(op(), sample);
    const HostArrays inputs = make_inputs(sample, 11);
    for (const std::vector<bool>& wanted : choices(differentiable(sample)))
      expect_gradient_along(p, inputs, wanted, sample.devices);
  }
}

// The gradient of a random combination of gradients.
TEST_P(RowsWithGradient, SecondGradientMatchesFiniteDifference) {
  for (const Sample& original : row().samples) {
    if (!original.smooth || !is_small_sample(original)) continue;
    const Sample sample = in_f64(original);
    SCOPED_TRACE(sample.text(op()));
    const Program p = program_of(op(), sample);
    std::vector<bool> wanted = differentiable(sample);
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) continue;
    Program first = joint(p, wanted);
    first = drop_dead(select_outputs(first, p.outputs.size(), first.outputs.size()));
    HostArrays inputs = make_inputs(sample, 13);
    const std::vector<Type> stored = for_all_devices(first, sample.devices).input_types();
    for (size_t i = inputs.size(); i < stored.size(); ++i) {
      inputs.push_back(normal_numbers(stored[i], 90 + static_cast<uint32_t>(i)));
      wanted.push_back(true);
    }
    expect_gradient_along(first, inputs, wanted, sample.devices);
  }
}

// The gradient of tangents; above are the tangents of gradients.
TEST_P(RowsWithGradient, GradientOfTangentsMatchesFiniteDifference) {
  for (const Sample& original : row().samples) {
    if (!original.smooth || !is_small_sample(original)) continue;
    const Sample sample = in_f64(original);
    SCOPED_TRACE(sample.text(op()));
    const Program p = program_of(op(), sample);
    std::vector<bool> wanted = differentiable(sample);
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end() || !has_tangents(p)) continue;
    Program tangents = jvp(p, wanted);
    tangents = drop_dead(select_outputs(tangents, p.outputs.size(), tangents.outputs.size()));
    HostArrays inputs = make_inputs(sample, 13);
    const std::vector<Type> stored = for_all_devices(tangents, sample.devices).input_types();
    for (size_t i = inputs.size(); i < stored.size(); ++i) {
      inputs.push_back(normal_numbers(stored[i], 90 + static_cast<uint32_t>(i)));
      wanted.push_back(true);
    }
    expect_gradient_along(tangents, inputs, wanted, sample.devices);
  }
}

// Whether every operand that is computed from operand 0 is batched if operand 0 is.
bool consistent(const Sample& sample, const std::vector<bool>& batched) {
  for (size_t i = 0; i < batched.size(); ++i)
    if (sample.in[i].domain.kind == Domain::pooled && batched[i] != batched[0]) return false;
  return true;
}

bool varies(const Type& t) { return std::find(t.varying.begin(), t.varying.end(), kAxis) != t.varying.end(); }

// [a, b, ...] as [b, a, ...].
HostArray swapped(const HostArray& x) {
  Type type = x.type;
  std::swap(type.shape[0], type.shape[1]);
  HostArray out(type);
  const int64_t rows = type.shape[1], columns = type.shape[0], block = x.size() / std::max<int64_t>(rows * columns, 1);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t row = i / block / columns, column = i / block % columns;
    copy_element(x, i, out, (column * rows + row) * block + i % block);
  }
  return out;
}

// A collective is batched first; the dimension of its devices then comes before the batch.
void expect_batch_is_loop(const Op& op, const Sample& sample, const std::vector<bool>& batched, bool relative) {
  constexpr int64_t kBatch = 3;
  std::vector<HostArrays> examples;
  for (uint32_t b = 0; b < kBatch; ++b) examples.push_back(make_inputs(sample, 20 + b));
  HostArrays inputs;
  for (size_t i = 0; i < batched.size(); ++i) {
    inputs.push_back(batched[i] ? stack(examples, i) : examples[0][i]);
    if (batched[i] && varies(sample.in[i].type)) inputs[i] = swapped(inputs[i]);
  }
  const Program one = program_of(op, sample);
  const BatchedProgram all = batch(one, batched, kBatch, {});
  ASSERT_NO_THROW(check(all.program));
  SCOPED_TRACE(print(all.program));
  HostArrays got = planned(for_all_devices(all.program, sample.devices), inputs);
  const std::vector<Type> out_types = one.output_types();
  for (size_t k = 0; k < got.size(); ++k)
    if (all.batched[k] && varies(out_types[k])) got[k] = swapped(got[k]);
  for (int64_t b = 0; b < kBatch; ++b) {
    HostArrays in;
    for (size_t i = 0; i < batched.size(); ++i) in.push_back(examples[batched[i] ? static_cast<size_t>(b) : 0][i]);
    const HostArrays wanted = eager(for_all_devices(one, sample.devices), in);
    for (size_t k = 0; k < wanted.size(); ++k)
      expect_close(all.batched[k] ? got[k].row(b) : got[k], wanted[k], relative);
  }
  // An empty batch.
  const Program empty = for_all_devices(batch(one, batched, 0, {}).program, sample.devices);
  HostArrays none;
  for (ValueId id : empty.inputs) none.emplace_back(empty.types[id]);
  for (size_t i = 0; i < batched.size(); ++i)
    if (!batched[i]) none[i] = inputs[i];
  planned(empty, none);
}

TEST_P(TracedRows, BatchMatchesLoop) {
  for (const Sample& sample : row().samples) {
    if (!is_small_sample(sample)) continue;
    for (uint32_t bits = 1; bits < 1u << sample.in.size(); ++bits) {
      std::vector<bool> batched;
      for (size_t i = 0; i < sample.in.size(); ++i) batched.push_back((bits >> i & 1) != 0);
      if (consistent(sample, batched)) expect_batch_is_loop(op(), sample, batched, row().relative);
    }
  }
}

// A choice of at least one operand.
std::vector<bool> any_operands(const Sample& sample, std::mt19937& random) {
  while (true) {
    std::vector<bool> chosen;
    for (size_t i = 0; i < sample.in.size(); ++i) chosen.push_back(random() % 2 == 0);
    if (std::find(chosen.begin(), chosen.end(), true) != chosen.end() && consistent(sample, chosen)) return chosen;
  }
}

// A batch of `outer` batches of `inner` examples, each operand batched or not in both.
void expect_batches_are_loops(const Op& op, const Sample& sample, std::mt19937& random, bool relative) {
  const std::vector<bool> in_inner = any_operands(sample, random), in_outer = any_operands(sample, random);
  const size_t inner = 1 + random() % 3, outer = 1 + random() % 3;
  std::vector<std::vector<HostArrays>> examples(outer);  // [outer][inner][operand]
  for (auto& each : examples)
    for (size_t i = 0; i < inner; ++i) each.push_back(make_inputs(sample, static_cast<uint32_t>(random())));
  HostArrays inputs;
  for (size_t x = 0; x < sample.in.size(); ++x) {
    HostArrays parts;
    for (size_t o = 0; o < (in_outer[x] ? outer : 1); ++o)
      parts.push_back(in_inner[x] ? stack(examples[o], x) : examples[o][0][x]);
    inputs.push_back(in_outer[x] ? stack(parts) : parts[0]);
  }
  const Program one = program_of(op, sample);
  const BatchedProgram once = batch(one, in_inner, static_cast<int64_t>(inner), {});
  const BatchedProgram twice = batch(once.program, in_outer, static_cast<int64_t>(outer), {});
  ASSERT_NO_THROW(check(twice.program));
  SCOPED_TRACE(print(twice.program));
  const HostArrays got = planned(twice.program, inputs);
  for (size_t o = 0; o < outer; ++o)
    for (size_t i = 0; i < inner; ++i) {
      HostArrays in;
      for (size_t x = 0; x < sample.in.size(); ++x) in.push_back(examples[in_outer[x] ? o : 0][in_inner[x] ? i : 0][x]);
      const HostArrays wanted = eager(one, in);
      for (size_t k = 0; k < wanted.size(); ++k)
        expect_close(got[k].row(static_cast<int64_t>(o)).row(static_cast<int64_t>(i)), wanted[k], relative);
    }
}

TEST_P(DerivedRows, BatchesOfFreshInputsMatchLoops) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const Sample& sample : row().samples)
    if (!sample.in.empty() && is_small_sample(sample)) expect_batches_are_loops(op(), sample, random, row().relative);
}

// The batch may be the devices along another mesh axis, over which the operands vary as well.
TEST_P(TracedRows, BatchOverAnotherMeshAxisMatchesPlainBatch) {
  for (const Sample& sample : row().samples) {
    if (sample.devices == 0 || sample.in.empty()) continue;
    SCOPED_TRACE(sample.text(op()));
    Sample twice = sample;
    for (SampleOperand& operand : twice.in) operand.type.varying.push_back("j");
    const Program p = program_of(op(), twice);
    const BatchedProgram named = batch(p, {true}, 3, {}, "j"), plain = batch(program_of(op(), sample), {true}, 3, {});
    EXPECT_EQ(print(named.program), print(plain.program));
    EXPECT_EQ(named.batched, plain.batched);
    EXPECT_EQ(p.types.back().varying.back(), "j");
  }
}

// A value that is the same on all devices is stored once; the result is the same as with a copy per device.
TEST_P(TracedRows, InvariantValueMatchesOneCopyPerDevice) {
  for (const Sample& sample : row().samples) {
    if (sample.devices == 0 || sample.in.empty()) continue;
    SCOPED_TRACE(sample.text(op()));
    const Program p = program_of(op(), sample);
    const std::vector<bool> all_stacked(p.outputs.size(), true);
    const HostArray one = small_integers({sample.in[0].type.dtype, sample.in[0].type.shape});
    const HostArray copies = stack(std::vector<HostArrays>(static_cast<size_t>(sample.devices), {one}), 0);
    const Program once = batch(p, {false}, sample.devices, all_stacked, kAxis).program;
    const Program each = batch(p, {true}, sample.devices, all_stacked, kAxis).program;
    expect_close(planned(once, {one})[0], planned(each, {copies})[0]);
  }
}

TEST_P(Rows, TextRoundTrips) {
  for (const Sample& sample : row().samples) {
    const Program p = program_of(op(), sample);
    ASSERT_NO_THROW(check(p));
    const std::string text = print(p);
    const Program again = parse(text, all_ops());
    EXPECT_EQ(print(again), text);
    EXPECT_EQ(hash(again), hash(p));
  }
}

// The same program with its values numbered from the back.
Program renumbered(const Program& p) {
  Program out = p;
  const auto last = static_cast<ValueId>(p.types.size() - 1);
  std::reverse(out.types.begin(), out.types.end());
  for (ValueId& id : out.inputs) id = last - id;
  for (ValueId& id : out.outputs) id = last - id;
  for (Eqn& eqn : out.eqns) {
    for (ValueId& id : eqn.in) id = last - id;
    for (ValueId& id : eqn.out) id = last - id;
  }
  return out;
}

TEST_P(Rows, HashIgnoresValueNumbersAndCoversTypesAndAttributes) {
  std::map<std::string, uint64_t> hash_of_text;
  std::map<uint64_t, std::string> text_of_hash;
  for (const Sample& sample : row().samples) {
    const Program p = program_of(op(), sample);
    const std::string text = print(p);
    EXPECT_EQ(print(renumbered(p)), text);
    EXPECT_EQ(hash(renumbered(p)), hash(p));
    const auto [same, fresh] = text_of_hash.emplace(hash(p), text);
    EXPECT_EQ(same->second, text) << "two programs have one hash";
    const auto known = hash_of_text.emplace(text, hash(p)).first;
    EXPECT_EQ(known->second, hash(p)) << "one program has two hashes";
  }
}

// Every row that traces contain has a rule that derives its batching, or its own function. Rows that only lowering emits
// are never batched.
TEST(RowTable, TracedRowsCanBeBatched) {
  for (const Op* op : ops_where([](const Op&) { return true; })) {
    EXPECT_EQ(op->rule || op->batch, traced(*op)) << op->name;
    EXPECT_TRUE(op->rule || op->dim_attrs.begin() == op->dim_attrs.end()) << op->name << " has no rule to batch by";
  }
}

TEST(RowTable, RowsAreUnique) {
  for (const Row& a : rows())
    for (const Row& b : rows()) EXPECT_TRUE(&a == &b || a.op != b.op) << a.op->name;
}

}  // namespace
}  // namespace lockstep
