// mesh.json in the folder of a run: the mesh and the sharding of every parameter. docs/reference/run-folder.md has the
// format. Used by the main thread of the first process.
#pragma once

#include <string>

#include "lockstep/engine.h"

namespace lockstep {

std::string mesh_json(const Task& task, const EngineOptions& options);

// Replaces the file. If it cannot be written, prints a warning.
void store_mesh(const std::string& run_folder, const Engine& engine);

}  // namespace lockstep
