#include "export/onnx_graph.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "export/protobuf.h"
#include "lockstep/version.h"

namespace lockstep {
namespace {

constexpr size_t kSmallConstant = 1024;
constexpr int64_t kIrVersion = 8;  // of files with opset 17

// Numbers of fields in ONNX's messages.
namespace model {
constexpr int kIr = 1, kProducer = 2, kProducerVersion = 3, kGraph = 7, kOpset = 8, kMetadata = 14;
}
namespace graph {
constexpr int kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}
namespace node {
constexpr int kInput = 1, kOutput = 2, kName = 3, kOp = 4, kAttribute = 5;
}
namespace attribute {
constexpr int kName = 1, kReal = 2, kInteger = 3, kText = 4, kIntegers = 8, kType = 20;
constexpr int64_t kIsReal = 1, kIsInteger = 2, kIsText = 3, kIsIntegers = 7;
}  // namespace attribute
namespace tensor {
constexpr int kDims = 1, kType = 2, kName = 8, kRaw = 9;
}
namespace port {
constexpr int kName = 1, kType = 2, kTensorType = 1, kElement = 1, kShape = 2, kDim = 1, kValue = 1, kParameter = 2;
}

ProtoMessage pair_message(int first, const std::string& a, int second, const std::string& b) {
  ProtoMessage out;
  out.bytes(first, a);
  out.bytes(second, b);
  return out;
}

ProtoMessage attribute_message(const OnnxAttribute& from) {
  ProtoMessage out;
  out.bytes(attribute::kName, from.name);
  if (const auto* integer = std::get_if<int64_t>(&from.value)) {
    out.integer(attribute::kInteger, *integer);
    out.integer(attribute::kType, attribute::kIsInteger);
  } else if (const auto* real = std::get_if<float>(&from.value)) {
    out.real(attribute::kReal, *real);
    out.integer(attribute::kType, attribute::kIsReal);
  } else if (const auto* text = std::get_if<std::string>(&from.value)) {
    out.bytes(attribute::kText, *text);
    out.integer(attribute::kType, attribute::kIsText);
  } else {
    for (const int64_t each : std::get<std::vector<int64_t>>(from.value)) out.integer(attribute::kIntegers, each);
    out.integer(attribute::kType, attribute::kIsIntegers);
  }
  return out;
}

ProtoMessage port_message(const OnnxPort& from) {
  ProtoMessage shape;
  for (const Extent& extent : from.shape) {
    ProtoMessage dim;
    if (extent.is_constant())
      dim.integer(port::kValue, extent.constant);
    else
      dim.bytes(port::kParameter, to_string(extent));
    shape.message(port::kDim, dim);
  }
  ProtoMessage tensor_type, type, out;
  tensor_type.integer(port::kElement, onnx_type(from.dtype));
  tensor_type.message(port::kShape, shape);
  type.message(port::kTensorType, tensor_type);
  out.bytes(port::kName, from.name);
  out.message(port::kType, type);
  return out;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

int64_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1;
    case DType::u8:
      return 2;
    case DType::i8:
      return 3;
    case DType::u16:
      return 4;
    case DType::i16:
      return 5;
    case DType::i32:
      return 6;
    case DType::i64:
      return 7;
    case DType::boolean:
      return 9;
    case DType::f16:
      return 10;
    case DType::f64:
      return 11;
    case DType::u32:
      return 12;
    case DType::u64:
      return 13;
    case DType::c64:
      return 14;
    case DType::c128:
      return 15;
    case DType::bf16:
      return 16;
    case DType::f8_e4m3:
      return 17;
    case DType::f8_e5m2:
      return 19;
  }
  return 0;
}

std::vector<std::string> OnnxGraph::add(const std::string& op, const std::vector<std::string>& inputs,
                                        const OnnxAttributes& attributes, size_t outputs) {
  Node node{.op = op, .inputs = inputs, .outputs = {}, .attributes = attributes};
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(fresh());
  nodes_.push_back(node);
  return node.outputs;
}

std::string OnnxGraph::add(const std::string& op, const std::vector<std::string>& inputs,
                           const OnnxAttributes& attributes) {
  if (op == "Transpose")
    if (const auto found = tensors_.find(inputs[0]); found != tensors_.end())
      return transposed(found->second, std::get<std::vector<int64_t>>(attributes[0].value));
  return add(op, inputs, attributes, 1)[0];
}

std::string OnnxGraph::transposed(const Tensor& tensor, const std::vector<int64_t>& permutation) {
  const Shape& from = tensor.type.shape;
  const size_t rank = from.size(), element = static_cast<size_t>(size_of(tensor.type.dtype));
  std::vector<int64_t> strides(rank, 1);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * from[d];
  Tensor out{.name = tensor.name, .type = {tensor.type.dtype, {}}, .bytes = std::string(tensor.bytes.size(), '\0')};
  for (const int64_t d : permutation) {
    out.type.shape.push_back(from[static_cast<size_t>(d)]);
    out.name += fmt::format("{}{}", d == permutation[0] ? ".t" : "", d);
  }
  std::vector<int64_t> index(rank, 0);
  for (size_t i = 0; i < tensor.bytes.size() / element; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += index[d] * strides[static_cast<size_t>(permutation[d])];
    std::memcpy(out.bytes.data() + i * element, tensor.bytes.data() + static_cast<size_t>(at) * element, element);
    for (size_t d = rank; d-- > 0 && ++index[d] == out.type.shape[d];) index[d] = 0;
  }
  const std::string key = out.name;
  return tensors_.emplace(key, std::move(out)).first->first;
}

std::string OnnxGraph::weights(const std::string& name, const Type& type, std::string bytes) {
  LOCKSTEP_CHECK(std::ssize(bytes) == type.bytes(), "{} bytes of {}", bytes.size(), to_string(type));
  const bool added = tensors_.emplace(name, Tensor{name, type, std::move(bytes)}).second;
  LOCKSTEP_CHECK(added, "the tensor {} exists", name);
  return name;
}

std::string OnnxGraph::constant(const Type& type, std::string bytes) {
  if (bytes.size() > kSmallConstant) return weights(fresh(), type, std::move(bytes));
  std::string& known = constants_[lockstep::to_string(type) + bytes];
  if (known.empty()) known = weights(fresh(), type, std::move(bytes));
  return known;
}

std::string OnnxGraph::integers(const std::vector<int64_t>& values) {
  return constant({DType::i64, {std::ssize(values)}}, bytes_of(values));
}

std::string OnnxGraph::integer(int64_t value) { return constant({DType::i64, {}}, bytes_of<int64_t>({value})); }

std::string OnnxGraph::real(double value, DType dtype) {
  if (dtype == DType::f64) return constant({dtype, {}}, bytes_of<double>({value}));
  LOCKSTEP_CHECK(dtype == DType::f32, "a constant of {}", name(dtype));
  return constant({dtype, {}}, bytes_of<float>({static_cast<float>(value)}));
}

// The number of examples, or of tokens of each, as i64 [1]: the first two extents of the first input.
std::string OnnxGraph::size_of_input(bool tokens) {
  std::string& known = pieces_[tokens ? "tokens" : "batch"];
  if (!known.empty()) return known;
  LOCKSTEP_CHECK(!inputs_.empty(), "no input has the sizes");
  known = add("Gather", {add("Shape", {inputs_[0].name}), integers({tokens ? 1 : 0})});
  return known;
}

std::string OnnxGraph::piece(const Extent& extent) {
  if (extent.is_constant()) return integers({extent.constant});
  const std::string key = lockstep::to_string(extent);
  if (const auto found = pieces_.find(key); found != pieces_.end()) return found->second;
  std::string sum;
  const auto add_term = [&](int64_t factor, const std::string& value) {
    const std::string term = factor == 1 ? value : add("Mul", {value, integers({factor})});
    sum = sum.empty() ? term : add("Add", {sum, term});
  };
  if (extent.both != 0) add_term(extent.both, add("Mul", {size_of_input(false), size_of_input(true)}));
  if (extent.batch != 0) add_term(extent.batch, size_of_input(false));
  if (extent.tokens != 0) add_term(extent.tokens, size_of_input(true));
  if (extent.constant != 0) add_term(1, integers({extent.constant}));
  return pieces_[key] = sum;
}

std::string OnnxGraph::shape(const Extents& extents) {
  std::vector<int64_t> numbers;
  std::vector<std::string> parts;
  const auto flush = [&] {
    if (!numbers.empty()) parts.push_back(integers(std::exchange(numbers, {})));
  };
  for (const Extent& extent : extents) {
    if (extent.is_constant()) {
      numbers.push_back(extent.constant);
    } else {
      flush();
      parts.push_back(piece(extent));
    }
  }
  if (parts.empty()) return integers(numbers);
  flush();
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", int64_t{0}}});
}

std::set<std::string> OnnxGraph::used_names() const {
  std::set<std::string> out;
  for (const Node& each : nodes_) out.insert(each.inputs.begin(), each.inputs.end());
  for (const OnnxPort& each : outputs_) out.insert(each.name);
  return out;
}

std::string OnnxGraph::serialize(const std::string& name,
                                 const std::vector<std::pair<std::string, std::string>>& metadata) const {
  constexpr size_t kMostBytes = (size_t{1} << 31) - 1;
  ProtoMessage graph_message;
  for (const Node& each : nodes_) {
    ProtoMessage message;
    for (const std::string& input : each.inputs) message.bytes(node::kInput, input);
    for (const std::string& output : each.outputs) message.bytes(node::kOutput, output);
    message.bytes(node::kName, each.op + "_" + each.outputs[0]);
    message.bytes(node::kOp, each.op);
    for (const OnnxAttribute& attribute : each.attributes)
      message.message(node::kAttribute, attribute_message(attribute));
    graph_message.message(graph::kNode, message);
  }
  graph_message.bytes(graph::kName, name);
  size_t bytes = graph_message.data().size();
  const std::set<std::string> used = used_names();
  for (const auto& [key, each] : tensors_)
    if (used.contains(key)) bytes += each.bytes.size();
  if (bytes > kMostBytes)
    throw_error("export: the model takes {} bytes, but an ONNX file has at most 2 GiB; use --format safetensors",
                bytes);
  for (const auto& [key, each] : tensors_) {
    if (!used.contains(key)) continue;
    ProtoMessage message;
    for (const int64_t extent : each.type.shape) message.integer(tensor::kDims, extent);
    message.integer(tensor::kType, onnx_type(each.type.dtype));
    message.bytes(tensor::kName, key);
    message.bytes(tensor::kRaw, each.bytes);
    graph_message.message(graph::kInitializer, message);
  }
  for (const OnnxPort& each : inputs_) graph_message.message(graph::kInput, port_message(each));
  for (const OnnxPort& each : outputs_) graph_message.message(graph::kOutput, port_message(each));

  ProtoMessage out, opset;
  opset.bytes(1, "");
  opset.integer(2, kOnnxOpset);
  out.integer(model::kIr, kIrVersion);
  out.bytes(model::kProducer, "lockstep");
  out.bytes(model::kProducerVersion, LOCKSTEP_VERSION);
  out.message(model::kGraph, graph_message);
  out.message(model::kOpset, opset);
  for (const auto& [key, value] : metadata) out.message(model::kMetadata, pair_message(1, key, 2, value));
  return out.data();
}

}  // namespace lockstep
