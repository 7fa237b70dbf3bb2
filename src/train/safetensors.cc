#include "train/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation

using Json = nlohmann::json;

constexpr const char* kMetadata = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view text;
};
// The format has no c128.
constexpr std::array<DTypeName, kDTypeCount - 1> kNames = {{{DType::boolean, "BOOL"},
                                                            {DType::u8, "U8"},
                                                            {DType::u16, "U16"},
                                                            {DType::u64, "U64"},
                                                            {DType::i8, "I8"},
                                                            {DType::i16, "I16"},
                                                            {DType::i32, "I32"},
                                                            {DType::i64, "I64"},
                                                            {DType::u32, "U32"},
                                                            {DType::f8_e4m3, "F8_E4M3"},
                                                            {DType::f8_e5m2, "F8_E5M2"},
                                                            {DType::bf16, "BF16"},
                                                            {DType::f16, "F16"},
                                                            {DType::f32, "F32"},
                                                            {DType::f64, "F64"},
                                                            {DType::c64, "C64"}}};

[[noreturn]] void throw_invalid_file(const std::string& path, const std::string& fact) {
  throw_error("safetensors: {} {}; the file is damaged or not a safetensors file", path, fact);
}

const Json& member(const Json& object, const char* key, const std::string& path, const std::string& tensor) {
  const auto at = object.find(key);
  if (at == object.end()) throw_invalid_file(path, fmt::format("has no \"{}\" for \"{}\"", key, tensor));
  return *at;
}

// A whole number of at least 0 that fits int64_t.
int64_t parse_count(const Json& value, const std::string& path, const std::string& tensor, const char* what) {
  const auto wrong = [&](const char* why) {
    throw_invalid_file(path,
                       fmt::format("gives \"{}\" the {} {}, which is {}", tensor, what, printable_json(value), why));
  };
  if (!value.is_number_integer()) wrong("not a whole number");
  if (!value.is_number_unsigned()) wrong("negative");
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) wrong("too large");
  return static_cast<int64_t>(number);
}

SafetensorsEntry decode_entry(const std::string& name, const Json& value, const std::string& path) {
  if (!value.is_object()) throw_invalid_file(path, fmt::format("has no object for \"{}\"", name));
  SafetensorsEntry entry{.name = name, .type = {}};
  const Json& dtype = member(value, "dtype", path, name);
  const auto known = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const DTypeName& each) { return dtype.is_string() && dtype == each.text; });
  if (known == kNames.end())
    throw_error(
        "safetensors: {} has \"{}\" with elements of type {}; lockstep reads BOOL, U8, U16, U32, U64, I8, I16, "
        "I32, I64, F8_E4M3, F8_E5M2, BF16, F16, F32, F64 and C64",
        path, printable(name), printable_json(dtype));
  entry.type.dtype = known->dtype;
  const Json& shape = member(value, "shape", path, name);
  if (!shape.is_array()) throw_invalid_file(path, fmt::format("has a shape for \"{}\" that is not a list", name));
  for (const Json& extent : shape) entry.type.shape.push_back(parse_count(extent, path, name, "extent"));
  int64_t bytes = 0;
  try {
    bytes = entry.type.bytes();
  } catch (const Error&) {
    throw_invalid_file(
        path, fmt::format("has \"{}\" of shape {}, which is too large", name, lockstep::to_string(entry.type.shape)));
  }
  const Json& offsets = member(value, "data_offsets", path, name);
  if (!offsets.is_array() || offsets.size() != 2)
    throw_invalid_file(path, fmt::format("does not have two data_offsets for \"{}\"", name));
  entry.offset = parse_count(offsets[0], path, name, "offset");
  const int64_t end = parse_count(offsets[1], path, name, "offset");
  if (end < entry.offset || end - entry.offset != bytes)
    throw_invalid_file(path, fmt::format("gives \"{}\" the bytes {} to {}, but {} has {}", name, entry.offset, end,
                                         to_string(entry.type), bytes));
  return entry;
}

void check_layout(const std::vector<SafetensorsEntry>& tensors, int64_t data_bytes, const std::string& path) {
  int64_t at = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    if (tensor.offset < at)
      throw_invalid_file(path, fmt::format("has a tensor \"{}\" that overlaps the one before it", tensor.name));
    if (tensor.offset > at)
      throw_invalid_file(path, fmt::format("has a gap of {} bytes before \"{}\"", tensor.offset - at, tensor.name));
    if (tensor.end() > data_bytes)
      throw_invalid_file(path, fmt::format("ends within \"{}\": it has {} bytes of data, but needs {}", tensor.name,
                                           data_bytes, tensor.end()));
    at = tensor.end();
  }
  if (at != data_bytes) throw_invalid_file(path, fmt::format("has {} bytes after its last tensor", data_bytes - at));
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const DTypeName& each : kNames)
    if (each.dtype == dtype) return each.text;
  throw_error("safetensors: the format has no element type for {}; save real() and imag(), or cast it to c64",
              name(dtype));
}

std::vector<size_t> safetensors_order(std::span<const Type> types) {
  std::vector<size_t> order(types.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(types[a].dtype) > size_of(types[b].dtype); });
  return order;
}

std::string encode_safetensors(const std::vector<SafetensorsEntry>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata)
    if (!is_utf8(key) || !is_utf8(value))
      throw_error("safetensors: metadata \"{}\" is not UTF-8; rename it", printable(key));
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", kMetadata, Json(metadata).dump());
  std::set<std::string> names;
  int64_t at = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    if (!is_utf8(tensor.name))
      throw_error("safetensors: the name \"{}\" is not UTF-8; rename it", printable(tensor.name));
    if (tensor.name == kMetadata) throw_error("safetensors: {} is not a valid tensor name; rename it", kMetadata);
    if (!names.insert(tensor.name).second)
      throw_error("safetensors: two tensors are named \"{}\"; rename one", tensor.name);
    LOCKSTEP_CHECK(tensor.offset == std::exchange(at, tensor.end()), "{} at {}", tensor.name, tensor.offset);
    const Json value = {{"dtype", safetensors_name(tensor.type.dtype)},
                        {"shape", tensor.type.shape},
                        {"data_offsets", {tensor.offset, tensor.end()}}};
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", Json(tensor.name).dump(), value.dump());
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<unsigned char>(uint64_t{text.size()} >> (8 * i)));
  return out + text;
}

SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path) {
  const int64_t file_bytes = files.size(path);
  std::array<uint8_t, 8> prefix;
  if (file_bytes < 8 || files.read(path, 0, prefix) < 8)
    throw_invalid_file(path, fmt::format("has only {} bytes; a safetensors file has at least 8", file_bytes));
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{prefix[i]} << (8 * i);
  if (length > static_cast<uint64_t>(kMaxHeader))
    throw_invalid_file(path, fmt::format("has a header of {} bytes; the limit is {}", length, kMaxHeader));
  SafetensorsHeader header;
  header.data_begin = 8 + static_cast<int64_t>(length);
  std::vector<uint8_t> text(static_cast<size_t>(length));
  if (header.data_begin > file_bytes || files.read(path, 8, text) < text.size())
    throw_invalid_file(path, fmt::format("has {} bytes, but its header alone should have {}", file_bytes, length));
  if (text.empty() || text[0] != '{') throw_invalid_file(path, "has a header that does not begin with {");

  Json json;
  try {
    // The format needs a depth of two; keys are the tensors' names.
    json = parse_json<Json>({reinterpret_cast<const char*>(text.data()), text.size()}, "its header",
                            {.bytes = kMaxHeader, .depth = 8, .values = 20'000'000, .keys = 1'000'000});
  } catch (const Error& error) {
    throw_invalid_file(path, fmt::format("cannot be read: {}", error.what()));
  }
  for (const auto& [name, value] : json.items()) {
    if (name != kMetadata) {
      header.tensors.push_back(decode_entry(name, value, path));
      continue;
    }
    if (!value.is_object()) throw_invalid_file(path, "has a __metadata__ that is not an object");
    for (const auto& [key, each] : value.items()) {
      if (!each.is_string()) throw_invalid_file(path, fmt::format("has metadata \"{}\" that is not a string", key));
      header.metadata[key] = each.get<std::string>();
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.offset, a.end()) < std::pair(b.offset, b.end());
                   });
  check_layout(header.tensors, file_bytes - header.data_begin, path);
  return header;
}

}  // namespace lockstep::detail
