// References and samples of convolution and pooling.
#include "ops/conv.h"
#include "ops/ops.h"
#include "ops/pool.h"
#include "rows/rows.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

// Calls f(x index, w index, y index) for every product of a convolution of x [n, h, w, c] with w [kh, kw, ci, co].
template <class F>
void for_products(const Shape& x, const Shape& w, const Shape& y, const Attrs& attrs, F&& f) {
  const Ints &stride = attrs.ints("stride"), &pad = attrs.ints("pad"), &left = attrs.ints("lhs_dilation"),
             &right = attrs.ints("rhs_dilation");
  const int64_t group_out = w[3] / attrs.integer("groups");
  for_each_index({y[0], y[1], y[2], y[3], w[0], w[1], w[2]}, [&](const Dims& i, int64_t) {
    const int64_t at_h = i[1] * stride[0] + i[4] * right[0] - pad[0],
                  at_w = i[2] * stride[1] + i[5] * right[1] - pad[2];
    if (at_h < 0 || at_w < 0 || at_h % left[0] != 0 || at_w % left[1] != 0) return;
    const int64_t h = at_h / left[0], v = at_w / left[1];
    if (h >= x[1] || v >= x[2]) return;
    f(Dims{i[0], h, v, i[3] / group_out * w[2] + i[6]}, Dims{i[4], i[5], i[6], i[3]}, Dims{i[0], i[1], i[2], i[3]});
  });
}

struct ConvCase {
  DType dtype;
  Shape x, w;
  ConvOptions options;
};

Attrs conv_attrs(const ConvOptions& o) {
  auto list = [](const auto& a) { return Ints(a.begin(), a.end()); };
  return {{"stride", list(o.stride)},
          {"pad", list(o.pad)},
          {"lhs_dilation", list(o.lhs_dilation)},
          {"rhs_dilation", list(o.rhs_dilation)},
          {"groups", o.groups}};
}

std::vector<ConvCase> conv_cases() {
  return {
      {f32, {2, 5, 6, 3}, {3, 3, 3, 4}, {}},
      {f32, {1, 6, 5, 2}, {3, 2, 2, 3}, {.stride = {2, 1}, .pad = {1, 1, 0, 1}}},
      {f64, {2, 4, 4, 2}, {2, 2, 2, 2}, {.pad = {1, 0, 1, 0}, .lhs_dilation = {2, 1}}},
      {f32, {1, 7, 7, 2}, {2, 3, 2, 2}, {.stride = {1, 2}, .pad = {0, 0, 2, 2}, .rhs_dilation = {3, 2}}},
      {f32, {2, 4, 5, 4}, {2, 2, 2, 6}, {.pad = {1, 1, 1, 1}, .groups = 2}},
      {f64, {1, 4, 4, 3}, {3, 3, 1, 3}, {.pad = {1, 1, 1, 1}, .groups = 3}},
      {f64, {4, 2, 3, 12}, {2, 2, 1, 24}, {.groups = 12}},
      {f32, {2, 6, 5, 8}, {3, 3, 1, 16}, {.stride = {2, 1}, .pad = {1, 0, 1, 1}, .groups = 8}},
      {bf16, {2, 6, 6, 32}, {3, 3, 1, 32}, {.pad = {1, 1, 1, 1}, .groups = 32}},
      {f32, {3, 1, 40, 20}, {1, 5, 1, 20}, {.pad = {0, 0, 2, 2}, .groups = 20}},
      {bf16, {1, 5, 5, 3}, {3, 3, 3, 2}, {}},
      {f16, {1, 4, 4, 2}, {2, 2, 2, 2}, {}},
      {f32, {3, 1, 1, 5}, {1, 1, 5, 4}, {}},
      {f32, {4, 4, 2, 6}, {1, 1, 6, 4}, {}},
      {f32, {0, 5, 5, 2}, {3, 3, 2, 2}, {}},
      {f32, {4, 3, 4, 4}, {2, 2, 4, 4}, {}},
      {f32, {2, 12, 12, 8}, {3, 3, 8, 16}, {.pad = {1, 1, 1, 1}}},
      {f32, {3, 14, 13, 1}, {5, 5, 1, 32}, {.pad = {2, 2, 2, 2}}},
      {bf16, {3, 10, 11, 8}, {3, 3, 8, 72}, {.pad = {1, 1, 1, 1}}},
      {f16, {5, 9, 9, 12}, {3, 2, 6, 20}, {.stride = {2, 1}, .pad = {0, 1, 1, 0}, .groups = 2}},
      {f64, {2, 12, 12, 4}, {5, 5, 4, 6}, {.pad = {2, 2, 2, 2}}},
      {f64,
       {2, 5, 4, 4},
       {2, 3, 2, 4},
       {.stride = {2, 2}, .pad = {1, 2, 2, 1}, .lhs_dilation = {1, 3}, .rhs_dilation = {2, 1}, .groups = 2}},
  };
}

void add_convolutions(std::vector<Row>& out) {
  Row forward{&conv2d_op,
              [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
                for_products(
                    in[0].shape(), in[1].shape(), y[0].shape(), attrs,
                    [&](const Dims& x, const Dims& w, const Dims& at) { y[0].at(at) += in[0].at(x) * in[1].at(w); });
              },
              {}};
  Row to_input{&conv2d_input_grad_op,
               [](const RefArrays& in, const Attrs& attrs, RefArrays& dx) {
                 for_products(
                     dx[0].shape(), in[1].shape(), in[0].shape(), attrs,
                     [&](const Dims& x, const Dims& w, const Dims& at) { dx[0].at(x) += in[0].at(at) * in[1].at(w); });
               },
               {}};
  Row to_filter{&conv2d_filter_grad_op,
                [](const RefArrays& in, const Attrs& attrs, RefArrays& dw) {
                  for_products(
                      in[0].shape(), dw[0].shape(), in[1].shape(), attrs,
                      [&](const Dims& x, const Dims& w, const Dims& at) { dw[0].at(w) += in[0].at(x) * in[1].at(at); });
                },
                {}};
  for (const ConvCase& c : conv_cases()) {
    const Attrs attrs = conv_attrs(c.options);
    const SampleOperand x{{c.dtype, c.x}}, w{{c.dtype, c.w}};
    const SampleOperand dy{infer_types(conv2d_op, std::vector<Type>{x.type, w.type}, attrs)[0]};
    Attrs with_x = attrs, with_w = attrs;
    with_x.set("shape", c.x);
    with_w.set("shape", c.w);
    forward.samples.push_back({{x, w}, attrs});
    to_input.samples.push_back({{dy, w}, with_x});
    to_filter.samples.push_back({{x, dy}, with_w});
  }
  out.push_back(std::move(forward));
  out.push_back(std::move(to_input));
  out.push_back(std::move(to_filter));
}

void add_fused_convolution(std::vector<Row>& out) {
  Row fused{&conv2d_fused_op,
            [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
              RefArrays body = reference_of(conv2d_op, attrs, {in[0], in[1]});
              body.insert(body.end(), in.begin() + 2, in.end());
              y = reference_of(attrs.program("body"), body);
            },
            {},
            false,
            true};
  const auto add = [&](const Shape& x, const Shape& w, const Shape& y, const ConvOptions& options) {
    const ProgramPtr bias_relu = std::make_shared<const Program>(parse(fmt::format(R"(
    program(%0:f32[{0}], %1:f32[{1}]) {{
      %2:f32[{0}] = broadcast[dims=[3], shape=[{0}]] %1
      %3:f32[{0}] = add %0 %2
      %4:f32[{0}] = full[dtype=f32, shape=[{0}], value=0.0]
      %5:f32[{0}] = maximum %3 %4
      return %5 %0
    }})",
                                                                                   fmt::join(y, ","), y[3]),
                                                                       all_ops()));
    Attrs attrs = conv_attrs(options);
    attrs.set("body", bias_relu);
    fused.samples.push_back({{{{f32, x}}, {{f32, w}}, {{f32, {y[3]}}}}, attrs});
  };
  add({2, 5, 6, 3}, {3, 3, 3, 4}, {2, 3, 4, 4}, {});
  add({2, 4, 5, 8}, {3, 3, 1, 8}, {2, 4, 3, 8}, {.stride = {1, 2}, .pad = {1, 1, 1, 1}, .groups = 8});
  out.push_back(std::move(fused));
}

// Calls f(x index, y index) for every element of every window, windows in order, elements in row-major order.
template <class F>
void for_windows(const Shape& x, const Shape& y, const Attrs& attrs, F&& f) {
  const Ints &window = attrs.ints("window"), &stride = attrs.ints("stride"), &pad = attrs.ints("pad");
  for_each_index({y[0], y[1], y[2], y[3], window[0], window[1]}, [&](const Dims& i, int64_t) {
    const int64_t h = i[1] * stride[0] + i[4] - pad[0], v = i[2] * stride[1] + i[5] - pad[2];
    if (h >= 0 && h < x[1] && v >= 0 && v < x[2]) f(Dims{i[0], h, v, i[3]}, Dims{i[0], i[1], i[2], i[3]});
  });
}

// For every element of y, the position in x of its window's first maximum.
std::vector<Dims> first_maxima(const RefArray& x, const Shape& y, const Attrs& attrs) {
  std::vector<Dims> best(static_cast<size_t>(count(y)));
  for_windows(x.shape(), y, attrs, [&](const Dims& in_x, const Dims& in_y) {
    Dims& place = best[static_cast<size_t>(position(y, in_y))];
    if (place.empty() || x.at(in_x) > x.at(place)) place = in_x;
  });
  return best;
}

struct PoolRowCase {
  DType dtype;
  Shape x;
  PoolingOptions options;
  Domain domain = {Domain::distinct};
};

std::vector<PoolRowCase> pool_cases() {
  return {
      {f32, {2, 4, 6, 3}, {.window = {2, 2}, .stride = {2, 2}}},
      {f32, {1, 5, 5, 2}, {.window = {3, 2}, .stride = {2, 1}, .pad = {1, 1, 0, 1}}},
      {f64, {2, 3, 4, 1}, {.window = {2, 3}, .stride = {1, 1}}},
      {f32, {1, 4, 4, 2}, {.window = {1, 1}, .stride = {3, 3}}},
      {bf16, {1, 4, 4, 2}, {.window = {2, 2}, .stride = {2, 2}}},
      {f16, {1, 3, 3, 1}, {.window = {3, 3}, .stride = {1, 1}, .pad = {2, 2, 2, 2}}},
      {i32, {1, 4, 5, 2}, {.window = {2, 2}, .stride = {1, 2}}},
      {f32, {1, 4, 4, 2}, {.window = {2, 2}, .stride = {1, 1}}, {Domain::ties}},
      {f32, {0, 4, 4, 2}, {.window = {2, 2}, .stride = {2, 2}}},
      {f32, {12, 4, 3, 4}, {.window = {2, 2}, .stride = {2, 1}}},
      {f32, {4, 20, 20, 16}, {.window = {2, 2}, .stride = {2, 2}}, {Domain::real}},
      {bf16, {2, 11, 9, 24}, {.window = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}}, {Domain::ties}},
      {u8, {2, 9, 8, 16}, {.window = {3, 2}, .stride = {2, 3}, .pad = {1, 0, 0, 1}}, {Domain::ties}},
  };
}

void add_pools(std::vector<Row>& out) {
  Row max{&max_pool_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            const std::vector<Dims> best = first_maxima(in[0], y[0].shape(), attrs);
            for (size_t i = 0; i < best.size(); ++i) y[0].data[i] = in[0].at(best[i]);
          },
          {},
          true};
  Row grad{&max_pool_grad_op,
           [](const RefArrays& in, const Attrs& attrs, RefArrays& dx) {
             const std::vector<Dims> best = first_maxima(in[0], in[1].shape(), attrs);
             for (size_t i = 0; i < best.size(); ++i) dx[0].at(best[i]) += in[2].data[i];
           },
           {}};
  Row pick{&max_pool_pick_op,
           [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
             const std::vector<Dims> best = first_maxima(in[0], y[0].shape(), attrs);
             for (size_t i = 0; i < best.size(); ++i) y[0].data[i] = in[2].at(best[i]);
           },
           {},
           true};
  Row sum{&sum_pool_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            for_windows(in[0].shape(), y[0].shape(), attrs,
                        [&](const Dims& x, const Dims& at) { y[0].at(at) += in[0].at(x); });
          },
          {}};
  Row spread{&sum_pool_grad_op,
             [](const RefArrays& in, const Attrs& attrs, RefArrays& dx) {
               for_windows(dx[0].shape(), in[0].shape(), attrs,
                           [&](const Dims& x, const Dims& at) { dx[0].at(x) += in[0].at(at); });
             },
             {}};
  for (const PoolRowCase& c : pool_cases()) {
    auto list = [](const auto& a) { return Ints(a.begin(), a.end()); };
    const Attrs attrs{
        {"window", list(c.options.window)}, {"stride", list(c.options.stride)}, {"pad", list(c.options.pad)}};
    const bool smooth = c.domain.kind == Domain::distinct;
    const SampleOperand x{{c.dtype, c.x}, c.domain};
    const Type y_type = infer_types(max_pool_op, std::vector<Type>{x.type}, attrs)[0];
    const SampleOperand fixed{x.type, c.domain, false}, y{y_type, {Domain::pooled}, false}, dy{y_type};
    Attrs with_shape = attrs;
    with_shape.set("shape", c.x);
    max.samples.push_back({{x}, attrs, smooth});
    grad.samples.push_back({{fixed, y, dy}, attrs, smooth});
    pick.samples.push_back({{fixed, y, {x.type}}, attrs, smooth});
    sum.samples.push_back({{{x.type}}, attrs});
    spread.samples.push_back({{dy}, with_shape});
  }
  for (Row* row : {&max, &grad, &pick, &sum, &spread}) out.push_back(std::move(*row));
}

// max_pool_grad masked by where another array is positive, and unmasked; for windows that tile the image and others.
void add_fused_pools(std::vector<Row>& out) {
  Row row{&max_pool_grad_fused_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            RefArrays body = reference_of(max_pool_grad_op, attrs, {in[0], in[1], in[2]});
            body.insert(body.end(), in.begin() + 3, in.end());
            y = reference_of(attrs.program("body"), body);
          },
          {},
          false,
          true};
  const auto add = [&](const Shape& x, DType dtype, const Ints& window, const Ints& stride, const Ints& pad) {
    const Type type{dtype, x};
    const ProgramPtr masked = std::make_shared<const Program>(
        parse(fmt::format(R"(
      program(%0:{0}, %1:{0}, %2:{2}[{3}]) {{
        %3:{0} = full[dtype={2}, shape={1}, value=0.0]
        %4:bool{1} = gt %1 %3
        %5:{0} = select %4 %0 %3
        %6:{0} = broadcast[dims=[3], shape={1}] %2
        %7:{0} = mul %5 %6
        return %7 %0
      }})",
                          to_string(type), fmt::format("[{}]", fmt::join(x, ",")), name(dtype), x[3]),
              all_ops()));
    const Attrs pooling{{"window", window}, {"stride", stride}, {"pad", pad}};
    const Type y = infer_types(max_pool_op, std::vector<Type>{type}, pooling)[0];
    Attrs attrs = pooling;
    attrs.set("body", masked);
    row.samples.push_back(
        {{{type, {Domain::distinct}, false}, {y, {Domain::pooled}, false}, {y}, {type}, {{dtype, {x[3]}}}}, attrs});
  };
  add({2, 4, 6, 3}, f32, {2, 2}, {2, 2}, {0, 0, 0, 0});
  add({2, 12, 12, 4}, f32, {6, 6}, {6, 6}, {0, 0, 0, 0});
  add({2, 5, 5, 2}, f32, {3, 2}, {2, 1}, {1, 1, 0, 1});
  add({1, 4, 4, 2}, bf16, {2, 2}, {2, 2}, {0, 0, 0, 0});
  out.push_back(std::move(row));
}

}  // namespace

void add_window_rows(std::vector<Row>& out) {
  add_convolutions(out);
  add_fused_convolution(out);
  add_pools(out);
  add_fused_pools(out);
}

}  // namespace lockstep
