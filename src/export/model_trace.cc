#include "export/model_trace.h"

#include <complex>

#include "base/check.h"
#include "export/programs.h"
#include "lockstep/complex.h"
#include "lockstep/reduce.h"
#include "passes/passes.h"
#include "train/predictor.h"

namespace lockstep {
namespace {

using Kind = ModelInfo::Kind;

Type input_type(const ExportedModel& model, int64_t batch, int64_t tokens) {
  const ModelInfo& info = model.info;
  if (info.kind == Kind::text) return {i64, {batch, tokens}};
  if (info.kind == Kind::table) return {f32, {batch, std::ssize(info.features)}};
  return {f32, {batch, info.rows, info.cols, info.channels}};
}

const char* field_name(Kind kind) {
  return kind == Kind::text ? "inputs" : kind == Kind::table ? "features" : "images";
}

bool has_classes(const ExportedModel& model) { return model.info.kind != Kind::text && model.info.classes > 0; }

template <class T>
std::string elements(const Array& array) {
  const std::span<const T> data = array.data<T>();
  return {reinterpret_cast<const char*>(data.data()), data.size_bytes()};
}

}  // namespace

std::string array_bytes(const Array& array) {
  switch (array.dtype()) {
    case DType::boolean:
      return elements<bool>(array);
    case DType::u8:
      return elements<uint8_t>(array);
    case DType::u16:
      return elements<uint16_t>(array);
    case DType::u64:
      return elements<uint64_t>(array);
    case DType::i8:
      return elements<int8_t>(array);
    case DType::i16:
      return elements<int16_t>(array);
    case DType::c64:
      return elements<std::complex<float>>(array);
    case DType::c128:
      return elements<std::complex<double>>(array);
    case DType::i32:
      return elements<int32_t>(array);
    case DType::i64:
      return elements<int64_t>(array);
    case DType::u32:
      return elements<uint32_t>(array);
    case DType::f8_e4m3:
      return elements<Float8E4M3>(array);
    case DType::f8_e5m2:
      return elements<Float8E5M2>(array);
    case DType::bf16:
      return elements<BFloat16>(array);
    case DType::f16:
      return elements<Float16>(array);
    case DType::f32:
      return elements<float>(array);
    case DType::f64:
      return elements<double>(array);
  }
  return "";
}

std::string input_name(const ExportedModel& model) {
  const Kind kind = model.info.kind;
  return kind == Kind::text ? "tokens" : kind == Kind::table ? "features" : "image";
}

std::vector<std::string> output_names(const ExportedModel& model) {
  if (has_classes(model)) return {"logits", "probabilities"};
  return {model.info.kind == Kind::text ? "logits" : "value"};
}

ModelProgram trace_model(const ExportedModel& model, int64_t batch, int64_t tokens,
                         const std::function<bool(const Op&)>& is_written) {
  LOCKSTEP_CHECK(!model.params.empty(), "a model without parameters");
  detail::Tracing tracing("export");
  std::vector<Array> params;
  for (const Array& each : model.params) params.push_back(tracing.input(each.type(), each));
  const Array input = tracing.input(input_type(model, batch, tokens), model.params[0]);
  const Array outputs = model_outputs(model.task, params, {{field_name(model.info.kind), input}}, f32);
  std::vector<Array> results = {outputs};
  if (has_classes(model)) results.push_back(softmax(outputs));
  const detail::Traced traced = tracing.finish(results);
  Program p = inline_bodies(drop_annotations(*traced.program), Inline::early);
  p = drop_dead(inline_bodies(simplify(p), Inline::late));
  return {simplify(expand_programs(p, is_written)), traced.captures};
}

}  // namespace lockstep
