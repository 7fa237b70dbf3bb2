// Writes trained models for other programs. The function from an input to outputs is traced, as for training, and its
// program is written op by op (rows.def). Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "lockstep/task.h"
#include "train/model_info.h"

namespace lockstep {

struct ExportedModel {
  std::string name;  // "mlp"
  int64_t step = 0;
  ModelInfo info;
  Task task;
  std::vector<Array> params;  // in the order of task.paths
  int64_t context = 0;        // of a language model: the most tokens
};

// An ONNX model. Input: `image` f32 [batch, rows, cols, channels] with values from 0 to 255, `features` f32 [batch, k], or
// `tokens` i64 [batch, tokens]. Outputs: `logits` and `probabilities` [batch, classes], `value` [batch], or `logits`
// [batch, tokens, vocabulary]. Normalization is part of the model. Throws Error, naming the op, when an op has no ONNX
// form.
std::string onnx_file(const ExportedModel& model);

// A safetensors file with the parameters, named by their paths.
std::string safetensors_file(const ExportedModel& model);

// A C++17 header without dependencies. Throws Error, naming the op, when an op cannot be written.
struct CFiles {
  std::string header;
  std::string weights;  // with `separate`: the parameters as little-endian floats; else empty, they are in the header
};
struct COptions {
  std::string name = "model";  // of the namespace
  bool separate = false;
};
CFiles c_files(const ExportedModel& model, const COptions& options = {});

// The types of inputs and outputs, for people: "image f32[batch, 28, 28, 1] -> logits f32[batch, 10], ...".
std::string describe_ports(const ExportedModel& model);

}  // namespace lockstep
