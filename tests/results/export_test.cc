// What the exporters write, without other programs: rows, formulas of extents, messages, safetensors.
#include <gtest/gtest.h>

#include <set>

#include "export/export_row.h"
#include "export/model_trace.h"
#include "export/protobuf.h"
#include "export/symbolic.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "ops/ops.h"
#include "results/exported_models.h"
#include "train/safetensors.h"

namespace lockstep {
namespace {

TEST(ExportRows, EveryOpHasOneLine) {
  std::multiset<std::string> rows, ops;
  for (const ExportRow& row : export_rows()) rows.insert(std::string(row.name));
  for (const Op* op : all_ops()) ops.insert(std::string(op->name));
  EXPECT_EQ(rows, ops);
}

TEST(ExportRows, AnOpHasAtMostOneFormPerFormat) {
  for (const ExportRow& row : export_rows()) {
    EXPECT_FALSE(row.onnx_node && row.onnx) << row.name;
    EXPECT_FALSE(row.c_expression && row.c) << row.name;
  }
}

template <class F>
SymbolicProgram symbolic(const F& f, int64_t tokens = 0) {
  return trace_symbolic(
      [&](int64_t n, int64_t t) {
        detail::Tracing tracing("test");
        const Array x = tracing.input({f32, {n, tokens == 0 ? 6 : t}}, zeros({1}));
        const std::vector<Array> results = {f(x)};
        return *tracing.finish(results).program;
      },
      tokens);
}

std::string shape_text(const SymbolicProgram& program) {
  std::string out;
  for (const Extent& each : program.shapes[program.program.outputs[0]]) out += to_string(each) + ";";
  return out;
}

TEST(SymbolicProgram, ExtentsAreFormulas) {
  EXPECT_EQ(shape_text(symbolic([](const Array& x) { return reshape(x, {x.shape(0) * 2, 3}); })), "2*batch;3;");
  EXPECT_EQ(shape_text(symbolic([](const Array& x) { return reshape(x, {-1}); }, 9)), "batch*tokens;");
  EXPECT_EQ(shape_text(symbolic(
                [](const Array& x) {
                  return concatenate({x, x, zeros({2, x.shape(1)})}, 0);
                },
                9)),
            "2*batch + 2;tokens;");
}

TEST(SymbolicProgram, DependencesThatAreNotLinearAreErrors) {
  const auto message = [](const auto& f) -> std::string {
    try {
      symbolic(f);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](const Array& x) { return x * (1.0 / static_cast<double>(x.shape(0))); }),
            "export: the attribute value of the op full depends on the number of examples or tokens; make the function "
            "independent of it");
  EXPECT_EQ(message([](const Array& x) { return x.shape(0) > 61 ? exp(x) : log(x); }),
            "export: an equation of the op log depends on the number of examples or tokens; make the function "
            "independent of it");
  EXPECT_EQ(message([](const Array& x) { return x.shape(0) > 61 ? exp(exp(x)) : exp(x); }),
            "export: the equations depend on the number of examples or tokens; make the function independent of it");
  EXPECT_EQ(message([](const Array& x) { return zeros({x.shape(0) * x.shape(0)}); }),
            "export: an extent is 7569 for 87 examples, and not 123*batch + -3782; make the function linear in them");
}

TEST(Protobuf, FieldsAreInWireFormat) {
  ProtoMessage inner;
  inner.bytes(1, "ab");
  ProtoMessage message;
  message.integer(1, 300);
  message.integer(2, -1);
  message.real(3, 1.0f);
  message.message(4, inner);
  message.packed(16, std::vector<int64_t>{1, 128});
  EXPECT_EQ(message.data(), std::string("\x08\xac\x02"
                                        "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                        "\x1d\x00\x00\x80\x3f"
                                        "\x22\x04\x0a\x02"
                                        "ab"
                                        "\x82\x01\x03\x01\x80\x01",
                                        3 + 11 + 5 + 4 + 2 + 6));
}

// An exported model whose outputs are f(images).
template <class F>
ExportedModel changed(const F& f) {
  ExportedModel out = image_export("mlp", {4, 4, 10, 1});
  out.task.outputs = [f](const std::vector<Array>&, const BatchArrays& batch, const nn::Mode&) {
    return f(reshape(batch.at("images"), {batch.at("images").shape(0), 16}));
  };
  return out;
}

std::string onnx_error(const ExportedModel& model) {
  try {
    onnx_file(model);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OnnxErrors, NameTheOp) {
  EXPECT_EQ(onnx_error(changed([](const Array& x) { return sort(x); })),
            "export: the op sort f32[61,16] cannot be written as ONNX: it has no operator for it; use --format "
            "safetensors for the weights alone");
}

TEST(CErrors, NameTheOpOrTheModel) {
  const auto message = [](const ExportedModel& model, const COptions& options) -> std::string {
    try {
      c_files(model, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(changed([](const Array& x) { return sort(x); }), {}),
            "export: the op sort f32[1,16] cannot be written as C++: it has no code for it; use --format onnx");
  EXPECT_EQ(message(language_export({.vocabulary = 11, .context = 4, .layers = 1, .heads = 2, .width = 8}), {}),
            "export: gpt is a language model, and C++ headers are written for images and tables; use --format onnx");
  EXPECT_EQ(message(image_export("resnet18", {8, 8, 10, 1}), {}),
            "export: the model has 11182410 numbers, too many for a header (at most 4194304); give --separate-weights");
}

TEST(SafetensorsExport, HasTheParametersAlone) {
  const ExportedModel model = image_export("cnn", {8, 8, 10, 1});
  const TempDir dir;
  const std::string path = dir.path() + "/model.safetensors", bytes = safetensors_file(model);
  FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  const detail::SafetensorsHeader header = detail::read_safetensors_header(FileSystem::real(), path);
  ASSERT_EQ(header.tensors.size(), model.params.size());
  EXPECT_EQ(header.metadata.at("model"), "cnn");
  EXPECT_EQ(header.metadata.at("step"), "3");
  EXPECT_EQ(parse_model_info(header.metadata.at("info"), "info"), model.info);
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const auto& tensor = header.tensors[i];
    const auto at = std::find(model.task.paths.begin(), model.task.paths.end(), tensor.name);
    ASSERT_NE(at, model.task.paths.end()) << tensor.name;
    const Array& wanted = model.params[static_cast<size_t>(at - model.task.paths.begin())];
    EXPECT_EQ(
        bytes.substr(static_cast<size_t>(header.data_begin + tensor.offset), static_cast<size_t>(tensor.type.bytes())),
        array_bytes(wanted));
  }
}

}  // namespace
}  // namespace lockstep
