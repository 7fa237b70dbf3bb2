#include "export/c_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/pool.h"
#include "program/op.h"

namespace lockstep {
namespace {

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> out(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) out[d - 1] = out[d] * shape[d];
  return out;
}

// "for (int a = 0; a < 3; ++a) "
std::string loop(std::string_view variable, int64_t extent) {
  return fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) ", variable, extent);
}

// Nested loops over a shape, with variables d0, d1, ...; dimensions of extent 1 have none.
std::string loops(const Shape& shape) {
  std::string out;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) out += loop(fmt::format("d{}", d), shape[d]);
  return out;
}

// offset + d0 * strides[0] + ...
std::string position(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset = 0) {
  std::string out = offset == 0 ? "" : std::to_string(offset);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1 && strides[d] != 0)
      out +=
          fmt::format("{}d{}{}", out.empty() ? "" : " + ", d, strides[d] == 1 ? "" : fmt::format(" * {}", strides[d]));
  return out.empty() ? "0" : out;
}

int64_t product(const Shape& shape, int64_t begin, int64_t end) {
  int64_t out = 1;
  for (int64_t d = begin; d < end; ++d) out *= shape[static_cast<size_t>(d)];
  return out;
}

// `combine` has the placeholders {0}, the result, and {1}, the element.
void emit_reduction(CEmitter& e, const char* initial, const char* combine) {
  const Shape& shape = e.in_type(0).shape;
  const std::vector<int64_t>& axes = e.attrs().ints("axes");
  Shape kept = shape;
  for (const int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  const std::vector<int64_t> strides = row_major_strides(kept);
  std::vector<int64_t> to = strides;
  for (const int64_t axis : axes) to[static_cast<size_t>(axis)] = 0;
  const std::string in = e.in(0), out = e.result();
  e.line(fmt::format("{}{}[i] = {};", loop("i", count(e.out_type().shape)), out, initial));
  const std::string result = fmt::format("{}[{}]", out, position(shape, to)),
                    element = fmt::format("{}[{}]", in, position(shape, row_major_strides(shape)));
  e.line(loops(shape) + fmt::format(fmt::runtime(combine), result, element));
}

// Two-dimensional windows over images [n, h, w, c]: loops over results, then over the window where it is inside.
struct WindowLoops {
  std::string head, tail;
};
WindowLoops window_loops(const Shape& in, const Shape& out, const std::array<int64_t, 2>& window,
                         const std::array<int64_t, 2>& stride, const std::array<int64_t, 4>& pad,
                         const std::array<int64_t, 2>& dilation, const char* channel_loop) {
  WindowLoops w;
  w.head = loop("n", out[0]) + loop("i", out[1]) + loop("j", out[2]) + "{\n";
  w.head += "    " + loop("a", window[0]) + loop("b", window[1]) + "{\n";
  w.head += fmt::format("      const int row = i * {} + a * {} - {}, col = j * {} + b * {} - {};\n", stride[0],
                        dilation[0], pad[0], stride[1], dilation[1], pad[2]);
  w.head += fmt::format("      if (row < 0 || row >= {} || col < 0 || col >= {}) continue;\n", in[1], in[2]);
  w.head += std::string("      ") + channel_loop;
  w.tail = "\n    }\n  }";
  return w;
}

void emit_pool(CEmitter& e, const char* initial, const char* combine) {
  const PoolingOptions options = pooling_options(e.attrs());
  const Shape &in = e.in_type(0).shape, &out = e.out_type().shape;
  const std::string x = e.in(0), y = e.result();
  e.line(fmt::format("{}{}[k] = {};", loop("k", count(out)), y, initial));
  const WindowLoops w =
      window_loops(in, out, options.window, options.stride, options.pad, {1, 1}, loop("k", out[3]).c_str());
  e.line(
      w.head + "{\n" +
      fmt::format("        const float value = {}[((n * {} + row) * {} + col) * {} + k];\n", x, in[1], in[2], in[3]) +
      fmt::format("        float& best = {}[((n * {} + i) * {} + j) * {} + k];\n", y, out[1], out[2], out[3]) +
      fmt::format("        {}\n      }}", combine) + w.tail);
}

}  // namespace

void c_elementwise(CEmitter& e, const char* expression) {
  const char* names[] = {"x", "y", "z"};
  std::string operands;
  for (size_t i = 0; i < e.operands(); ++i)
    operands += fmt::format("const {} {} = {}; ", c_type(e.in_type(i).dtype), names[i], e.element(i, "i"));
  const std::string out = e.result();
  e.line(fmt::format("{}{{ {}{}[i] = {}; }}", loop("i", count(e.out_type().shape)), operands, out, expression));
}

void c_full(CEmitter& e) {
  const Attr& value = *e.attrs().find("value");
  c_type(e.out_type().dtype);  // checks it
  if (const auto* integer = std::get_if<int64_t>(&value)) return e.set_literal(std::to_string(*integer));
  e.set_literal(c_literal(static_cast<float>(std::get<double>(value))));
}

void c_iota(CEmitter& e) {
  const Shape& shape = e.out_type().shape;
  const auto dim = static_cast<size_t>(e.attrs().integer("dim"));
  const int64_t start = e.attrs().get_or<int64_t>("start", 0);
  const std::string out = e.result();
  const std::string count_text = shape[dim] == 1 ? "0" : fmt::format("d{}", dim);
  e.line(fmt::format("{}{}[{}] = {} + {};", loops(shape), out, position(shape, row_major_strides(shape)), count_text,
                     start));
}

void c_alias(CEmitter& e) { e.set_alias(); }

void c_view(CEmitter& e) {
  if (e.is_literal(0)) return e.set_alias();
  const View view = e.eqn().op->view(e.in_type(0), e.out_type(), e.attrs());
  const Shape& shape = e.out_type().shape;
  const std::string in = e.in(0), out = e.result();
  e.line(fmt::format("{}{}[{}] = {}[{}];", loops(shape), out, position(shape, row_major_strides(shape)), in,
                     position(shape, view.strides, view.offset)));
}

void c_pad(CEmitter& e) {
  const std::vector<int64_t>&lo = e.attrs().ints("lo"), &hi = e.attrs().ints("hi");
  const auto is_negative = [](int64_t each) { return each < 0; };
  if (std::ranges::any_of(lo, is_negative) || std::ranges::any_of(hi, is_negative) ||
      std::ranges::any_of(e.attrs().ints("interior"), [](int64_t each) { return each != 0; }))
    e.fail("it cuts elements off, or pads between elements");
  const Shape& shape = e.in_type(0).shape;
  const std::vector<int64_t> strides = row_major_strides(e.out_type().shape);
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset += lo[d] * strides[d];
  const std::string in = e.in(0), value = e.element(1, "0"), out = e.result();
  e.line(fmt::format("{}{}[i] = {};", loop("i", count(e.out_type().shape)), out, value));
  e.line(fmt::format("{}{}[{}] = {}[{}];", loops(shape), out, position(shape, strides, offset), in,
                     position(shape, row_major_strides(shape))));
}

void c_concatenate(CEmitter& e) {
  const int64_t axis = e.attrs().integer("axis");
  const Shape& shape = e.out_type().shape;
  const int64_t outer = product(shape, 0, axis), all = product(shape, axis, std::ssize(shape));
  std::vector<std::string> operands;
  for (size_t i = 0; i < e.operands(); ++i) operands.push_back(e.in(i));
  const std::string out = e.result();
  int64_t begin = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const int64_t part = product(e.in_type(i).shape, axis, std::ssize(shape));
    e.line(fmt::format("{}{}{}[a * {} + {} + b] = {}[a * {} + b];", loop("a", outer), loop("b", part), out, all, begin,
                       operands[i], part));
    begin += part;
  }
}

void c_gather(CEmitter& e) {
  if (e.attrs().integer("batch_dims") != 0) e.fail("its operands share batch dimensions");
  const int64_t axis = e.attrs().integer("axis");
  const Shape& shape = e.in_type(0).shape;
  const int64_t n = shape[static_cast<size_t>(axis)], outer = product(shape, 0, axis),
                inner = product(shape, axis + 1, std::ssize(shape)), places = count(e.in_type(1).shape);
  const std::string x = e.in(0), indices = e.in(1), out = e.result();
  e.line(fmt::format("{}{}{{", loop("a", outer), loop("p", places)));
  e.line(fmt::format("  const int at = {0}[p] < 0 ? 0 : {0}[p] >= {1} ? {2} : {0}[p];", indices, n, n - 1));
  e.line(fmt::format("  {}{}[(a * {} + p) * {} + k] = {}[(a * {} + at) * {} + k];", loop("k", inner), out, places,
                     inner, x, n, inner));
  e.line("}");
}

void c_cast(CEmitter& e) {
  const DType from = e.in_type(0).dtype, to = e.out_type().dtype;
  if (to == boolean) return c_elementwise(e, "x != 0");
  c_elementwise(e, from == to ? "x" : is_floating(to) ? "static_cast<float>(x)" : "static_cast<int>(x)");
}

void c_not(CEmitter& e) {
  if (e.out_type().dtype != boolean) e.fail("it is bitwise on integers");
  c_elementwise(e, "!x");
}

void c_reduce_sum(CEmitter& e) { emit_reduction(e, "0", "{0} += {1};"); }
void c_reduce_prod(CEmitter& e) { emit_reduction(e, "1", "{0} *= {1};"); }
void c_reduce_max(CEmitter& e) {
  if (e.out_type().dtype != f32) e.fail("its elements are integers");
  emit_reduction(e, "-INFINITY", "if ({1} > {0}) {0} = {1};");
}
void c_reduce_min(CEmitter& e) {
  if (e.out_type().dtype != f32) e.fail("its elements are integers");
  emit_reduction(e, "INFINITY", "if ({1} < {0}) {0} = {1};");
}

// Loops over the letters of the first operand in the result, then over those that are summed, then over the others. So
// the innermost loop runs over neighbors in the second operand and in the result of a matrix product.
void c_einsum(CEmitter& e) {
  const Rule rule = parse_rule(e.attrs().get<std::string>("spec"));
  const std::string &a = rule.in[0], &b = rule.in[1], &out = rule.out[0];
  std::map<char, int64_t> extents;
  for (size_t d = 0; d < a.size(); ++d) extents[a[d]] = e.in_type(0).shape[d];
  for (size_t d = 0; d < b.size(); ++d) extents[b[d]] = e.in_type(1).shape[d];
  std::string order;
  for (const char c : out)
    if (a.find(c) != a.npos) order += c;
  for (const char c : a)
    if (out.find(c) == out.npos) order += c;
  for (const char c : out)
    if (a.find(c) == a.npos) order += c;
  const auto index = [&](const std::string& term) {
    std::string text;
    int64_t stride = 1;
    for (size_t d = term.size(); d-- > 0; stride *= extents[term[d]])
      text = fmt::format("{}_ * {}", term[d], stride) + (text.empty() ? "" : " + " + text);
    return text.empty() ? "0" : text;
  };
  const std::string left = e.in(0), right = e.in(1), result = e.result();
  e.line(fmt::format("{}{}[i] = 0;", loop("i", count(e.out_type().shape)), result));
  std::string text;
  for (const char c : order) text += loop(fmt::format("{}_", c), extents[c]);
  e.line(fmt::format("{}{}[{}] += {}[{}] * {}[{}];", text, result, index(out), left, index(a), right, index(b)));
}

void c_conv2d(CEmitter& e) {
  const ConvOptions options = conv_options(e.attrs());
  if (options.lhs_dilation != std::array<int64_t, 2>{1, 1}) e.fail("its images are dilated");
  const Shape &in = e.in_type(0).shape, &w = e.in_type(1).shape, &out = e.out_type().shape;
  const std::string x = e.in(0), filters = e.in(1), y = e.result();
  e.line(fmt::format("{}{}[k] = 0;", loop("k", count(out)), y));
  const int64_t per_group = out[3] / options.groups;
  const std::string channels = loop("g", options.groups) + loop("k", w[2]);
  const WindowLoops loops_text =
      window_loops(in, out, {w[0], w[1]}, options.stride, options.pad, options.rhs_dilation, channels.c_str());
  e.line(loops_text.head + "{\n" +
         fmt::format("        const float value = {}[((n * {} + row) * {} + col) * {} + g * {} + k];\n", x, in[1],
                     in[2], in[3], w[2]) +
         fmt::format("        const float* const from = {} + ((a * {} + b) * {} + k) * {} + g * {};\n", filters, w[1],
                     w[2], w[3], per_group) +
         fmt::format("        float* const to = {} + ((n * {} + i) * {} + j) * {} + g * {};\n", y, out[1], out[2],
                     out[3], per_group) +
         fmt::format("        {}to[o] += value * from[o];\n      }}", loop("o", per_group)) + loops_text.tail);
}

void c_max_pool(CEmitter& e) { emit_pool(e, "-INFINITY", "if (value > best) best = value;"); }
void c_sum_pool(CEmitter& e) { emit_pool(e, "0", "best += value;"); }

}  // namespace lockstep
