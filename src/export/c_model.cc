#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "base/check.h"
#include "base/printable.h"
#include "export/c_emitter.h"
#include "export/c_ops.h"
#include "export/export_model.h"
#include "export/export_row.h"
#include "export/model_trace.h"

namespace lockstep {
namespace {

// Compilers need about a second and 100 MB for this many numbers in a header.
constexpr int64_t kMostInHeader = int64_t{4} << 20;
constexpr size_t kPerLine = 12;

bool is_c(const Op& op) { return export_row(op).has_c(); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text))
    out += (c == '"' || c == '\\' || c == '?') ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

// A stored array of the program: a parameter or a constant.
struct Stored {
  std::string name, title;
  Array array;
};

std::string array_text(const Stored& stored) {
  const bool real = stored.array.dtype() == f32;
  std::vector<std::string> values;
  if (real)
    for (const float each : stored.array.data<float>()) values.push_back(c_literal(each));
  else
    for (const int64_t each : stored.array.to_vector<int64_t>()) values.push_back(std::to_string(each));
  std::string out = fmt::format("// {}\ninline constexpr {} {}[{}] = {{", stored.title, c_type(stored.array.dtype()),
                                stored.name, values.size());
  for (size_t i = 0; i < values.size(); ++i) out += (i % kPerLine == 0 ? "\n    " : " ") + values[i] + ",";
  return out + "\n};\n";
}

class HeaderWriter {
 public:
  HeaderWriter(const ExportedModel& model, const COptions& options)
      : model_(model), options_(options), traced_(trace_model(model, 1, 0, is_c)), emitter_(traced_.program) {}

  CFiles write() {
    bind_inputs();
    const Program& program = traced_.program;
    for (size_t i = 0; i < program.eqns.size(); ++i) emitter_.emit(i);
    const ValueId last = program.outputs.back();
    const int64_t outputs = count(program.types[last].shape);
    emitter_.line(fmt::format("for (int i = 0; i < {}; ++i) {}[i] = {}[i];", outputs, output(), emitter_.array(last)));
    return {.header = text(outputs), .weights = std::move(weights_)};
  }

 private:
  std::string output() const { return output_names(model_).back() == "value" ? "value" : "probabilities"; }

  void bind_inputs() {
    const size_t params = model_.params.size();
    int64_t in_header = 0, offset = 0;
    for (size_t i = 0; i < traced_.program.inputs.size(); ++i) {
      const ValueId id = traced_.program.inputs[i];
      if (i == params) {
        emitter_.bind(id, input_name(model_));
        continue;
      }
      const Array& array = i < params ? model_.params[i] : traced_.captures[i - params - 1];
      const std::string title =
          fmt::format("{} {}", i < params ? model_.task.paths[i] : "constant", to_string(array.type()));
      if (i < params && options_.separate && array.dtype() == f32) {
        emitter_.bind(id, offset == 0 ? "weights" : fmt::format("(weights + {})", offset));
        offset += array.size();
        weights_ += array_bytes(array);
        continue;
      }
      stored_.push_back({fmt::format("k{}", i), title, array});
      emitter_.bind(id, "detail::" + stored_.back().name);
      in_header += array.size();
    }
    if (in_header > kMostInHeader)
      throw_error("export: the model has {} numbers, too many for a header (at most {}); give --separate-weights",
                  in_header, kMostInHeader);
  }

  std::string text(int64_t outputs) const {
    const ModelInfo& info = model_.info;
    std::string out = comment(outputs) + "#pragma once\n\n#include <cmath>\n#include <vector>\n\n";
    out += fmt::format("namespace {} {{\n\n", options_.name);
    if (info.kind == ModelInfo::Kind::images)
      out +=
          fmt::format("constexpr int kRows = {}, kCols = {}, kChannels = {};\n", info.rows, info.cols, info.channels);
    else
      out += fmt::format("constexpr int kFeatures = {};\n", info.features.size());
    if (info.classes > 0) out += fmt::format("constexpr int kClasses = {};\n", info.classes);
    if (!info.class_names.empty()) {
      std::vector<std::string> names;
      for (const std::string& each : info.class_names) names.push_back(quoted(each));
      out += fmt::format("constexpr const char* kClassNames[kClasses] = {{{}}};\n", fmt::join(names, ", "));
    }
    if (options_.separate) out += fmt::format("constexpr long kWeights = {};\n", weights_.size() / sizeof(float));
    if (!stored_.empty()) {
      out += "\nnamespace detail {\n";
      for (const Stored& each : stored_) out += array_text(each);
      out += "}  // namespace detail\n";
    }
    return out + "\n" + function() + fmt::format("\n}}  // namespace {}\n", options_.name);
  }

  std::string comment(int64_t outputs) const {
    const bool image = model_.info.kind == ModelInfo::Kind::images;
    std::string out = fmt::format(
        "// The model {} at step {}, as C++17 without dependencies. Written by `lockstep export --format c`.\n//\n",
        printable(model_.name), model_.step);
    out += fmt::format("//   float {}[{}];\n", output(), outputs);
    out += fmt::format("//   {}::predict({}{}, {});\n//\n", options_.name, options_.separate ? "weights, " : "",
                       input_name(model_), output());
    out += image ? "// `image` has kRows x kCols x kChannels values from 0 to 255, row by row.\n"
                 : "// `features` has kFeatures values, as in the training table.\n";
    if (options_.separate)
      out += "// `weights` are the kWeights floats of the file beside this header, little-endian.\n";
    return out + "// Safe from any thread.\n";
  }

  std::string function() const {
    std::string out = fmt::format("inline void predict({}const float* {}, float* {}) {{\n",
                                  options_.separate ? "const float* weights, " : "", input_name(model_), output());
    if (emitter_.float_count() > 0) out += fmt::format("  std::vector<float> floats({});\n", emitter_.float_count());
    if (emitter_.int_count() > 0) out += fmt::format("  std::vector<int> ints({});\n", emitter_.int_count());
    return out + emitter_.code() + "}\n";
  }

  const ExportedModel& model_;
  const COptions& options_;
  const ModelProgram traced_;
  CEmitter emitter_;
  std::vector<Stored> stored_;
  std::string weights_;
};

}  // namespace

CFiles c_files(const ExportedModel& model, const COptions& options) {
  if (model.info.kind == ModelInfo::Kind::text)
    throw_error("export: {} is a language model, and C++ headers are written for images and tables; use --format onnx",
                model.name);
  return HeaderWriter(model, options).write();
}

}  // namespace lockstep
