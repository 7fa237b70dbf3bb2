#include "train/manifest.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text_bytes.h"

namespace lockstep::detail {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order of keys, for readability

// The end of every manifest: kSum, the checksum of all bytes before it, kClose.
constexpr std::string_view kSum = ",\n  \"sha256\": \"";
constexpr std::string_view kClose = "\"\n}\n";
constexpr size_t kHex = 64;

std::string sum_of(std::string_view text) { return sha256_hex(text_bytes(text)); }

OrderedJson encode_number(double value) {  // JSON has neither NaN nor infinities
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double decode_number(const Json& value) {
  if (value.is_string()) {
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
  }
  if (!value.is_number()) throw_error("a metric is {}, which is not a number", printable_json(value));
  return value.get<double>();
}

// Larger than any file. A few such numbers can be added without overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kMaxDevices = int64_t{1} << 24;
constexpr size_t kMaxMeshes = 1024, kMaxAxes = 64, kMaxShards = 1 << 16;

int64_t count_at(const Json& json, const char* key, int64_t high = std::numeric_limits<int64_t>::max()) {
  return integer_in(json.at(key), key, 0, high);
}

uint64_t seed_of(const Json& value) {
  if (!value.is_number_unsigned())
    throw_error("seed is {}; expected a whole number of at least 0", printable_json(value));
  return value.get<uint64_t>();
}

Shape shape_at(const Json& json, const char* key) {
  Shape shape;
  const Json& list = json.at(key);
  if (!list.is_array() || list.size() > kMaxAxes)
    throw_error("{} is {}; expected a list of at most {} numbers", key, printable_json(list), kMaxAxes);
  for (const Json& extent : list) shape.push_back(integer_in(extent, key, 0, kMaxBytes));
  return shape;
}

// A SHA-256 checksum in hexadecimal.
std::string sum_at(const Json& json, const char* key) {
  auto sum = json.at(key).get<std::string>();
  if (sum.size() != kHex || sum.find_first_not_of("0123456789abcdef") != sum.npos)
    throw_error("{} is \"{}\", which is not a SHA-256 checksum", key, printable(sum));
  return sum;
}

OrderedJson encode_piece(const CheckpointPiece& piece) {
  OrderedJson begin = OrderedJson::array(), end = begin;
  for (const Range& range : piece.box) {
    begin.push_back(range.begin);
    end.push_back(range.end);
  }
  return {{"begin", std::move(begin)}, {"end", std::move(end)}, {"shard", piece.shard}, {"offset", piece.offset}};
}

OrderedJson encode_array(const CheckpointEntry& entry, int format) {
  OrderedJson axes = OrderedJson::array();
  for (const SpecEntry& dimension : entry.partition.entries) axes.push_back(dimension.axes);
  OrderedJson out = {{"name", entry.name}, {"dtype", name(entry.type.dtype)}, {"shape", entry.type.shape},
                     {"spec", entry.spec}, {"axes", std::move(axes)},         {"unreduced", entry.partition.unreduced},
                     {"mesh", entry.mesh}};
  if (entry.mesh < 0) out["mesh"] = nullptr;
  if (format == kWholeFormat) {
    out["shard"] = entry.pieces[0].shard;
    out["offset"] = entry.pieces[0].offset;
  } else {
    out["pieces"] = OrderedJson::array();
    for (const CheckpointPiece& piece : entry.pieces) out["pieces"].push_back(encode_piece(piece));
  }
  out["bytes"] = entry.type.bytes();
  return out;
}

CheckpointPiece decode_piece(const Json& json, const CheckpointEntry& entry) {
  CheckpointPiece piece{{}, json.at("shard"), count_at(json, "offset", kMaxBytes)};
  const Shape begin = shape_at(json, "begin"), end = shape_at(json, "end");
  const Shape& shape = entry.type.shape;
  bool fits = begin.size() == shape.size() && end.size() == shape.size();
  for (size_t d = 0; d < shape.size() && fits; ++d) {
    fits = 0 <= begin[d] && begin[d] <= end[d] && end[d] <= shape[d];
    piece.box.push_back({begin[d], end[d]});
  }
  if (!fits)
    throw_error("array \"{}\" has a piece from [{}] to [{}], which is not a part of {}", printable(entry.name),
                fmt::join(begin, ", "), fmt::join(end, ", "), to_string(entry.type));
  return piece;
}

// `room`: unassigned bytes of each shard.
CheckpointEntry decode_array(const Json& json, const CheckpointInfo& info, std::map<std::string, int64_t>& room) {
  CheckpointEntry entry;
  entry.name = json.at("name");
  const std::optional<DType> dtype = dtype_from_name(json.at("dtype").get<std::string>());
  const std::string shown = printable(entry.name);
  if (!dtype) throw_error("array \"{}\" has unknown element type {}", shown, printable_json(json.at("dtype")));
  entry.type = {*dtype, shape_at(json, "shape")};
  entry.spec = json.at("spec");
  for (const Json& dimension : json.at("axes"))
    entry.partition.entries.push_back(SpecEntry(dimension.get<std::vector<std::string>>()));
  entry.partition.unreduced = json.at("unreduced").get<std::set<std::string>>();
  if (!json.at("mesh").is_null()) {
    const int64_t mesh = count_at(json, "mesh");
    if (mesh >= std::ssize(info.meshes))
      throw_error("array \"{}\" is on mesh {} of {}", shown, mesh, info.meshes.size());
    entry.mesh = static_cast<int>(mesh);
  }
  if (info.format == kWholeFormat)
    entry.pieces = {{whole_box(entry.type.shape), json.at("shard"), count_at(json, "offset", kMaxBytes)}};
  else
    for (const Json& piece : json.at("pieces")) entry.pieces.push_back(decode_piece(piece, entry));
  if (count_at(json, "bytes") != entry.type.bytes())
    throw_error("array \"{}\" has {} bytes, but {} has {}", shown, count_at(json, "bytes"), to_string(entry.type),
                entry.type.bytes());
  for (const CheckpointPiece& piece : entry.pieces) {
    const auto shard = room.find(piece.shard);
    if (shard == room.end())
      throw_error("array \"{}\" is in {}, which is not a shard of this checkpoint", shown, printable(piece.shard));
    shard->second -= piece_type(entry.type, piece.box).bytes();
    if (shard->second < 0) throw_error("{} has fewer bytes than the arrays in it", printable(piece.shard));
  }
  return entry;
}

// Checksums are concatenated, which is much shorter than a JSON list.
std::string encode_sums(const std::vector<std::string>& sums) {
  std::string out;
  for (const std::string& sum : sums) out += sum;
  return out;
}

CheckpointShard decode_shard(const Json& json) {
  CheckpointShard shard{json.at("file"), count_at(json, "bytes", kMaxBytes), sum_at(json, "sha256"), 0, {}};
  if (!is_plain_file_name(shard.file) || shard.file == kManifest)
    throw_error("\"{}\" is not a valid shard name; expected a plain file name", printable(shard.file));
  if (!json.contains("chunk_bytes")) return shard;  // an old checkpoint
  shard.chunk_bytes = integer_in(json.at("chunk_bytes"), "chunk_bytes", 1, kMaxChunkBytes);
  const auto sums = json.at("chunks").get<std::string>();
  for (size_t at = 0; at < sums.size(); at += kHex) shard.chunks.push_back(sums.substr(at, kHex));
  const auto chunks = static_cast<int64_t>(shard.chunks.size());
  if (sums.size() % kHex != 0 || chunks != shard.bytes / shard.chunk_bytes + (shard.bytes % shard.chunk_bytes != 0))
    throw_error("{} has {} checksums for its {} bytes in chunks of {}", printable(shard.file), chunks, shard.bytes,
                shard.chunk_bytes);
  return shard;
}

std::vector<MeshAxis> decode_mesh(const Json& json) {
  if (!json.is_array() || json.size() > kMaxAxes)
    throw_error("a mesh is {}; expected a list of at most {} axes", printable_json(json), kMaxAxes);
  std::vector<MeshAxis> axes;
  int64_t devices = 1;
  for (const Json& axis : json) {
    axes.emplace_back(axis.at("axis").get<std::string>(), integer_in(axis.at("size"), "size", 1, kMaxDevices));
    devices *= axes.back().size;
    if (devices > kMaxDevices) throw_error("a mesh has more than {} devices", kMaxDevices);
  }
  return axes;
}

CheckpointInfo decode_body(const Json& json) {
  CheckpointInfo info;
  info.format = static_cast<int>(integer_in(json.at("format"), "format", kWholeFormat, kPiecesFormat));
  info.written_by = json.at("written_by");
  info.step = count_at(json, "step");
  info.cursor = {count_at(json.at("cursor"), "epoch"), count_at(json.at("cursor"), "sample")};
  info.seed = seed_of(json.at("seed"));
  for (const Json& mesh : json.at("meshes")) info.meshes.push_back(decode_mesh(mesh));
  if (info.meshes.size() > kMaxMeshes) throw_error("there are more than {} meshes", kMaxMeshes);
  info.mesh = describe_meshes(info.meshes);
  if (json.at("shards").size() > kMaxShards) throw_error("there are more than {} shards", kMaxShards);
  std::map<std::string, int64_t> room;
  for (const Json& json_shard : json.at("shards")) {
    CheckpointShard shard = decode_shard(json_shard);
    if (!room.emplace(shard.file, shard.bytes).second) throw_error("shard {} is listed twice", printable(shard.file));
    info.shards.push_back(std::move(shard));
  }
  std::set<std::string> names;
  for (const Json& array : json.at("arrays")) {
    info.entries.push_back(decode_array(array, info, room));
    if (!names.insert(info.entries.back().name).second)
      throw_error("two arrays are named \"{}\"", printable(info.entries.back().name));
  }
  info.config = json.at("config").get<std::map<std::string, std::string>>();
  for (const auto& [metric, value] : json.at("metrics").items()) info.metrics[metric] = decode_number(value);
  return info;
}

}  // namespace

IndexBox whole_box(const Shape& shape) {
  IndexBox box;
  for (const int64_t extent : shape) box.push_back({0, extent});
  return box;
}

Type piece_type(const Type& type, const IndexBox& box) {
  Type out = type;
  for (size_t d = 0; d < box.size(); ++d) out.shape[d] = box[d].size();
  return out;
}

std::string tensor_name(const CheckpointEntry& entry, const CheckpointPiece& piece) {
  if (piece.box == whole_box(entry.type.shape)) return entry.name;
  std::vector<std::string> ranges;
  for (const Range& range : piece.box) ranges.push_back(to_string(range));
  return fmt::format("{}[{}]", entry.name, fmt::join(ranges, ", "));
}

std::string describe_meshes(const std::vector<std::vector<MeshAxis>>& meshes) {
  std::string text;
  for (const std::vector<MeshAxis>& mesh : meshes) {
    text += text.empty() ? "Mesh(" : ", Mesh(";
    for (size_t i = 0; i < mesh.size(); ++i)
      text += fmt::format("{}'{}': {}", i ? ", " : "", mesh[i].name, mesh[i].size);
    text += ")";
  }
  return text;
}

std::string encode_manifest(const CheckpointInfo& info) {
  OrderedJson meshes = OrderedJson::array(), arrays = meshes, shards = meshes, metrics = OrderedJson::object();
  for (const std::vector<MeshAxis>& mesh : info.meshes) {
    OrderedJson axes = OrderedJson::array();
    for (const MeshAxis& axis : mesh) axes.push_back({{"axis", axis.name}, {"size", axis.size}});
    meshes.push_back(std::move(axes));
  }
  for (const CheckpointEntry& entry : info.entries) arrays.push_back(encode_array(entry, info.format));
  for (const CheckpointShard& shard : info.shards) {
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"sha256", shard.sha256}});
    if (shard.chunk_bytes == 0) continue;  // from an old checkpoint
    shards.back()["chunk_bytes"] = shard.chunk_bytes;
    shards.back()["chunks"] = encode_sums(shard.chunks);
  }
  for (const auto& [key, value] : info.config)
    if (!is_utf8(key)) throw_error("checkpoint: the setting \"{}\" is not UTF-8; rename it", printable(key));
  for (const auto& [metric, value] : info.metrics) {
    if (!is_utf8(metric)) throw_error("checkpoint: the metric \"{}\" is not UTF-8; rename it", printable(metric));
    metrics[metric] = encode_number(value);
  }
  const OrderedJson json = {
      {"format", info.format},       {"written_by", info.written_by},
      {"step", info.step},           {"cursor", {{"epoch", info.cursor.epoch}, {"sample", info.cursor.sample}}},
      {"seed", info.seed},           {"meshes", std::move(meshes)},
      {"arrays", std::move(arrays)}, {"shards", std::move(shards)},
      {"config", info.config},       {"metrics", std::move(metrics)}};
  std::string text = json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
  text.resize(text.size() - 2);  // removes "\n}", which follows the checksum instead
  const std::string sum = sum_of(text);
  text.append(kSum).append(sum).append(kClose);
  if (std::ssize(text) > kMaxManifestBytes)
    throw_error("checkpoint: the manifest would have {} bytes, more than the limit of {}; save fewer or smaller arrays",
                text.size(), kMaxManifestBytes);
  return text;
}

CheckpointInfo decode_manifest(std::string_view text, const std::string& path) {
  const size_t tail = kSum.size() + kHex + kClose.size();
  const std::string_view body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  const std::string_view sum = text.substr(body.size());
  if (text.size() < tail || sum.substr(0, kSum.size()) != kSum || sum.substr(kSum.size() + kHex) != kClose)
    throw_error("checkpoint: {} does not end with its checksum; the file is damaged: use another checkpoint", path);
  if (sum.substr(kSum.size(), kHex) != sum_of(body))
    throw_error("checkpoint: the SHA-256 checksum of {} is wrong; the file is damaged: use another checkpoint", path);
  try {
    const Json json =
        parse_json<Json>(text, "its text", {.bytes = kMaxManifestBytes, .values = 50'000'000, .keys = 1'000'000});
    if (const int64_t format = integer_in(json.at("format"), "format"); format > kPiecesFormat || format < 1)
      throw_error("has format {}, written by {}, but this lockstep reads formats up to {}; use a newer lockstep",
                  format, printable_json(json.at("written_by")), kPiecesFormat);
    return decode_body(json);
  } catch (const Json::exception& error) {
    throw_error("checkpoint: {}: {}; the file was not written by lockstep", path, json_error_text(error));
  } catch (const Error& error) {
    throw_error("checkpoint: {}: {}", path, error.what());
  }
}

}  // namespace lockstep::detail
