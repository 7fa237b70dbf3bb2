// manifest.json of a checkpoint: its text, made and read. docs/reference/checkpoint-format.md has the format. Functions of their
// arguments, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint.h"

namespace lockstep::detail {

// Of a checkpoint whose arrays lie whole in its shards, and of one whose arrays may lie in pieces. Both are read.
inline constexpr int kWholeFormat = 1, kPiecesFormat = 2;
// Shards have a sum for every so many bytes, so that what is read of them can be verified without the rest.
inline constexpr int64_t kChunkBytes = 64 << 10;
inline constexpr int64_t kMostChunkBytes = int64_t{1} << 30;  // of other writers
inline constexpr const char* kManifest = "manifest.json";
// Sums take a thousandth of what they protect: this is enough for checkpoints of a terabyte.
inline constexpr int64_t kMostManifestBytes = int64_t{1} << 30;

IndexBox whole_box(const Shape& shape);
// The type of a part of an array, and what it is called in its shard: "params/w", "params/w[0:392, 0:256]".
Type piece_type(const Type& type, const IndexBox& box);
std::string tensor_name(const CheckpointEntry& entry, const CheckpointPiece& piece);

// The text of a manifest. A setting's value that is not UTF-8 is written with replacement characters: a checkpoint is
// worth more than the odd byte of a path in it. Throws Error for names that are not UTF-8.
std::string encode_manifest(const CheckpointInfo& info);

// "Mesh('data': 8)"; several are put together, none is the empty text.
std::string describe_meshes(const std::vector<std::vector<MeshAxis>>& meshes);

// What a manifest says; `path` is that of the file, which messages name. Throws Error when its sum does not fit, when
// it is of a newer format, and when what it says cannot be true.
CheckpointInfo decode_manifest(std::string_view text, const std::string& path);

}  // namespace lockstep::detail
