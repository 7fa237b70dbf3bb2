#include <fmt/format.h>
#include <fmt/ranges.h>

#include "export/export_model.h"
#include "export/export_row.h"
#include "export/model_trace.h"
#include "export/onnx_emitter.h"

namespace lockstep {
namespace {

constexpr int64_t kLeastContext = 5;  // a shorter one is a fixed size

bool is_onnx(const Op& op) { return export_row(op).has_onnx(); }

// The program with formulas as extents, and the captured constants.
struct SymbolicModel {
  SymbolicProgram program;
  std::vector<Array> captures;
};
SymbolicModel symbolic_model(const ExportedModel& model) {
  SymbolicModel out;
  const bool varies = model.context >= kLeastContext;
  const auto trace = [&](int64_t batch, int64_t tokens) {
    ModelProgram traced = trace_model(model, batch, varies ? tokens : model.context, is_onnx);
    out.captures = std::move(traced.captures);
    return std::move(traced.program);
  };
  out.program = trace_symbolic(trace, varies ? model.context : 0);
  return out;
}

std::string port_text(const std::string& name, const Type& type, const Extents& shape) {
  std::vector<std::string> extents;
  for (const Extent& each : shape) extents.push_back(to_string(each));
  return fmt::format("{} {}[{}]", name, lockstep::name(type.dtype), fmt::join(extents, ", "));
}

}  // namespace

std::string describe_ports(const ExportedModel& model) {
  const SymbolicProgram symbolic = symbolic_model(model).program;
  const Program& program = symbolic.program;
  const ValueId input = program.inputs[model.params.size()];
  std::vector<std::string> outputs;
  const std::vector<std::string> names = output_names(model);
  for (size_t i = 0; i < names.size(); ++i)
    outputs.push_back(port_text(names[i], program.types[program.outputs[i]], symbolic.shapes[program.outputs[i]]));
  return fmt::format("{} -> {}", port_text(input_name(model), program.types[input], symbolic.shapes[input]),
                     fmt::join(outputs, ", "));
}

std::string onnx_file(const ExportedModel& model) {
  const SymbolicModel traced = symbolic_model(model);
  const SymbolicProgram& symbolic = traced.program;
  const Program& program = symbolic.program;
  OnnxGraph graph;
  OnnxEmitter emitter(graph, symbolic);
  const size_t params = model.params.size();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const ValueId id = program.inputs[i];
    if (i == params) {
      graph.add_input({input_name(model), program.types[id].dtype, symbolic.shapes[id]});
      emitter.bind(id, input_name(model));
      continue;
    }
    const Array& array = i < params ? model.params[i] : traced.captures[i - params - 1];
    const std::string name = i < params ? model.task.paths[i] : fmt::format("constant/{}", i - params - 1);
    emitter.bind(id, graph.weights(name, array.type(), array_bytes(array)));
  }
  for (size_t i = 0; i < program.eqns.size(); ++i) emitter.emit(i);
  const std::vector<std::string> names = output_names(model);
  for (size_t i = 0; i < names.size(); ++i) {
    const ValueId id = program.outputs[i];
    graph.add_named("Identity", {emitter.full_value(id)}, names[i]);
    graph.add_output({names[i], program.types[id].dtype, symbolic.shapes[id]});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {{"model", model.name},
                                                               {"step", std::to_string(model.step)}};
  if (!model.info.class_names.empty())
    metadata.emplace_back("class_names", fmt::format("{}", fmt::join(model.info.class_names, "\n")));
  return graph.serialize(model.name, metadata);
}

}  // namespace lockstep
