// References and samples of the rows that create, move and rearrange elements.
#include "rows/rows.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// out[index] = in[source(index)].
template <class F>
void move_elements(const RefArray& in, RefArray& out, F&& source) {
  for_each_index(out.shape(),
                 [&](const Dims& index, int64_t i) { out.data[static_cast<size_t>(i)] = in.at(source(index)); });
}

// Whether `index` is inside `shape`.
bool inside(const Shape& shape, const Dims& index) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (index[d] < 0 || index[d] >= shape[d]) return false;
  return true;
}

void add_makers(std::vector<Row>& out) {
  Row full{&full_op,
           [](const RefArrays&, const Attrs& attrs, RefArrays& y) {
             const Attr& value = *attrs.find("value");
             const double* real = std::get_if<double>(&value);
             for (Real& x : y[0].data)
               x = real ? static_cast<Real>(*real) : static_cast<Real>(std::get<int64_t>(value));
           },
           {},
           true};
  auto add_full = [&](DType t, Shape shape, Attr value) {
    full.samples.push_back({{}, {{"dtype", t}, {"shape", std::move(shape)}, {"value", std::move(value)}}});
  };
  add_full(f32, {2, 3}, 1.5);
  add_full(f64, {}, -0.0);
  add_full(bf16, {4}, 0.25);
  add_full(f16, {1, 2, 1, 2}, 100.0);
  add_full(f32, {3}, std::numeric_limits<double>::infinity());
  add_full(f32, {2}, std::nan(""));
  add_full(i32, {50000}, int64_t{-7});
  add_full(i64, {2}, int64_t{1} << 60);
  add_full(u8, {0, 2}, int64_t{255});
  add_full(u32, {2}, int64_t{4294967295});
  add_full(boolean, {2, 2}, int64_t{1});
  out.push_back(std::move(full));

  Row iota{&iota_op,
           [](const RefArrays&, const Attrs& attrs, RefArrays& y) {
             const auto d = static_cast<size_t>(attrs.integer("dim"));
             const int64_t start = attrs.get_or<int64_t>("start", 0);
             for_each_index(y[0].shape(),
                            [&](const Dims& index, int64_t) { y[0].at(index) = static_cast<Real>(start + index[d]); });
           },
           {},
           true};
  auto add_iota = [&](DType t, Shape shape, int64_t dim) {
    iota.samples.push_back({{}, {{"dtype", t}, {"shape", std::move(shape)}, {"dim", dim}}});
  };
  for (DType t : kAllDTypes)
    if (t != boolean) add_iota(t, {3, 4}, 1);
  add_iota(i32, {5, 2, 3}, 0);
  add_iota(f32, {2, 3, 4, 2}, 2);
  add_iota(i32, {0, 3}, 1);
  add_iota(i64, {40000}, 0);
  add_iota(i32, {12, 3, 4}, 1);
  for (DType t : {i32, f32, bf16}) {  // the shard of a lane
    add_iota(t, {3, 5}, 1);
    iota.samples.back().attrs.set("start", int64_t{7});
  }
  out.push_back(std::move(iota));
}

void add_broadcast_row(std::vector<Row>& out) {
  Row broadcast{&broadcast_op,
                [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                  const Ints& dims = attrs.ints("dims");
                  move_elements(in[0], y[0], [&](const Dims& index) {
                    Dims from;
                    for (int64_t d : dims) from.push_back(index[static_cast<size_t>(d)]);
                    return from;
                  });
                },
                {},
                true};
  auto add_broadcast = [&](Type t, Shape shape, Ints dims) {
    broadcast.samples.push_back({{{std::move(t)}}, {{"shape", std::move(shape)}, {"dims", std::move(dims)}}});
  };
  add_broadcast({f32, {}}, {2, 3}, {});
  add_broadcast({f32, {3}}, {2, 3}, {1});
  add_broadcast({f32, {2}}, {2, 3}, {0});
  add_broadcast({f32, {2, 3}}, {4, 2, 5, 3}, {1, 3});
  add_broadcast({i32, {2, 3}}, {2, 3}, {0, 1});
  add_broadcast({boolean, {1}}, {1, 4}, {0});
  add_broadcast({bf16, {4}}, {0, 4}, {1});
  add_broadcast({f64, {0}}, {0, 4}, {0});
  add_broadcast({f32, {4, 12}}, {2, 4, 2, 12}, {1, 3});
  add_broadcast({u8, {200}}, {200, 150}, {0});
  out.push_back(std::move(broadcast));
}

void add_reshape_row(std::vector<Row>& out) {
  Row reshape{&reshape_op, [](const RefArrays& in, const Attrs&, RefArrays& y) { y[0].data = in[0].data; }, {}, true};
  auto add_reshape = [&](Type t, Shape shape) {
    reshape.samples.push_back({{{std::move(t)}}, {{"shape", std::move(shape)}}});
  };
  add_reshape({f32, {2, 6}}, {3, 4});
  add_reshape({f32, {}}, {1, 1});
  add_reshape({i64, {2, 3, 4}}, {24});
  add_reshape({boolean, {4}}, {2, 1, 2});
  add_reshape({f16, {0, 3}}, {5, 0});
  add_reshape({f64, {1}}, {});
  add_reshape({f32, {12, 2, 2, 4}}, {12, 4, 4});
  out.push_back(std::move(reshape));
}

void add_transpose_row(std::vector<Row>& out) {
  Row transpose{&transpose_op,
                [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                  const Ints& permutation = attrs.ints("permutation");
                  move_elements(in[0], y[0], [&](const Dims& index) {
                    Dims from(index.size());
                    for (size_t d = 0; d < index.size(); ++d) from[static_cast<size_t>(permutation[d])] = index[d];
                    return from;
                  });
                },
                {},
                true};
  auto add_transpose = [&](Type t, Ints p) {
    transpose.samples.push_back({{{std::move(t)}}, {{"permutation", std::move(p)}}});
  };
  add_transpose({f32, {2, 3}}, {1, 0});
  add_transpose({f32, {2, 3, 4}}, {2, 0, 1});
  add_transpose({f64, {2, 3, 4, 5}}, {3, 1, 0, 2});
  add_transpose({i32, {}}, {});
  add_transpose({bf16, {5}}, {0});
  add_transpose({u8, {130, 170}}, {1, 0});
  add_transpose({f16, {0, 3}}, {1, 0});
  add_transpose({boolean, {1, 3, 1}}, {2, 1, 0});
  add_transpose({i64, {3, 2, 2}}, {0, 2, 1});
  out.push_back(std::move(transpose));
}

void add_slice_row(std::vector<Row>& out) {
  Row slice{&slice_op,
            [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
              move_elements(in[0], y[0], [&](Dims index) {
                for (size_t d = 0; d < index.size(); ++d)
                  index[d] = attrs.ints("starts")[d] + index[d] * attrs.ints("strides")[d];
                return index;
              });
            },
            {},
            true};
  auto add_slice = [&](Type t, Ints starts, Ints limits, Ints strides) {
    slice.samples.push_back(
        {{{std::move(t)}},
         {{"starts", std::move(starts)}, {"limits", std::move(limits)}, {"strides", std::move(strides)}}});
  };
  add_slice({f32, {5, 6}}, {1, 0}, {4, 6}, {1, 1});
  add_slice({f32, {7}}, {1}, {7}, {3});
  add_slice({f64, {3, 4, 5, 2}}, {0, 1, 2, 0}, {3, 3, 5, 1}, {2, 1, 2, 1});
  add_slice({i32, {}}, {}, {}, {});
  add_slice({bf16, {4, 4}}, {2, 4}, {2, 4}, {1, 1});
  add_slice({boolean, {6}}, {0}, {6}, {5});
  add_slice({u8, {3, 9}}, {1, 2}, {3, 9}, {1, 4});
  add_slice({f32, {12, 5, 4}}, {0, 1, 0}, {12, 4, 4}, {1, 2, 1});
  out.push_back(std::move(slice));
}

void add_reverse_row(std::vector<Row>& out) {
  Row reverse{&reverse_op,
              [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                move_elements(in[0], y[0], [&](Dims index) {
                  for (int64_t axis : attrs.ints("axes")) {
                    const auto d = static_cast<size_t>(axis);
                    index[d] = in[0].shape()[d] - 1 - index[d];
                  }
                  return index;
                });
              },
              {},
              true};
  auto add_reverse = [&](Type t, Ints axes) {
    reverse.samples.push_back({{{std::move(t)}}, {{"axes", std::move(axes)}}});
  };
  add_reverse({f32, {2, 3}}, {0});
  add_reverse({f32, {2, 3, 4}}, {0, 2});
  add_reverse({i32, {5}}, {0});
  add_reverse({f64, {2, 3}}, {});
  add_reverse({u8, {0, 3}}, {0, 1});
  add_reverse({bf16, {2, 1, 3, 2}}, {3});
  add_reverse({f32, {12, 3, 4}}, {1});
  out.push_back(std::move(reverse));
}

void add_stop_gradient_row(std::vector<Row>& out) {
  Row stop{
      &stop_gradient_op, [](const RefArrays& in, const Attrs&, RefArrays& y) { y[0].data = in[0].data; }, {}, true};
  for (const Shape& s : {Shape{}, Shape{3}, Shape{2, 0}, Shape{2, 3, 2, 1}, Shape{12, 4}})
    for (DType t : {f32, i32, bf16}) stop.samples.push_back({{{{t, s}}}, {}});
  out.push_back(std::move(stop));
}

void add_constrain_row(std::vector<Row>& out) {
  Row constrain{
      &constrain_op, [](const RefArrays& in, const Attrs&, RefArrays& y) { y[0].data = in[0].data; }, {}, true};
  auto add_constrain = [&](DType t, Shape shape, std::string axes, std::string at) {
    constrain.samples.push_back(
        {{{{t, std::move(shape)}}},
         {{"mesh", "x=2,y=2"}, {"axes", std::move(axes)}, {"by", "with_sharding_constraint"}, {"at", std::move(at)}}});
  };
  add_constrain(f32, {}, "", "a.cc:1");
  add_constrain(i32, {3}, "", "a.cc:1");
  add_constrain(bf16, {2, 0}, ";y", "a.cc:2");
  add_constrain(f32, {2, 3, 2, 1}, "x;;*;y", "");
  add_constrain(f32, {12, 4}, "y,x;", "a.cc:3");
  add_constrain(f64, {12, 4}, "*;x", "a.cc:3");
  out.push_back(std::move(constrain));
}

void add_pad_row(std::vector<Row>& out) {
  Row pad{&pad_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            for (Real& x : y[0].data) x = in[1].data[0];
            for_each_index(in[0].shape(), [&](const Dims& from, int64_t i) {
              Dims to = from;
              for (size_t d = 0; d < to.size(); ++d)
                to[d] = attrs.ints("lo")[d] + from[d] * (attrs.ints("interior")[d] + 1);
              if (inside(y[0].shape(), to)) y[0].at(to) = in[0].data[static_cast<size_t>(i)];
            });
          },
          {},
          true};
  auto add_pad = [&](Type t, Ints lo, Ints hi, Ints interior) {
    const DType dtype = t.dtype;
    pad.samples.push_back({{{std::move(t)}, {{dtype, {}}}},
                           {{"lo", std::move(lo)}, {"hi", std::move(hi)}, {"interior", std::move(interior)}}});
  };
  add_pad({f32, {2, 3}}, {1, 0}, {0, 2}, {0, 0});
  add_pad({f32, {3}}, {0}, {0}, {2});
  add_pad({f64, {4, 3}}, {-1, 2}, {1, -2}, {0, 1});
  add_pad({f32, {5}}, {-2}, {-2}, {0});
  add_pad({i32, {2, 2, 2, 1}}, {0, 1, 0, 0}, {1, 0, 0, 3}, {1, 0, 2, 0});
  add_pad({boolean, {0}}, {2}, {1}, {3});
  add_pad({bf16, {}}, {}, {}, {});
  add_pad({f16, {3}}, {-1}, {-2}, {0});
  add_pad({f32, {3}}, {-4}, {3}, {1});
  add_pad({f32, {12, 3, 4}}, {0, 1, 0}, {0, 2, 0}, {0, 0, 0});
  out.push_back(std::move(pad));
}

void add_concatenate_row(std::vector<Row>& out) {
  Row concatenate{&concatenate_op,
                  [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                    const auto axis = static_cast<size_t>(attrs.integer("axis"));
                    int64_t start = 0;
                    for (const RefArray& x : in) {
                      for_each_index(x.shape(), [&](const Dims& from, int64_t i) {
                        Dims to = from;
                        to[axis] += start;
                        y[0].at(to) = x.data[static_cast<size_t>(i)];
                      });
                      start += x.shape()[axis];
                    }
                  },
                  {},
                  true};
  auto add_concatenate = [&](DType t, const std::vector<Shape>& shapes, int64_t axis) {
    Sample s;
    for (const Shape& shape : shapes) s.in.push_back({{t, shape}});
    s.attrs.set("axis", axis);
    concatenate.samples.push_back(std::move(s));
  };
  add_concatenate(f32, {{2, 3}, {1, 3}}, 0);
  add_concatenate(f32, {{2, 3}, {2, 1}, {2, 2}}, 1);
  add_concatenate(f64, {{2, 2, 1, 3}, {2, 2, 4, 3}}, 2);
  add_concatenate(i32, {{4}}, 0);
  add_concatenate(boolean, {{0}, {3}, {0}}, 0);
  add_concatenate(bf16, {{2, 0}, {2, 0}}, 1);
  add_concatenate(u8, {{150, 90}, {150, 60}}, 1);
  add_concatenate(f32, {{12, 2, 4}, {12, 3, 4}}, 1);
  out.push_back(std::move(concatenate));
}

// The start of a block, clamped so that it fits.
Ints block_start(const Shape& x, const Shape& block, std::span<const RefArray> starts, const Dims& batch) {
  Ints at(x.size(), 0);
  for (size_t d = 0; d < batch.size(); ++d) at[d] = batch[d];
  for (size_t d = batch.size(); d < x.size(); ++d)
    at[d] = std::clamp<int64_t>(static_cast<int64_t>(starts[d - batch.size()].at(batch)), 0, x[d] - block[d]);
  return at;
}

void add_blocks(std::vector<Row>& out) {
  // Calls f(position in x, position in the block) for every element of the block.
  static const auto walk = [](const Shape& x, const Shape& block, std::span<const RefArray> starts, int64_t batch_dims,
                              auto&& f) {
    for_each_index(block, [&](const Dims& in_block, int64_t) {
      const Dims batch(in_block.begin(), in_block.begin() + batch_dims);
      Dims in_x = block_start(x, block, starts, batch);
      for (size_t d = batch.size(); d < in_x.size(); ++d) in_x[d] += in_block[d];
      f(in_x, in_block);
    });
  };
  Row slice{&dynamic_slice_op,
            [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
              walk(in[0].shape(), y[0].shape(), std::span(in).subspan(1), attrs.integer("batch_dims"),
                   [&](const Dims& in_x, const Dims& in_block) { y[0].at(in_block) = in[0].at(in_x); });
            },
            {},
            true};
  Row update{&update_slice_op,
             [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
               y[0].data = in[0].data;
               walk(in[0].shape(), in[1].shape(), std::span(in).subspan(2), attrs.integer("batch_dims"),
                    [&](const Dims& in_x, const Dims& in_block) { y[0].at(in_x) = in[1].at(in_block); });
             },
             {},
             true};
  auto add = [&](DType t, const Shape& x, const Shape& block, int64_t batch_dims, DType index) {
    const SampleOperand start{{index, Shape(x.begin(), x.begin() + batch_dims)}, {Domain::real, -3, 6}};
    const std::vector<SampleOperand> starts(x.size() - static_cast<size_t>(batch_dims), start);
    Sample s{{{{t, x}}}, {{"sizes", Ints(block.begin() + batch_dims, block.end())}, {"batch_dims", batch_dims}}};
    s.in.insert(s.in.end(), starts.begin(), starts.end());
    slice.samples.push_back(std::move(s));
    Sample u{{{{t, x}}, {{t, block}}}, {{"batch_dims", batch_dims}}};
    u.in.insert(u.in.end(), starts.begin(), starts.end());
    update.samples.push_back(std::move(u));
  };
  add(f32, {5, 6}, {2, 3}, 0, i32);
  add(f32, {7}, {1}, 0, i64);
  add(f64, {3, 4, 2}, {3, 2, 1}, 0, i32);
  add(i32, {2, 5, 3}, {2, 2, 3}, 1, i32);
  add(bf16, {4}, {4}, 0, i32);
  add(boolean, {4, 4}, {0, 2}, 0, i32);
  add(f16, {}, {}, 0, i32);
  add(f32, {2, 3, 6}, {2, 3, 4}, 2, i64);
  add(f32, {2, 12, 4, 3}, {2, 12, 4, 2}, 2, i32);
  out.push_back(std::move(slice));
  out.push_back(std::move(update));
}

}  // namespace

void add_shape_rows(std::vector<Row>& out) {
  add_makers(out);
  add_broadcast_row(out);
  add_reshape_row(out);
  add_transpose_row(out);
  add_slice_row(out);
  add_reverse_row(out);
  add_stop_gradient_row(out);
  add_constrain_row(out);
  add_pad_row(out);
  add_concatenate_row(out);
  add_blocks(out);
}

}  // namespace lockstep
