// Meshes as they are written in programs: "data=4,model=2", followed by " on cpu:1,cpu:0,..." unless the devices are
// those of the CPU from 0 on, in order. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/sharding.h"

namespace lockstep {

// Different meshes have different texts.
std::string mesh_text(const Mesh& mesh);

// REQUIRES: mesh_text() wrote it.
Mesh mesh_from_text(std::string_view text);

}  // namespace lockstep
