#include "train/manifest.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "train/json.h"
#include "train/sha256.h"

namespace lockstep::detail {
namespace {

using OrderedJson = nlohmann::ordered_json;  // as it is written, so that people find their way

// The end of every manifest: this, the sum of all that stands before it, and the closing.
constexpr std::string_view kSum = ",\n  \"sha256\": \"";
constexpr std::string_view kClose = "\"\n}\n";
constexpr size_t kHex = 64;

std::string sum_of(std::string_view text) {
  return sha256_hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

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
  return value.get<double>();
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
  CheckpointPiece piece{{}, json.at("shard"), json.at("offset")};
  const auto begin = json.at("begin").get<Shape>(), end = json.at("end").get<Shape>();
  const Shape& shape = entry.type.shape;
  bool fits = begin.size() == shape.size() && end.size() == shape.size();
  for (size_t d = 0; d < shape.size() && fits; ++d) {
    fits = 0 <= begin[d] && begin[d] <= end[d] && end[d] <= shape[d];
    piece.box.push_back({begin[d], end[d]});
  }
  if (!fits)
    throw_error("array \"{}\" has a piece from [{}] to [{}], which is no part of {}", entry.name,
                fmt::join(begin, ", "), fmt::join(end, ", "), to_string(entry.type));
  return piece;
}

CheckpointEntry decode_array(const Json& json, const CheckpointInfo& info, const std::set<std::string>& shards) {
  CheckpointEntry entry;
  entry.name = json.at("name");
  const std::optional<DType> dtype = dtype_from_name(json.at("dtype").get<std::string>());
  if (!dtype) throw_error("array \"{}\" has the element type {}", entry.name, printable(json.at("dtype")));
  entry.type = {*dtype, json.at("shape").get<Shape>()};
  entry.spec = json.at("spec");
  for (const Json& dimension : json.at("axes"))
    entry.partition.entries.push_back(SpecEntry(dimension.get<std::vector<std::string>>()));
  entry.partition.unreduced = json.at("unreduced").get<std::set<std::string>>();
  if (!json.at("mesh").is_null()) {
    entry.mesh = json.at("mesh");
    if (entry.mesh < 0 || static_cast<size_t>(entry.mesh) >= info.meshes.size())
      throw_error("array \"{}\" lies on mesh {} of {}", entry.name, entry.mesh, info.meshes.size());
  }
  if (info.format == kWholeFormat)
    entry.pieces = {{whole_box(entry.type.shape), json.at("shard"), json.at("offset")}};
  else
    for (const Json& piece : json.at("pieces")) entry.pieces.push_back(decode_piece(piece, entry));
  for (const CheckpointPiece& piece : entry.pieces)
    if (!shards.count(piece.shard)) throw_error("array \"{}\" lies in {}, which is no shard", entry.name, piece.shard);
  if (json.at("bytes") != entry.type.bytes())
    throw_error("array \"{}\" has {} bytes, but {} has {}", entry.name, json.at("bytes").dump(), to_string(entry.type),
                entry.type.bytes());
  return entry;
}

// Sums stand one after another: a list of them would be mostly punctuation.
std::string encode_sums(const std::vector<std::string>& sums) {
  std::string out;
  for (const std::string& sum : sums) out += sum;
  return out;
}

CheckpointShard decode_shard(const Json& json) {
  CheckpointShard shard{json.at("file"), json.at("bytes"), json.at("sha256"), 0, {}};
  if (!json.contains("chunk_bytes")) return shard;  // of before there were any
  shard.chunk_bytes = json.at("chunk_bytes");
  const auto sums = json.at("chunks").get<std::string>();
  for (size_t at = 0; at < sums.size(); at += kHex) shard.chunks.push_back(sums.substr(at, kHex));
  const auto chunks = static_cast<int64_t>(shard.chunks.size());
  if (shard.chunk_bytes < 1 || shard.bytes < 0 || sums.size() % kHex != 0 ||
      chunks != shard.bytes / shard.chunk_bytes + (shard.bytes % shard.chunk_bytes != 0))
    throw_error("{} has {} sums for its {} bytes in chunks of {}", printable(shard.file), chunks, shard.bytes,
                shard.chunk_bytes);
  return shard;
}

CheckpointInfo decode_body(const Json& json) {
  CheckpointInfo info;
  info.format = json.at("format");
  info.written_by = json.at("written_by");
  info.step = json.at("step");
  info.cursor = {json.at("cursor").at("epoch"), json.at("cursor").at("sample")};
  info.seed = json.at("seed");
  for (const Json& mesh : json.at("meshes")) {
    std::vector<MeshAxis>& axes = info.meshes.emplace_back();
    for (const Json& axis : mesh) axes.emplace_back(axis.at("axis").get<std::string>(), axis.at("size").get<int64_t>());
  }
  info.mesh = describe_meshes(info.meshes);
  std::set<std::string> shards, names;
  for (const Json& json_shard : json.at("shards")) {
    CheckpointShard shard = decode_shard(json_shard);
    if (shard.file.empty() || shard.file.find('/') != std::string::npos || !shards.insert(shard.file).second)
      throw_error("{} is no name of a shard, or stands twice", printable(shard.file));
    info.shards.push_back(std::move(shard));
  }
  for (const Json& array : json.at("arrays")) {
    info.entries.push_back(decode_array(array, info, shards));
    if (!names.insert(info.entries.back().name).second)
      throw_error("two arrays are called \"{}\"", info.entries.back().name);
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
  for (const CheckpointShard& shard : info.shards)
    shards.push_back({{"file", shard.file},
                      {"bytes", shard.bytes},
                      {"sha256", shard.sha256},
                      {"chunk_bytes", shard.chunk_bytes},
                      {"chunks", encode_sums(shard.chunks)}});
  for (const auto& [key, value] : info.config)
    if (!is_utf8(key)) throw_error("checkpoint: the setting {} is not UTF-8; rename it", printable(key));
  for (const auto& [metric, value] : info.metrics) {
    if (!is_utf8(metric)) throw_error("checkpoint: the metric {} is not UTF-8; rename it", printable(metric));
    metrics[metric] = encode_number(value);
  }
  const OrderedJson json = {
      {"format", info.format},       {"written_by", info.written_by},
      {"step", info.step},           {"cursor", {{"epoch", info.cursor.epoch}, {"sample", info.cursor.sample}}},
      {"seed", info.seed},           {"meshes", std::move(meshes)},
      {"arrays", std::move(arrays)}, {"shards", std::move(shards)},
      {"config", info.config},       {"metrics", std::move(metrics)}};
  std::string text = json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
  text.resize(text.size() - 2);  // the "\n}" that follows the sum instead
  const std::string sum = sum_of(text);
  return text.append(kSum).append(sum).append(kClose);
}

CheckpointInfo decode_manifest(std::string_view text, const std::string& path) {
  const size_t tail = kSum.size() + kHex + kClose.size();
  const std::string_view body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  const std::string_view sum = text.substr(body.size());
  if (text.size() < tail || sum.substr(0, kSum.size()) != kSum || sum.substr(kSum.size() + kHex) != kClose)
    throw_error("checkpoint: {} does not end with its sum; the file is damaged: use another checkpoint", path);
  if (sum.substr(kSum.size(), kHex) != sum_of(body))
    throw_error("checkpoint: {} has another SHA-256 sum than it says; the file is damaged: use another checkpoint",
                path);
  try {
    const Json json = parse_json(text);
    if (const int64_t format = json.at("format"); format > kPiecesFormat || format < 1)
      throw_error("is of format {}, written by {}, and this lockstep reads formats up to {}; use a newer lockstep",
                  format, printable(json.at("written_by")), kPiecesFormat);
    return decode_body(json);
  } catch (const Json::exception& error) {
    throw_error("checkpoint: {}: {}; the file was not written by lockstep", path, error.what());
  } catch (const Error& error) {
    throw_error("checkpoint: {}: {}", path, error.what());
  }
}

}  // namespace lockstep::detail
