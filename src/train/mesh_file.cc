#include "train/mesh_file.h"

#include <nlohmann/json.hpp>

#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "lockstep/sharding.h"
#include "train/run_file.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// The mesh axes of each dimension: [[], ["model"]].
ordered_json axes_json(const PartitionSpec& spec, size_t rank) {
  ordered_json out = ordered_json::array();
  for (size_t d = 0; d < rank; ++d)
    out.push_back(d < spec.entries.size() ? ordered_json(spec.entries[d].axes) : ordered_json::array());
  return out;
}

}  // namespace

std::string mesh_json(const Task& task, const EngineOptions& options) {
  const Mesh& mesh = options.mesh;
  ordered_json out{{"format", 1}, {"platform", to_string(mesh.devices()[0].platform)}};
  for (size_t i = 0; i < mesh.axis_names().size(); ++i)
    out["axes"].push_back({{"name", mesh.axis_names()[i]}, {"size", mesh.shape()[i]}});
  out["data_axis"] = options.plan.data_axis;
  out["zero"] = options.plan.zero;
  for (const Device& device : mesh.devices())
    out["devices"].push_back({{"id", device.id}, {"process", device.process_index}});
  out["parameters"] = ordered_json::array();
  const std::vector<ParameterSpecs> specs = specs_of(options.plan, mesh, task.paths, task.types);
  for (size_t i = 0; i < specs.size(); ++i) {
    const Type& type = task.types[i];
    const size_t rank = type.shape.size();
    ordered_json row{{"path", task.paths[i]}, {"shape", type.shape}, {"type", name(type.dtype)}};
    row["sharding"] = axes_json(specs[i].param, rank);
    if (task.trained[i]) {
      row["gradient"] = axes_json(specs[i].grad, rank);
      row["state"] = axes_json(specs[i].state, rank);
    }
    out["parameters"].push_back(std::move(row));
  }
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void store_mesh(const std::string& run_folder, const Engine& engine) {
  try {
    replace_run_file(FileSystem::real(), run_folder, "mesh.json",
                     text_bytes(mesh_json(engine.task(), engine.options())));
  } catch (const IoError& error) {
    print_stderr("{}: {}; training continues without {}/mesh.json\n", program_name(), error.what(), run_folder);
  }
}

}  // namespace lockstep
