#include "ops/shape_ops.h"

#include "ops/evaluate.h"
#include "ops/ops.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

TEST(Full, HoldsItsValueInEveryType) {
  for (DType t : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3}, Shape{70000}}) {
      Builder b;
      const Program p = b.take(Values{full(b, {t, shape}, 1)});
      expect_elements(evaluate(p, {})[0], [](const Dims&) { return 1; });
    }
  }
  Builder b;
  const Program p = b.take(Values{full(b, {bf16, {2}}, 0.1)});
  EXPECT_EQ(print(p), "program() {\n  %0:bf16[2] = full[dtype=bf16, shape=[2], value=0.10009765625]\n  return %0\n}\n");
}

TEST(Full, RejectsValuesThatDoNotFit) {
  Builder b;
  EXPECT_EQ(error_of([&] { full(b, {u8, {}}, 256); }), "full: 256 does not fit u8; choose a wider type");
  EXPECT_EQ(error_of([&] { full(b, {boolean, {}}, 2); }), "full: 2 does not fit bool; choose a wider type");
  EXPECT_EQ(error_of([&] {
              full(b, {i32, {}}, 0.5);
            }),
            "full: 0.5 is not a value of i32; round it, or choose a floating type");
  EXPECT_EQ(error_of([&] {
              full(b, {i64, {}}, NAN);
            }),
            "full: nan is not a value of i64; round it, or choose a floating type");
}

TEST(Iota, CountsAlongItsDimension) {
  for (DType t : kAllDTypes) {
    if (t == boolean) continue;
    for (int64_t dim = 0; dim < 3; ++dim) {
      Builder b;
      const Program p = b.take(Values{iota(b, {t, {3, 5, 4}}, dim)});
      expect_elements(evaluate(p, {})[0], [&](const Dims& i) { return i[static_cast<size_t>(dim)]; });
    }
  }
  Builder b;
  EXPECT_EQ(error_of([&] { iota(b, {i32, {2}}, 1); }), "iota: axis 1 is out of range for [2]; valid axes: 0 to 0");
  EXPECT_EQ(error_of([&] { iota(b, {boolean, {2}}, 0); }), "iota: bool is not supported; use i32 and compare");
}

// ---- views

TEST(Broadcast, RepeatsAlongNewDimensions) {
  for (DType t : kAllDTypes) {
    const HostArray x = small_integers({t, {3, 4}});
    const HostArray y = evaluate({x}, [](const Values& in) {
      return Values{broadcast(in[0], {2, 3, 5, 4}, {1, 3})};
    })[0];
    expect_elements(y, [&](const Dims& i) { return at(x, {i[1], i[3]}); });
    const HostArray z = evaluate({x}, [](const Values& in) {
      return Values{broadcast(in[0], {3, 4, 300}, {0, 1})};
    })[0];
    expect_elements(z, [&](const Dims& i) { return at(x, {i[0], i[1]}); });
  }
}

TEST(Transpose, MatchesALoopForEveryPermutation) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{37, 1, 45, 3}, Shape{40, 50, 2, 8}, Shape{0, 3, 1, 2}}) {
    for (DType t : {u8, f16, f32, i64}) {
      const HostArray x = small_integers({t, shape});
      Dims p = {0, 1, 2, 3};
      do {
        const HostArray y = evaluate({x}, [&](const Values& in) { return Values{transpose(in[0], p)}; })[0];
        expect_elements(y, [&](const Dims& i) {
          Dims from(4);
          for (size_t d = 0; d < 4; ++d) from[static_cast<size_t>(p[d])] = i[d];
          return at(x, from);
        });
      } while (std::next_permutation(p.begin(), p.end()));
    }
  }
}

TEST(Transpose, OfLargeMatricesRunsInParallelTiles) {
  const HostArray x = small_integers({f32, {513, 301}});
  const HostArray y = evaluate({x}, [](const Values& in) { return Values{transpose(in[0], {1, 0})}; })[0];
  expect_elements(y, [&](const Dims& i) { return at(x, {i[1], i[0]}); });
}

TEST(Slice, TakesEveryStrideThElement) {
  for (DType t : kAllDTypes) {
    const HostArray x = small_integers({t, {7, 9, 4}});
    const HostArray y = evaluate({x}, [](const Values& in) {
      return Values{slice(in[0], {1, 2, 0}, {6, 9, 4}, {2, 3, 1})};
    })[0];
    EXPECT_EQ(to_string(y.type.shape), "[3, 3, 4]");
    expect_elements(y, [&](const Dims& i) { return at(x, {1 + 2 * i[0], 2 + 3 * i[1], i[2]}); });
    const HostArray empty = evaluate({x}, [](const Values& in) {
      return Values{slice(in[0], {7, 0, 0}, {7, 9, 4}, {1, 1, 1})};
    })[0];
    EXPECT_EQ(to_string(empty.type.shape), "[0, 9, 4]");
  }
}

TEST(Reverse, ReversesTheOrder) {
  for (DType t : kAllDTypes) {
    const HostArray x = small_integers({t, {3, 4, 5}});
    const HostArray y = evaluate({x}, [](const Values& in) { return Values{reverse(in[0], {2, 0})}; })[0];
    expect_elements(y, [&](const Dims& i) { return at(x, {2 - i[0], i[1], 4 - i[2]}); });
  }
  const HostArray none =
      evaluate({HostArray({f32, {0, 2}})}, [](const Values& in) { return Values{reverse(in[0], {0})}; })[0];
  EXPECT_EQ(none.size(), 0);
}

// A batch of them, or one whose batch is empty.
TEST(Reshape, SharesEqualLeadingDimensionsOfEmptyArrays) {
  for (const Shape& x : {Shape{5, 0, 3}, Shape{0, 2, 6}}) {
    const std::vector<Type> in{{f32, x}};
    const Rule rule = reshape_op.rule(in, {{"shape", x[0] == 0 ? Shape{0, 3, 4} : Shape{5, 4, 0}}});
    EXPECT_EQ(rule.in[0][0], rule.out[0][0]);
    EXPECT_EQ(rule.unsharded, rule.in[0].substr(1) + rule.out[0].substr(1));
  }
}

TEST(Reshape, KeepsRowMajorOrder) {
  const HostArray x = small_integers({i32, {4, 6}});
  const HostArray y = evaluate({x}, [](const Values& in) {
    return Values{stop_gradient(reshape(in[0], {2, 3, 4}))};
  })[0];
  EXPECT_EQ(y.values(), x.values());
}

TEST(AffineCopy, CopiesLongRowsInSeveralTasks) {
  const HostArray x = small_integers({f32, {2, 100000}});
  const HostArray y = evaluate({x}, [](const Values& in) {
    return Values{slice(in[0], {0, 5}, {2, 99999}, {1, 1})};
  })[0];
  expect_elements(y, [&](const Dims& i) { return at(x, {i[0], i[1] + 5}); });
  const HostArray z = evaluate({x}, [](const Values& in) { return Values{reverse(in[0], {1})}; })[0];
  expect_elements(z, [&](const Dims& i) { return at(x, {i[0], 99999 - i[1]}); });
}

// ---- pad, concatenate, dynamic_slice, update_slice

TEST(Pad, MatchesALoopForAllAmounts) {
  const HostArray x = small_integers({f32, {4, 3}}), value({f32, {}}, {9});
  for (int64_t lo = -3; lo <= 2; ++lo)
    for (int64_t hi = -3; hi <= 2; ++hi)
      for (int64_t interior = 0; interior <= 2; ++interior) {
        const int64_t extent = 4 + 3 * interior + lo + hi;
        if (extent < 0) continue;
        const HostArray y = evaluate({x, value}, [&](const Values& in) {
          return Values{pad(in[0], in[1], {lo, 1}, {hi, 0}, {interior, 1})};
        })[0];
        EXPECT_EQ(y.type.shape, (Shape{extent, 6}));
        expect_elements(y, [&](const Dims& i) -> double {
          const int64_t r = i[0] - lo, c = i[1] - 1, step = interior + 1;
          if (r < 0 || c < 0 || r % step || c % 2 || r / step >= 4 || c / 2 >= 3) return 9;
          return at(x, {r / step, c / 2});
        });
      }
}

TEST(Pad, SupportsEveryTypeAndEmptyArrays) {
  for (DType t : kAllDTypes) {
    const HostArray x = small_integers({t, {3}}), value({t, {}}, {1});
    const HostArray y =
        evaluate({x, value}, [](const Values& in) { return Values{pad(in[0], in[1], {2}, {1}, {0})}; })[0];
    expect_elements(y, [&](const Dims& i) { return i[0] < 2 || i[0] > 4 ? 1 : x.get(i[0] - 2); });
    const HostArray none({t, {0}});
    const HostArray z =
        evaluate({none, value}, [](const Values& in) { return Values{pad(in[0], in[1], {2}, {1}, {3})}; })[0];
    EXPECT_EQ(z.values(), (std::vector<double>{1, 1, 1}));
  }
}

// As many operands as a large model has parameters; a factor for each would exceed the limit.
TEST(Concatenate, CanBeShardedWithHundredsOfOperands) {
  std::vector<Type> in(300, {f32, {1, 4}});
  in[7].shape[0] = 2;
  const Rule rule = concatenate_op.rule(in, {{"axis", 0}});
  ASSERT_EQ(rule.in.size(), 300u);
  EXPECT_EQ(rule.in[0], rule.in[299]);
  EXPECT_NE(rule.in[0], rule.in[7]);
  EXPECT_EQ(rule.out[0][1], rule.in[0][1]);
  for (const std::string& term : {rule.in[0], rule.in[7], rule.out[0]})
    EXPECT_NE(rule.unsharded.find(term[0]), std::string::npos) << term;
}

// Operands of more different extents than there are letters.
TEST(Concatenate, CanBeShardedAndBatchedWithAnyExtents) {
  std::vector<Type> in;
  for (int64_t n = 1; n <= 100; ++n) in.push_back({f32, {n, 4}});
  const Rule rule = concatenate_op.rule(in, {{"axis", 0}});
  ASSERT_EQ(rule.in.size(), 100u);
  for (const std::string& term : rule.in) {
    EXPECT_NE(rule.unsharded.find(term[0]), std::string::npos) << term;
    EXPECT_EQ(term[1], rule.out[0][1]);
  }
  EXPECT_EQ(rule.unsharded.find(rule.out[0][1]), std::string::npos);

  Builder b;
  Values operands;
  for (const Type& type : in) operands.push_back(b.input(type));
  const Value joined = concatenate(operands, 0);
  const BatchedProgram batched = batch(b.take(Values{joined}), std::vector<bool>(100, true), 3, {});
  EXPECT_EQ(to_string(batched.program.output_types()[0]), "f32[3,5050,4]");
}

TEST(Concatenate, AppendsOperandsAlongTheAxis) {
  for (DType t : kAllDTypes) {
    const HostArray a = small_integers({t, {2, 3, 2}}, 1), b = small_integers({t, {2, 0, 2}}, 2),
                    c = small_integers({t, {2, 4, 2}}, 3);
    const HostArray y = evaluate({a, b, c}, [](const Values& in) { return Values{concatenate(in, 1)}; })[0];
    EXPECT_EQ(to_string(y.type.shape), "[2, 7, 2]");
    expect_elements(y, [&](const Dims& i) { return i[1] < 3 ? at(a, i) : at(c, {i[0], i[1] - 3, i[2]}); });
  }
}

TEST(DynamicSlice, ClampsStarts) {
  const HostArray x = small_integers({i32, {5, 6}});
  for (DType t : {i32, i64})
    for (int64_t row = -2; row <= 6; ++row)
      for (int64_t column : {-9, 0, 2, 3, 4, 100}) {
        const HostArray r({t, {}}, {static_cast<double>(row)}), c({t, {}}, {static_cast<double>(column)});
        const int64_t r0 = std::clamp<int64_t>(row, 0, 3), c0 = std::clamp<int64_t>(column, 0, 3);
        const HostArray y = evaluate({x, r, c}, [](const Values& in) {
          return Values{dynamic_slice(in[0], {in[1], in[2]}, {2, 3})};
        })[0];
        expect_elements(y, [&](const Dims& i) { return at(x, {r0 + i[0], c0 + i[1]}); });
        const HostArray update = small_integers({i32, {2, 3}}, 5);
        const HostArray z = evaluate({x, update, r, c}, [](const Values& in) {
          return Values{update_slice(in[0], in[1], {in[2], in[3]})};
        })[0];
        expect_elements(z, [&](const Dims& i) {
          const bool replaced = i[0] >= r0 && i[0] < r0 + 2 && i[1] >= c0 && i[1] < c0 + 3;
          return replaced ? at(update, {i[0] - r0, i[1] - c0}) : at(x, i);
        });
      }
}

TEST(UpdateSlice, WritesIntoItsOperandWhenTheMemoryIsShared) {
  const HostArray x = small_integers({f32, {6}}), update = small_integers({f32, {2}}, 2), start({i32, {}}, {3});
  const HostArray wanted =
      evaluate({x, update, start}, [](const Values& in) { return Values{update_slice(in[0], in[1], {in[2]})}; })[0];
  const std::vector<Type> in = {x.type, update.type, start.type}, out = {x.type};
  const Attrs attrs = {{"batch_dims", int64_t{0}}};
  const int alias[] = {0};
  const Kernel kernel = update_slice_op.cpu({in, out, attrs, test_pool(), alias, {}});
  const void* from[] = {x.buffer->data(), update.buffer->data(), start.buffer->data()};
  void* to[] = {x.buffer->data()};
  kernel(from, to);
  expect_equal(x, wanted);
}

// ---- batching and gradients

TEST(ShapeOps, BatchMatchesLoop) {
  auto numbers = [](Type t, uint32_t seed) { return small_integers(std::move(t), seed); };
  const HostArray x = small_integers({f64, {4, 3}}), s = small_integers({f64, {}});
  const std::vector<ValueFunction> unary = {[](const Values& in) {
                                              return Values{broadcast(in[0], {4, 2, 3}, {0, 2})};
                                            },
                                            [](const Values& in) {
                                              return Values{reshape(in[0], {2, 6})};
                                            },
                                            [](const Values& in) {
                                              return Values{transpose(in[0], {1, 0})};
                                            },
                                            [](const Values& in) {
                                              return Values{slice(in[0], {1, 0}, {4, 2}, {2, 1})};
                                            },
                                            [](const Values& in) { return Values{reverse(in[0], {1})}; },
                                            [](const Values& in) { return Values{stop_gradient(in[0])}; }};
  for (const auto& f : unary) expect_batch_is_loop({x}, f, numbers);
  expect_batch_is_loop(
      {x, s},
      [](const Values& in) {
        return Values{pad(in[0], in[1], {1, -1}, {0, 2}, {1, 0})};
      },
      numbers);
  expect_batch_is_loop(
      {x, small_integers({f64, {2, 3}})}, [](const Values& in) { return Values{concatenate(in, 0)}; }, numbers);
  const HostArray r({i32, {}}, {1}), c({i64, {}}, {2});
  expect_batch_is_loop(
      {x, r, c},
      [](const Values& in) {
        return Values{dynamic_slice(in[0], {in[1], in[2]}, {2, 2})};
      },
      numbers);
  expect_batch_is_loop(
      {x, small_integers({f64, {2, 2}}), r, c},
      [](const Values& in) {
        return Values{update_slice(in[0], in[1], {in[2], in[3]})};
      },
      numbers);
}

TEST(DynamicSlice, BatchesTwice) {
  const HostArray x = small_integers({f64, {2, 3, 5}}), starts({i32, {2, 3}}, {0, 1, 2, 3, 4, -1});
  const ValueFunction inner = [](const Values& in) {
    const Program one =
        trace({{f64, {5}}, {i32, {}}}, [](const Values& v) { return Values{dynamic_slice(v[0], {v[1]}, {2})}; });
    return in[0].builder().inline_program(batch(one, {true, true}, 3, {true}).program, in);
  };
  expect_batch_is_loop(HostArrays{x, starts}, std::vector<bool>{true, true}, inner);
}

TEST(ShapeOps, GradientsMatchFiniteDifferences) {
  const HostArray x = normal_numbers({f64, {4, 3}}), y = normal_numbers({f64, {2, 3}}, 2),
                  s = normal_numbers({f64, {}}, 3);
  const HostArray r({i32, {}}, {1}), c({i32, {}}, {9});
  expect_gradient({x}, [](const Values& in) { return Values{broadcast(in[0], {4, 2, 3}, {0, 2})}; });
  expect_gradient({x}, [](const Values& in) { return Values{reshape(in[0], {2, 6})}; });
  expect_gradient({x}, [](const Values& in) { return Values{transpose(in[0], {1, 0})}; });
  expect_gradient({x}, [](const Values& in) { return Values{slice(in[0], {1, 0}, {4, 2}, {2, 1})}; });
  expect_gradient({x}, [](const Values& in) { return Values{slice(in[0], {0, 1}, {3, 3}, {3, 5})}; });
  expect_gradient({x}, [](const Values& in) { return Values{reverse(in[0], {1})}; });
  expect_gradient({x, s}, [](const Values& in) { return Values{pad(in[0], in[1], {1, -1}, {0, 2}, {1, 0})}; });
  expect_gradient({x, y}, [](const Values& in) { return Values{concatenate(in, 0)}; });
  expect_gradient({x, r, c}, [](const Values& in) { return Values{dynamic_slice(in[0], {in[1], in[2]}, {2, 2})}; });
  expect_gradient({x, y, r, c}, [](const Values& in) { return Values{update_slice(in[0], in[1], {in[2], in[3]})}; });
}

TEST(StopGradient, GradientIsZero) {
  const Program p = joint(trace({{f64, {2}}}, [](const Values& in) { return Values{stop_gradient(in[0])}; }), {true});
  const HostArrays out = evaluate(p, {normal_numbers({f64, {2}}), normal_numbers({f64, {2}})});
  EXPECT_EQ(out[1].values(), (std::vector<double>{0, 0}));
}

// ---- folding

// The body of a simplified program of one f32[2,3] input.
std::string folded(const ValueFunction& f) {
  const std::string text = simplified({{f32, {2, 3}}}, f);
  const size_t begin = text.find('\n') + 1;
  return text.substr(begin, text.rfind('\n', text.size() - 2) + 1 - begin);
}

TEST(ShapeOps, FoldToTheirOperandWhenNothingChanges) {
  const std::string same = "  return %0\n";
  EXPECT_EQ(folded([](const Values& in) { return Values{reshape(in[0], {2, 3})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{reshape(reshape(in[0], {6}), {2, 3})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{transpose(in[0], {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{transpose(transpose(in[0], {1, 0}), {1, 0})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{broadcast(in[0], {2, 3}, {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{slice(in[0], {0, 0}, {2, 3}, {1, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{reverse(reverse(in[0], {0, 1}), {0, 1})}; }), same);
  EXPECT_EQ(folded([](const Values& in) { return Values{concatenate({in[0]}, 0)}; }), same);
  EXPECT_EQ(folded([](const Values& in) {
              return Values{pad(in[0], full(in[0].builder(), {f32, {}}, 0), {0, 0}, {0, 0}, {0, 0})};
            }),
            same);
  EXPECT_EQ(folded([](const Values& in) {
              const Value zero = full(in[0].builder(), {i32, {}}, 0);
              return Values{dynamic_slice(in[0], {zero, zero}, {2, 3})};
            }),
            same);
}

TEST(ShapeOps, FoldPairsIntoOne) {
  EXPECT_EQ(folded([](const Values& in) {
              return Values{reshape(reshape(in[0], {6}), {3, 2})};
            }),
            "  %1:f32[3,2] = reshape[shape=[3,2]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{broadcast(in[0], {2, 1, 3}, {0, 2})};
            }),
            "  %1:f32[2,1,3] = reshape[shape=[2,1,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{broadcast(broadcast(in[0], {4, 2, 3}, {1, 2}), {4, 2, 5, 3}, {0, 1, 3})};
            }),
            "  %1:f32[4,2,5,3] = broadcast[dims=[1,3], shape=[4,2,5,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{transpose(reshape(in[0], {2, 1, 3}), {1, 0, 2})};
            }),
            "  %1:f32[1,2,3] = reshape[shape=[1,2,3]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{slice(slice(in[0], {0, 1}, {2, 3}, {1, 1}), {1, 0}, {2, 2}, {1, 1})};
            }),
            "  %1:f32[1,2] = slice[limits=[2,3], starts=[1,1], strides=[1,1]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              return Values{reverse(reverse(in[0], {0}), {0, 1})};
            }),
            "  %1:f32[2,3] = reverse[axes=[1]] %0\n  return %1\n");
  EXPECT_EQ(folded([](const Values& in) {
              Builder& b = in[0].builder();
              return Values{dynamic_slice(in[0], {full(b, {i32, {}}, 7), full(b, {i32, {}}, 1)}, {1, 2})};
            }),
            "  %1:f32[1,2] = slice[limits=[2,3], starts=[1,1], strides=[1,1]] %0\n  return %1\n");
}

TEST(ShapeOps, ViewsOfFullFoldToFull) {
  auto made = [](const std::function<Value(Value)>& f) {
    return folded([&](const Values& in) { return Values{f(full(in[0].builder(), {f32, {2, 3}}, 2.5))}; });
  };
  const std::string wanted = "  %1:f32[3,2] = full[dtype=f32, shape=[3,2], value=2.5]\n  return %1\n";
  EXPECT_EQ(made([](Value x) { return reshape(x, {3, 2}); }), wanted);
  EXPECT_EQ(made([](Value x) { return transpose(x, {1, 0}); }), wanted);
  EXPECT_EQ(made([](Value x) { return reverse(reshape(x, {3, 2}), {0}); }), wanted);
  EXPECT_EQ(made([](Value x) {
              return slice(broadcast(x, {7, 2, 3}, {1, 2}), {1, 0, 2}, {7, 2, 3}, {2, 1, 1});
            }),
            "  %1:f32[3,2,1] = full[dtype=f32, shape=[3,2,1], value=2.5]\n  return %1\n");
  EXPECT_EQ(made([](Value x) { return pad(x, full(x.builder(), {f32, {}}, 2.5), {1, 0}, {0, -1}, {0, 0}); }), wanted);
  EXPECT_EQ(made([](Value x) {
              return reshape(concatenate({x, x}, 0), {12});
            }),
            "  %1:f32[12] = full[dtype=f32, shape=[12], value=2.5]\n  return %1\n");
}

// ---- errors

TEST(ShapeOps, ErrorsNameTheFactAndTheRemedy) {
  Builder b;
  const Value x = b.input({f32, {2, 3}}), s = b.input({f32, {}}), i = b.input({i32, {}});
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] {
         reshape(x, {4, 2});
       },
       "reshape: [2, 3] has 6 elements and [4, 2] has 8; the number of elements must not change"},
      {[&] {
         broadcast(x, {2, 4}, {0, 1});
       },
       "broadcast: dimension 1 of [2, 3] cannot become dimension 1 of [2, 4]; the extents must be equal"},
      {[&] {
         broadcast(x, {3, 2}, {1, 0});
       },
       "broadcast: the output dimensions [1, 0] do not increase; transpose first"},
      {[&] {
         broadcast(x, {2, 3}, {0});
       },
       "broadcast: [2, 3] has 2 dimensions and got 1 output dimensions; give one for each"},
      {[&] {
         transpose(x, {0, 0});
       },
       "transpose: [0, 0] is not a permutation of the 2 dimensions of [2, 3]; name each dimension once"},
      {[&] {
         slice(x, {0, 1}, {2, 4}, {1, 1});
       },
       "slice: 1:4 is not within dimension 1 of [2, 3]; ranges must be within 0:3"},
      {[&] {
         slice(x, {0, 0}, {2, 3}, {1, 0});
       },
       "slice: stride 0 of dimension 1 is not positive; use reverse to walk backwards"},
      {[&] { slice(x, {0}, {2}, {1}); },
       "slice: [2, 3] has 2 dimensions and got 1 starts, 1 limits and 1 strides; give one of each per dimension"},
      {[&] { reverse(x, {2}); }, "reverse: axis 2 is out of range for [2, 3]; valid axes: 0 to 1"},
      {[&] {
         reverse(x, {1, 1});
       },
       "reverse: axis 1 appears twice in [1, 1]; name each axis once"},
      {[&] {
         pad(x, x, {0, 0}, {0, 0}, {0, 0});
       },
       "pad: the value is f32[2,3]; it must be a scalar"},
      {[&] {
         pad(x, i, {0, 0}, {0, 0}, {0, 0});
       },
       "pad: f32[2,3] and i32[] differ in type; cast one of them"},
      {[&] {
         pad(x, s, {INT64_MAX, 0}, {INT64_MAX, 0}, {0, 0});
       },
       "pad: low 9223372036854775807, high 9223372036854775807 and interior 0 make dimension 0 of [2, 3] too large "
       "for 64 bits"},
      {[&] {
         pad(x, s, {-2, 0}, {-1, 0}, {0, 0});
       },
       "pad: low -2 and high -1 remove more than all of dimension 0 of [2, 3]; the result would have extent -1"},
      {[&] {
         pad(x, s, {0, 0}, {0, 0}, {0, -1});
       },
       "pad: interior amount -1 of dimension 1 is negative; use slice with a stride to take elements out"},
      {[&] { concatenate({}, 0); }, "concatenate: got no operands; give at least one"},
      {[&] {
         concatenate({x, reshape(x, {3, 2})}, 0);
       },
       "concatenate: [2, 3] and [3, 2] do not fit along axis 0; all other extents must be equal"},
      {[&] { concatenate({s}, 0); }, "concatenate: axis 0 is out of range; a scalar has no axes"},
      {[&] { dynamic_slice(x, {i}, {1}); },
       "dynamic_slice: [2, 3] has 2 dimensions and got 1 starts and a block of [1]; give one of each per dimension"},
      {[&] {
         dynamic_slice(x, {i, s}, {1, 1});
       },
       "dynamic_slice: start 1 is f32[]; starts must be i32 or i64"},
      {[&] {
         dynamic_slice(x, {i, i}, {1, 4});
       },
       "dynamic_slice: a block of 4 elements does not fit dimension 1 of [2, 3]; valid sizes: 0 to 3"},
      {[&] {
         update_slice(x, s, {i, i});
       },
       "update_slice: [] cannot replace a block of [2, 3]; the ranks must be equal"},
  };
  for (const auto& [f, wanted] : cases) EXPECT_EQ(error_of(f), wanted);
}

TEST(ShapeOps, RulesShareFactorsOfUnchangedDimensions) {
  auto text = [](const Rule& r) {
    std::string out;
    for (const auto& t : r.in) out += t + ",";
    out.back() = '>';
    out += r.out[0] + " unsharded " + r.unsharded;
    for (const auto& [factor, step] : r.in_step.empty() ? std::map<char, int64_t>() : r.in_step[0])
      out += std::string(" ") + factor + " before by " + std::to_string(step);
    for (const auto& [factor, step] : r.out_step.empty() ? std::map<char, int64_t>() : r.out_step[0])
      out += std::string(" ") + factor + " after by " + std::to_string(step);
    return out;
  };
  const std::vector<Type> x = {{f32, {4, 6, 5}}};
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{4, 2, 3, 5}}})), "abd>abcd unsharded c b before by 3");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{8, 15}}})), "abc>ad unsharded bcd a after by 2");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{6, 20}}})), "abc>ad unsharded bcd a before by 2 a after by 3");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{1, 4, 6, 5}}})), "bcd>abcd unsharded a");
  EXPECT_EQ(text(reshape_op.rule(x, {{"shape", Dims{5, 24}}})), "abc>de unsharded abcde");
  EXPECT_EQ(text(slice_op.rule(x, {{"starts", Dims{0, 0, 1}}, {"limits", Dims{4, 6, 3}}, {"strides", Dims{1, 1, 1}}})),
            "abc>abd unsharded cd");
  EXPECT_EQ(text(broadcast_op.rule(x, {{"shape", Dims{4, 2, 6, 5}}, {"dims", Dims{0, 2, 3}}})), "acd>abcd unsharded ");
  EXPECT_EQ(text(transpose_op.rule(x, {{"permutation", Dims{2, 0, 1}}})), "abc>cab unsharded ");
}

}  // namespace
}  // namespace lockstep
