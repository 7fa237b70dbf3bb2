// OnnxGraph: a graph of ONNX nodes under construction, and its file. Names of values are chosen here. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "export/symbolic.h"
#include "lockstep/shape.h"

namespace lockstep {

// The version of the operators; every runtime since 2022 has it.
inline constexpr int64_t kOnnxOpset = 17;

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};
using OnnxAttributes = std::vector<OnnxAttribute>;

// An input or output of the graph.
struct OnnxPort {
  std::string name;
  DType dtype;
  Extents shape;
};

class OnnxGraph {
 public:
  // Adds a node with one output, and returns its name. A transposition of a stored tensor is done at once.
  std::string add(const std::string& op, const std::vector<std::string>& inputs, const OnnxAttributes& attributes = {});
  // The same with several outputs.
  std::vector<std::string> add(const std::string& op, const std::vector<std::string>& inputs,
                               const OnnxAttributes& attributes, size_t outputs);

  // The same with a chosen name for the output, which no other value has.
  void add_named(const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
    nodes_.push_back({.op = op, .inputs = inputs, .outputs = {output}, .attributes = {}});
  }

  // A stored tensor. Weights have a name of their own; equal small constants are stored once.
  std::string weights(const std::string& name, const Type& type, std::string bytes);
  std::string constant(const Type& type, std::string bytes);
  std::string integers(const std::vector<int64_t>& values);  // i64 [n]
  std::string integer(int64_t value);                        // i64 []
  std::string real(double value, DType dtype);               // []

  // An i64 tensor of these extents, which may depend on the sizes of the inputs. REQUIRES: the first port was added.
  std::string shape(const Extents& extents);

  void add_input(OnnxPort port) { inputs_.push_back(std::move(port)); }
  void add_output(OnnxPort port) { outputs_.push_back(std::move(port)); }

  // The file. `metadata`: pairs of names and values. Throws Error when it would exceed 2 GiB, the limit of the format.
  std::string serialize(const std::string& name,
                        const std::vector<std::pair<std::string, std::string>>& metadata) const;

 private:
  struct Node {
    std::string op;
    std::vector<std::string> inputs, outputs;
    OnnxAttributes attributes;
  };
  struct Tensor {
    std::string name;
    Type type;
    std::string bytes;
  };

  std::string fresh() { return "v" + std::to_string(next_++); }
  std::string piece(const Extent& extent);
  std::string size_of_input(bool tokens);
  std::string transposed(const Tensor& tensor, const std::vector<int64_t>& permutation);
  std::set<std::string> used_names() const;

  std::vector<OnnxPort> inputs_, outputs_;
  std::vector<Node> nodes_;
  std::map<std::string, Tensor> tensors_;         // by name
  std::map<std::string, std::string> constants_;  // names by type and bytes
  std::map<std::string, std::string> pieces_;     // names of [1] tensors by the text of their extent
  int64_t next_ = 0;
};

// The number of an element type in ONNX.
int64_t onnx_type(DType dtype);

}  // namespace lockstep
