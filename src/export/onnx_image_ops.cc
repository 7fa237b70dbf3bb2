// Images are [n, h, w, c] here and [n, c, h, w] in ONNX. Runtimes remove transpositions between layers.
#include <algorithm>

#include "export/onnx_ops.h"
#include "ops/conv.h"
#include "ops/pool.h"

namespace lockstep {
namespace {

const std::vector<int64_t> kToOnnx = {0, 3, 1, 2}, kFromOnnx = {0, 2, 3, 1}, kFilterToOnnx = {3, 2, 0, 1};

std::string transposed(OnnxEmitter& e, const std::string& value, const std::vector<int64_t>& order) {
  return e.graph().add("Transpose", {value}, {{"perm", order}});
}

// {low h, high h, low w, high w} -> {low h, low w, high h, high w}
std::vector<int64_t> onnx_pads(const std::array<int64_t, 4>& pad) { return {pad[0], pad[2], pad[1], pad[3]}; }
std::vector<int64_t> list(const std::array<int64_t, 2>& values) { return {values[0], values[1]}; }

std::string pooled(OnnxEmitter& e, const char* op, OnnxAttributes more) {
  const PoolingOptions options = pooling_options(e.attrs());
  OnnxAttributes attributes = {
      {"kernel_shape", list(options.window)}, {"strides", list(options.stride)}, {"pads", onnx_pads(options.pad)}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  return e.graph().add(op, {transposed(e, e.full(0), kToOnnx)}, attributes);
}

}  // namespace

void onnx_conv2d(OnnxEmitter& e) {
  const ConvOptions options = conv_options(e.attrs());
  if (options.lhs_dilation != std::array<int64_t, 2>{1, 1}) e.fail("its images are dilated");
  const std::string images = transposed(e, e.full(0), kToOnnx), filters = transposed(e, e.full(1), kFilterToOnnx);
  const std::string result = e.graph().add("Conv", {images, filters},
                                           {{"strides", list(options.stride)},
                                            {"pads", onnx_pads(options.pad)},
                                            {"dilations", list(options.rhs_dilation)},
                                            {"group", options.groups}});
  e.set(transposed(e, result, kFromOnnx));
}

void onnx_max_pool(OnnxEmitter& e) { e.set(transposed(e, pooled(e, "MaxPool", {}), kFromOnnx)); }

void onnx_sum_pool(OnnxEmitter& e) {
  const PoolingOptions options = pooling_options(e.attrs());
  const std::string mean = pooled(e, "AveragePool", {{"count_include_pad", int64_t{1}}});
  const std::string size =
      e.graph().real(static_cast<double>(options.window[0] * options.window[1]), e.out_type().dtype);
  e.set(transposed(e, e.graph().add("Mul", {mean, size}), kFromOnnx));
}

}  // namespace lockstep
