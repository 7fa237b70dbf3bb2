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

}  // namespace
}  // namespace lockstep
