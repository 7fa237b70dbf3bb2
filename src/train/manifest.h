// Encodes and decodes manifest.json of a checkpoint. docs/reference/checkpoint-format.md has the format. Pure
// functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint.h"

namespace lockstep::detail {

// Format 1: every array is stored complete in one shard. Format 2: arrays may be stored in pieces. Both can be read.
inline constexpr int kWholeFormat = 1, kPiecesFormat = 2;
// Shards have a checksum per chunk of this size, so that a part can be verified without reading the rest.
inline constexpr int64_t kChunkBytes = 64 << 10;
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;  // accepted from other writers
inline constexpr const char* kManifest = "manifest.json";
// Checksums need a thousandth of the size of the data, so this is enough for a checkpoint of a terabyte.
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

IndexBox whole_box(const Shape& shape);
// The type of a piece of an array, and its name in the shard: "params/w", "params/w[0:392, 0:256]".
Type piece_type(const Type& type, const IndexBox& box);
std::string tensor_name(const CheckpointEntry& entry, const CheckpointPiece& piece);

// The text of a manifest. Values of settings that are not UTF-8 (a path, for instance) are written with replacement
// characters, since they should not prevent a save. Throws Error for names that are not UTF-8.
std::string encode_manifest(const CheckpointInfo& info);

// "Mesh('data': 8)"; several are joined by commas; empty for no mesh.
std::string describe_meshes(const std::vector<std::vector<MeshAxis>>& meshes);

// Parses and checks a manifest. `path` names the file in messages. Throws Error when the checksum is wrong, the format
// is newer than this program, or values are inconsistent.
CheckpointInfo decode_manifest(std::string_view text, const std::string& path);

}  // namespace lockstep::detail
