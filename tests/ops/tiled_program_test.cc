// Tiled programs: a fused program computes the same bits as its equations one at a time, for every memory layout.
#include "ops/tiled_program.h"

#include "ops/elementwise.h"
#include "ops/evaluate.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// Runs a TiledProgram in ranges of `piece` elements. An output that shares an input's memory is computed in place.
HostArrays run_tiled(const Program& p, const HostArrays& inputs, std::vector<int> alias = {}, int64_t piece = 0) {
  const TiledProgram tiled = TiledProgram::compile(p, alias);
  HostArrays in, out;
  for (const HostArray& x : inputs) {
    in.emplace_back(x.type);
    std::memcpy(in.back().buffer->data(), x.buffer->data(), static_cast<size_t>(x.type.bytes()));
  }
  const std::vector<Type> types = p.output_types();
  for (size_t o = 0; o < types.size(); ++o) {
    out.emplace_back(types[o]);
    if (!alias.empty() && alias[o] >= 0) out[o].buffer = in[static_cast<size_t>(alias[o])].buffer;
  }
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const HostArray& x : in) from.push_back(x.buffer->data());
  for (const HostArray& y : out) to.push_back(y.buffer->data());
  const BufferPtr scratch = allocate(tiled.scratch_bytes());
  if (piece == 0) piece = std::max<int64_t>(tiled.size(), 1);
  for (int64_t begin = 0; begin < tiled.size(); begin += piece)
    tiled.run(from.data(), to.data(), begin, std::min(begin + piece, tiled.size()), scratch->data());
  return out;
}

void expect_same(const Program& p, const HostArrays& inputs, const std::vector<int>& alias = {}) {
  const HostArrays wanted = evaluate(p, inputs);
  for (int64_t piece : {0, 1000, 77}) {
    SCOPED_TRACE(piece);
    const HostArrays got = run_tiled(p, inputs, alias, piece);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t o = 0; o < got.size(); ++o) expect_equal(got[o], wanted[o]);
  }
}

HostArrays normals(const std::vector<Type>& types) {
  HostArrays all;
  for (size_t i = 0; i < types.size(); ++i) all.push_back(normal_numbers(types[i], static_cast<uint32_t>(i) + 1));
  return all;
}

void expect_same(const std::vector<Type>& types, const ValueFunction& f, const std::vector<int>& alias = {}) {
  expect_same(trace(types, f), normals(types), alias);
}

TEST(TiledProgram, MatchesSeparateOpsForManyOutputs) {
  for (DType t : {f32, f64, bf16, f16}) {
    SCOPED_TRACE(name(t));
    for (int64_t n : {0, 1, 3, 513, 5000}) {
      expect_same({{t, {n}}, {t, {n}}}, [](const Values& v) -> Values {
        const Value s = v[0] * v[1] + 2.0, r = tanh(s) - v[0];
        return {r * r, s, select(lt(s, r), s, r), cast(r, f32), cast(cast(v[0], bf16), f64), lt(s, r)};
      });
    }
  }
}

TEST(TiledProgram, MatchesSeparateOpsForIntegersAndBits) {
  const Shape shape{1500};
  const std::vector<Type> types{{i32, shape}, {i32, shape}};
  const Program p = trace(types, [](const Values& v) -> Values {
    const Value x = bit_xor(shift_left(v[0], v[1]), v[0]);
    return {x, bitcast(bitcast(x, f32), u32), cast(x, u8), bit_not(lt(x, v[1])), cast(x, i64)};
  });
  expect_same(p, {small_integers(types[0]), small_integers(types[1], 2)});
}

TEST(TiledProgram, MatchesSeparateOpsForEveryLayout) {
  for (DType t : {f32, bf16, f64, boolean}) {
    SCOPED_TRACE(name(t));
    for (const Shape& s : {Shape{40, 30}, Shape{3, 700}, Shape{700, 3}, Shape{5, 2000}, Shape{1, 1}, Shape{0, 4}}) {
      SCOPED_TRACE(to_string(s));
      const Shape flipped{s[1], s[0]};
      const std::vector<Type> types{{t, s}, {t, {s[1]}}, {t, {s[0]}}, {t, {}}, {t, flipped}, {t, {s[0], s[1] * 2}}};
      HostArrays in;
      for (size_t i = 0; i < types.size(); ++i) in.push_back(small_integers(types[i], static_cast<uint32_t>(i)));
      const Program p = trace(types, [&](const Values& v) -> Values {
        const Value bias = broadcast(v[1], s, {1}), column = broadcast(v[2], s, {0}), scalar = broadcast(v[3], s, {});
        const Value turned = transpose(v[4], {1, 0}), mirrored = reverse(v[0], {0, 1});
        const Value sliced = slice(v[5], {0, s[1] > 0 ? 1 : 0}, {s[0], s[1] * 2}, {1, 2});
        return {maximum(maximum(v[0], bias), column),
                maximum(maximum(scalar, turned), mirrored),
                maximum(sliced, bias),
                bias,
                mirrored,
                scalar};
      });
      expect_same(p, in);
    }
  }
}

TEST(TiledProgram, MatchesSeparateOpsForViewsOfViews) {
  const std::vector<Type> types{{f32, {6, 4, 5}}, {f32, {20}}, {f32, {4}}};
  expect_same(types, [](const Values& v) -> Values {
    const Value merged = reshape(v[0], {24, 5});
    const Value turned = transpose(merged, {1, 0});
    const Value cut = slice(turned, {1, 3}, {4, 23}, {1, 2});  // [3, 10]
    const Value split = broadcast(reshape(slice(v[1], {5}, {15}, {1}), {10}), {3, 10}, {1});
    const Value back = reverse(slice(reshape(v[1], {2, 10}), {1, 0}, {2, 10}, {1, 1}), {1});  // [1, 10]
    const Value again = broadcast(reshape(back, {10}), {3, 10}, {1});
    return {cut * split - again};
  });
}

TEST(Compose, RejectsReshapesThatAreNotAffine) {
  const Type a{f32, {4, 6}};
  const View turned = transpose_op.view(a, {f32, {6, 4}}, {{"permutation", std::vector<int64_t>{1, 0}}});
  EXPECT_FALSE(compose(dense_view({24}), {24}, turned, {6, 4}));
  EXPECT_FALSE(compose(dense_view({3, 8}), {3, 8}, turned, {6, 4}));
  const auto split = compose(dense_view({2, 3, 4}), {2, 3, 4}, turned, {6, 4});
  ASSERT_TRUE(split);
  EXPECT_EQ(split->strides, (std::vector<int64_t>{3, 1, 6}));
}

TEST(TiledProgram, OutputsMayShareTheirInputsMemory) {
  for (DType t : {f32, bf16}) {
    const std::vector<Type> types(3, Type{t, {3000}});
    // An update in place.
    expect_same(types, [](const Values& v) -> Values { return {v[0] * 0.9 + v[1], v[1] - v[2]}; }, {0, 1});
    // The operand is read again after its memory could have been written.
    expect_same(types,
                [](const Values& v) -> Values {
                  const Value a = v[0] + v[1];
                  return {a, a * v[0] - v[1]};
                },
                {0, 1});
    // Outputs that are inputs, swapped.
    expect_same(types, [](const Values& v) -> Values { return {v[1], v[0], v[2] + v[0]}; }, {0, 1, -1});
    expect_same(types, [](const Values& v) -> Values { return {v[0] + 1.0, v[0]}; }, {0, -1});
    // One value as two outputs.
    expect_same(types,
                [](const Values& v) -> Values {
                  const Value a = exp(v[0]);
                  return {a, a, -a};
                },
                {0, -1, 2});
  }
}

TEST(TiledProgram, OnlyInputsReadAtTheSameIndexMayBeOverwritten) {
  const Program p = trace({{f32, {4, 4}}, {f32, {4, 4}}, {f32, {4}}}, [](const Values& v) -> Values {
    return {v[0] + transpose(v[1], {1, 0}) + broadcast(v[2], {4, 4}, {1}) + v[1]};
  });
  EXPECT_TRUE(reads_same_index(p, 0));
  EXPECT_FALSE(reads_same_index(p, 1));
  EXPECT_FALSE(reads_same_index(p, 2));
  const std::vector<Type> in = p.input_types(), out = p.output_types();
  const Attrs attrs{{"body", std::make_shared<const Program>(p)}};
  EXPECT_TRUE(fused_op.alias(in, out, attrs, 0, 0));
  EXPECT_FALSE(fused_op.alias(in, out, attrs, 1, 0));
  EXPECT_FALSE(fused_op.alias(in, out, attrs, 2, 0));
}

TEST(TiledProgram, SegmentsReadACompactBlock) {
  for (DType t : {f32, bf16}) {
    const int64_t rows = 20, columns = 300;
    const std::vector<Type> types{{t, {rows, columns}}, {t, {columns}}, {t, {rows, columns}}};
    const Program p = trace(types, [&](const Values& v) -> Values {
      const Value y = v[0] + broadcast(v[1], {rows, columns}, {1});
      return {maximum(y, zeros_like(y)), y * v[2]};
    });
    const HostArrays in = normals(types), wanted = evaluate(p, in);
    HostArrays out(2, HostArray(types[0]));
    out[1] = HostArray(types[0]);
    const TiledProgram tiled = TiledProgram::compile(p);
    const BufferPtr scratch = allocate(tiled.scratch_bytes()), block = allocate(64 * size_of(t));
    const void* from[] = {nullptr, in[1].buffer->data(), in[2].buffer->data()};
    void* to[] = {out[0].buffer->data(), out[1].buffer->data()};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; c += 64) {
        const int64_t begin = r * columns + c, n = std::min<int64_t>(64, columns - c);
        std::memcpy(block->data(), in[0].buffer->data() + begin * size_of(t), static_cast<size_t>(n * size_of(t)));
        tiled.run_segment(from, to, begin, begin + n, scratch->data(), block->data());
      }
    }
    for (size_t o = 0; o < 2; ++o) expect_equal(out[o], wanted[o]);
  }
}

TEST(TiledProgram, ValuesNotLiveTogetherShareRegisters) {
  const Program longer = trace({{f32, {100000}}}, [](const Values& v) -> Values {
    Value x = v[0];
    for (int i = 0; i < 50; ++i) x = tanh(x) * 1.5;
    return {x};
  });
  const Program shorter =
      trace({{f32, {100000}}}, [](const Values& v) -> Values { return {tanh(tanh(v[0]) * 1.5) * 1.5}; });
  const TiledProgram a = TiledProgram::compile(longer), b = TiledProgram::compile(shorter);
  EXPECT_EQ(a.tile(), b.tile());
  EXPECT_LT(a.scratch_bytes(), 2 * b.scratch_bytes());
}

TEST(Fused, RunsItsBodyOverThePool) {
  const std::vector<Type> types{{f32, {400, 500}}, {f32, {500}}};
  const Program body = trace(types, [](const Values& v) -> Values {
    return {tanh(v[0] + broadcast(v[1], {400, 500}, {1})), v[0] * 2.0};
  });
  const HostArrays in = normals(types), wanted = evaluate(body, in);
  const HostArrays got = run_op(fused_op, in, {{"body", std::make_shared<const Program>(body)}});
  for (size_t o = 0; o < 2; ++o) expect_equal(got[o], wanted[o]);
  EXPECT_EQ(error_of([&] {
              infer_types(fused_op, std::vector<Type>{types[0]}, {{"body", std::make_shared<const Program>(body)}});
            }),
            "fused: the 1 operands do not have the types of the body's 2 inputs");
}

}  // namespace
}  // namespace lockstep
