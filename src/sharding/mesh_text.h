// Meshes as text, for programs: "data=4,model=2". " on cpu:1,cpu:0,..." follows unless the devices are the
// first ones of this process's platform, in order. Pure functions, safe to call from any thread.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/sharding.h"

namespace lockstep {

// The text of a mesh. Different meshes have different texts.
std::string mesh_text(const Mesh& mesh);

// The mesh of a text. REQUIRES: mesh_text() wrote it.
Mesh mesh_from_text(std::string_view text);

}  // namespace lockstep
