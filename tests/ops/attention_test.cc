// Attention: gradients against those of its program, kernels of every instruction set, threads, dropout, errors.
#include "ops/attention.h"

#include "base/throws.h"
#include "lane/cpu/attention.h"
#include "ops/evaluate.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

struct AttentionSetup {
  int64_t b, t, h, e, s, g, f;
  AttentionAttrs attrs = {};
  bool offset = false, lengths = false, segments = false;
  DType dtype = f64;

  std::vector<Type> types() const {
    std::vector<Type> out{{dtype, {b, t, h, e}}, {dtype, {b, s, g, e}}, {dtype, {b, s, g, f}}};
    if (offset) out.push_back({i32, {}});
    if (lengths) out.push_back({i32, {b}});
    if (segments) out.push_back({i32, {b, t}}), out.push_back({i32, {b, s}});
    if (attrs.dropout > 0) out.push_back({u32, {2}});
    return out;
  }
  // Lengths are 0, 1/2 and 3/4 of the keys and more. Segment 3 has queries only, segment 4 keys only.
  HostArrays inputs(uint32_t seed = 1) const {
    HostArrays out;
    for (const Type& type : types()) {
      out.push_back(normal_numbers(type, seed++));
      for (int64_t i = 0; i < out.back().size() && type.dtype == i32; ++i) {
        const bool of_queries = type.rank() == 2 && type.shape[1] == t;
        out.back().set(i, type.rank() == 0   ? static_cast<double>(s / 3)
                          : type.rank() == 1 ? static_cast<double>(i == 0 ? 0 : s - s / (2 * i))
                                             : static_cast<double>(i % 3 == 2 ? (of_queries ? 3 : 4) : i % 3));
      }
      if (type.dtype == u32) out.back().set(0, 12345), out.back().set(1, 4000000000.0 + seed);
    }
    return out;
  }
  Program row() const {
    return trace(types(), [&](const Values& x) {
      size_t next = 3;
      AttentionExtras extras;
      if (offset) extras.offset = x[next++];
      if (lengths) extras.lengths = x[next++];
      if (segments) extras.query_segments = x[next], extras.key_segments = x[next + 1], next += 2;
      if (attrs.dropout > 0) extras.dropout_key = x[next];
      return attention(x[0], x[1], x[2], attrs, extras);
    });
  }
  Attrs row_attrs() const { return row().eqns[0].attrs; }
  Program plain() const { return attention_program(types(), attention_attrs(row_attrs(), false)); }
};

std::vector<AttentionSetup> attention_setups() {
  return {
      {2, 17, 4, 32, 17, 2, 8, {.causal = true, .scale = 0.3}},
      {1, 129, 2, 64, 129, 1, 64, {.causal = true, .window = 20, .scale = 0.1, .softcap = 3}},
      {3, 1, 6, 80, 300, 2, 80, {.causal = true, .scale = 0.1}, true, true},
      {3, 17, 2, 128, 129, 1, 5, {.scale = 0.1}, false, true, true},
      {2, 129, 2, 3, 17, 2, 256, {.causal = true, .scale = 0.5, .dropout = 0.25}, true, false, true},
      {1, 65, 2, 4, 1100, 2, 4, {.window = 700, .scale = 0.5, .dropout = 0.5}, true},
      {1, 1000, 1, 2, 1000, 1, 2, {.causal = true, .window = 300}},
  };
}

void expect_near(const HostArrays& got, const HostArrays& wanted, double allowed) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(to_string(got[k].type), to_string(wanted[k].type));
    double scale = 1;
    for (int64_t i = 0; i < wanted[k].size(); ++i)
      if (std::isfinite(wanted[k].get(i))) scale = std::max(scale, std::abs(wanted[k].get(i)));
    for (int64_t i = 0; i < wanted[k].size(); ++i) {
      if (got[k].get(i) == wanted[k].get(i)) continue;
      ASSERT_NEAR(got[k].get(i), wanted[k].get(i), allowed * scale) << "element " << i << " of result " << k;
    }
  }
}

bool bits_equal(const HostArrays& a, const HostArrays& b) {
  for (size_t k = 0; k < a.size(); ++k)
    if (std::memcmp(a[k].buffer->data(), b[k].buffer->data(), static_cast<size_t>(a[k].type.bytes())) != 0)
      return false;
  return true;
}

// Results and gradients of all floating inputs, for normal cotangents of both results.
HostArrays with_gradients(const Program& p, const HostArrays& inputs, Pool& pool = test_pool()) {
  std::vector<bool> wanted;
  for (const HostArray& x : inputs) wanted.push_back(is_floating(x.type.dtype));
  HostArrays args = inputs;
  uint32_t seed = 100;
  for (const Type& type : p.output_types()) args.push_back(normal_numbers(type, seed++));
  return evaluate(joint(p, wanted), args, pool);
}

TEST(AttentionRow, ResultsAndGradientsMatchThoseOfTheProgram) {
  for (const AttentionSetup& setup : attention_setups()) {
    SCOPED_TRACE(print(setup.row()));
    const HostArrays inputs = setup.inputs();
    expect_near(with_gradients(setup.row(), inputs), with_gradients(setup.plain(), inputs), 1e-12);
  }
}

TEST(AttentionRow, LowPrecisionMatchesTheProgram) {
  for (AttentionSetup setup : attention_setups())
    for (const auto& [dtype, allowed] : {std::pair(f32, 2e-5), std::pair(bf16, 0x1p-6), std::pair(f16, 0x1p-9)}) {
      setup.dtype = dtype;
      SCOPED_TRACE(print(setup.row()));
      const HostArrays inputs = setup.inputs();
      expect_near(with_gradients(setup.row(), inputs), with_gradients(setup.plain(), inputs), allowed);
    }
}

TEST(AttentionRow, BitsDoNotDependOnThreads) {
  Pool one({.threads = 1}), many({.threads = 7});
  for (AttentionSetup setup : attention_setups())
    for (const DType dtype : {f32, bf16}) {
      setup.dtype = dtype;
      SCOPED_TRACE(print(setup.row()));
      const HostArrays inputs = setup.inputs(), first = with_gradients(setup.row(), inputs, one);
      EXPECT_TRUE(bits_equal(with_gradients(setup.row(), inputs, one), first));
      EXPECT_TRUE(bits_equal(with_gradients(setup.row(), inputs, many), first));
    }
}

// The forward and backward kernels with the loops of one instruction set.
HostArrays run_kernels(const AttentionSetup& setup, const AttentionLoops& loops_of_set, const HalfKernel* kernel) {
  const bool half = setup.dtype == bf16 || setup.dtype == f16;
  const AttentionAttrs& a = setup.attrs;
  const AttentionProblem p{.dtype = setup.dtype,
                           .b = setup.b,
                           .t = setup.t,
                           .h = setup.h,
                           .e = setup.e,
                           .s = setup.s,
                           .g = setup.g,
                           .f = setup.f,
                           .causal = a.causal,
                           .window = a.window,
                           .scale = a.scale,
                           .softcap = a.softcap,
                           .dropout_threshold = a.dropout_threshold(),
                           .dropout_kept = 1 / (1 - a.dropout),
                           .loops = &loops_of_set,
                           .narrow = half ? loops().narrow[narrow_index(setup.dtype)] : nullptr,
                           .round = half ? loops().round[narrow_index(setup.dtype)] : nullptr};
  const HostArrays in = setup.inputs();
  AttentionOperands operands{.q = in[0].buffer->data(), .k = in[1].buffer->data(), .v = in[2].buffer->data()};
  if (setup.segments) {
    operands.query_segments = in[3].buffer->as<int32_t>();
    operands.key_segments = in[4].buffer->as<int32_t>();
  }
  if (a.dropout > 0) operands.dropout_key = in.back().buffer->as<uint32_t>();
  const std::vector<Type> types = setup.row().output_types();
  HostArrays out{HostArray(types[0]), HostArray(types[1]), HostArray(in[0].type), HostArray(in[1].type),
                 HostArray(in[2].type)};
  const HostArray dy = normal_numbers(types[0], 100), dlse = normal_numbers(types[1], 101);
  attention_forward(test_pool(), p, kernel, operands, out[0].buffer->data(), out[1].buffer->data());
  const BufferPtr memory = allocate(attention_backward_bytes(p));
  attention_backward(
      test_pool(), p, kernel, operands,
      {.y = out[0].buffer->data(), .lse = out[1].buffer->data(), .dy = dy.buffer->data(), .dlse = dlse.buffer->data()},
      out[2].buffer->data(), out[3].buffer->data(), out[4].buffer->data(), memory->data());
  return out;
}

TEST(AttentionKernels, EveryInstructionSetGivesTheSameBits) {
  for (const DType dtype : {f32, f64, bf16}) {
    AttentionSetup setup{1, 70, 2, 16, 150, 1, 16, {.scale = 0.3, .softcap = 4, .dropout = 0.3}, false, false, true};
    setup.dtype = dtype;
    const HostArrays first = run_kernels(setup, *all_attention_loops()[0], half_kernel(dtype));
    for (const AttentionLoops* const table : all_attention_loops())
      EXPECT_TRUE(bits_equal(run_kernels(setup, *table, half_kernel(dtype)), first)) << name(dtype);
  }
}

TEST(AttentionKernels, EveryProductOf16BitsMatchesTheProgram) {
  for (const DType dtype : {bf16, f16}) {
    AttentionSetup setup{2, 70, 4, 40, 150, 2, 24, {.causal = true, .scale = 0.2}, false, false, true};
    setup.dtype = dtype;
    const HostArrays wanted = with_gradients(setup.plain(), setup.inputs());
    std::vector<const HalfKernel*> kernels{nullptr};
    for (const HalfKernel* const kernel : half_kernels())
      if (kernel->dtype == dtype) kernels.push_back(kernel);
    for (const HalfKernel* const kernel : kernels) {
      SCOPED_TRACE(kernel ? kernel->name : "converted");
      expect_near(run_kernels(setup, *all_attention_loops().back(), kernel), wanted, dtype == bf16 ? 0x1p-6 : 0x1p-9);
    }
  }
}

TEST(AttentionRow, QueriesThatSeeNoKeyGetZerosAndNoGradient) {
  for (const DType dtype : {f32, bf16}) {
    AttentionSetup setup{2, 5, 2, 4, 6, 1, 3, {}, false, true};
    setup.dtype = dtype;
    const HostArrays got = with_gradients(setup.row(), setup.inputs());  // example 0 has no keys
    for (size_t k = 0; k < got.size(); ++k)
      for (int64_t i = 0; i < got[k].size(); ++i) {
        EXPECT_FALSE(std::isnan(got[k].get(i))) << k;
        if (i >= got[k].size() / 2) continue;
        EXPECT_EQ(got[k].get(i), k == 1 ? -INFINITY : 0) << k;
      }
  }
}

TEST(AttentionRow, NanReachesTheResults) {
  AttentionSetup setup{1, 3, 1, 4, 5, 1, 4, {.causal = true}};
  setup.dtype = f32;
  for (size_t operand : {0, 1, 2}) {
    HostArrays inputs = setup.inputs();
    inputs[operand].set(0, NAN);
    const HostArrays got = evaluate(setup.row(), inputs);
    EXPECT_TRUE(std::isnan(got[0].get(0))) << operand;
    EXPECT_EQ(std::isnan(got[1].get(0)), operand < 2);
  }
}

TEST(AttentionRow, DropoutKeepsTheMeanAndIsTheSameOnShards) {
  AttentionSetup whole{4, 64, 4, 8, 64, 2, 1, {.scale = 0.05, .dropout = 0.3}};
  HostArrays inputs = whole.inputs();
  for (int64_t i = 0; i < inputs[2].size(); ++i) inputs[2].set(i, 1);
  const HostArrays y = evaluate(whole.row(), inputs);
  double sum = 0;
  for (double each : y[0].values()) sum += each;
  EXPECT_NEAR(sum / static_cast<double>(y[0].size()), 1, 0.01);
  // The second half of the queries, heads and examples, as lanes compute it.
  const LocalEqn half =
      local_eqn(attention_op, whole.types(), whole.row_attrs(), {{'b', {2, 4}}, {'g', {1, 2}}, {'t', {32, 64}}});
  HostArrays parts;
  for (size_t i = 0; i < 3; ++i) {
    parts.emplace_back(half.in[i]);
    int64_t next = 0;
    const Shape &all = inputs[i].type.shape, &part = half.in[i].shape;
    for_each_index(part, [&](const Dims& at, int64_t) {
      Dims from = at;
      for (size_t d = 0; d < 3; ++d) from[d] += all[d] - part[d];
      parts[i].set(next++, inputs[i].get(position(all, from)));
    });
  }
  parts.push_back(inputs[3]);
  const HostArrays got = run_op(attention_op, parts, half.attrs);
  int64_t next = 0;
  for_each_index(half.out[0].shape, [&](const Dims& at, int64_t) {
    EXPECT_NEAR(got[0].get(next++), y[0].get(position(y[0].type.shape, {at[0] + 2, at[1] + 32, at[2] + 2, at[3]})),
                1e-12);
  });
}

TEST(AttentionRow, MistakesAreRejected) {
  const auto expect = [](const AttentionSetup& setup, std::vector<Type> types, const char* message) {
    const Attrs attrs = setup.row_attrs();
    EXPECT_THROWS(infer_types(attention_op, types, attrs), Error, message);
  };
  const AttentionSetup plain{2, 3, 4, 5, 6, 2, 7, {}, true, true, true};
  const std::vector<Type> right = plain.types();
  const auto with = [&](size_t i, Type type) {
    std::vector<Type> types = right;
    types[i] = std::move(type);
    return types;
  };
  expect(plain, with(0, {f64, {2, 3, 5}}), "each must be [examples, tokens, heads, features]");
  expect(plain, with(1, {f64, {2, 6, 2, 4}}), "q and k the same features");
  expect(plain, with(0, {f64, {2, 3, 3, 5}}), "3 heads of queries share 2 heads of keys; the second must divide");
  expect(plain, with(2, {f32, {2, 6, 2, 7}}), "they must have one floating type");
  expect(plain, with(3, {i64, {}}), "the offset is i64[]; it must be i32[]");
  expect(plain, with(4, {i32, {3}}), "the array of lengths is i32[3]; it must be i32[2]");
  expect(plain, with(5, {i32, {2, 6}}), "the array of segments of queries is i32[2,6]; it must be i32[2,3]");
  expect(plain, with(6, {i32, {2, 3}}), "the array of segments of keys is i32[2,3]; it must be i32[2,6]");
  const auto reject = [&](const char* attribute, Attr value, const char* message) {
    Attrs attrs = plain.row_attrs();
    attrs.set(attribute, std::move(value));
    EXPECT_THROWS(infer_types(attention_op, right, attrs), Error, message);
  };
  reject("window", int64_t{-1}, "attention: the window is -1");
  reject("scale", static_cast<double>(INFINITY), "the scale is inf; it must be a finite number");
  reject("softcap", -1.0, "the softcap is -1; it must be a positive number, or 0 for none");
  reject("dropout", 1.0, "the dropout is 1; it must be at least 0 and less than 1");
  reject("dropout", 0.5, "the dropout is 0.5 without a dropout_key");
  reject("extras", std::string("lengths,offset,segments"), "the extras are \"lengths,offset,segments\"; give some of");
  reject("extras", std::string("dlse,offset,lengths,segments"), "the extras are \"dlse,");
  reject("extras", std::string("offset"), "attention: takes 4 operands and got 7");
  reject("first", Dims{0, 0}, "first is [0, 0]; it takes 3 numbers");
  EXPECT_THROWS(infer_types(attention_grad_op, right, plain.row_attrs()), Error, "attention_grad: takes 10 operands");
}

}  // namespace
}  // namespace lockstep
