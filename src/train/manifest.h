// manifest.json of a checkpoint: its text, made and read. docs/checkpoints.md has the format. Functions of their
// arguments, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint.h"

namespace lockstep::detail {

inline constexpr int kCheckpointFormat = 1;
inline constexpr const char* kManifest = "manifest.json";

// The text of a manifest. A setting's value that is not UTF-8 is written with replacement characters: a checkpoint is
// worth more than the odd byte of a path in it. Throws Error for names that are not UTF-8.
std::string encode_manifest(const CheckpointInfo& info);

// "Mesh('data': 8)"; several are put together, none is the empty text.
std::string describe_meshes(const std::vector<std::vector<MeshAxis>>& meshes);

// What a manifest says; `path` is that of the file, which messages name. Throws Error when its sum does not fit, when
// it is of a newer format, and when what it says cannot be true.
CheckpointInfo decode_manifest(std::string_view text, const std::string& path);

}  // namespace lockstep::detail
