#include "train/hf_tensors.h"

#include <cstring>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "lockstep/half.h"

namespace lockstep::detail {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Converts little-endian 16-bit floats.
template <class Half>
void widen_halves(const std::vector<uint8_t>& bytes, std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Half half;
    half.bits = static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
    out[i] = static_cast<float>(half);
  }
}

}  // namespace

HfTensors::HfTensors(FileSystem& files, const std::string& dir) : files_(files) {
  if (files_.exists(dir + "/" + kSingleFile)) {
    where_ = dir + "/" + kSingleFile;
    add_file(where_);
  } else if (files_.exists(dir + "/" + kIndexFile)) {
    read_index(dir);
  } else if (files_.exists(dir + "/pytorch_model.bin") || files_.exists(dir + "/pytorch_model.bin.index.json")) {
    throw_error(
        "import: {} has its weights in pytorch_model.bin, which may run code when it is read; save it again with "
        "save_pretrained(dir, safe_serialization=True)",
        dir);
  } else {
    throw_error("import: {} has neither {} nor {}; give the folder of a Hugging Face model", dir, kSingleFile,
                kIndexFile);
  }
}

void HfTensors::add_file(const std::string& path) {
  const SafetensorsHeader header = read_safetensors_header(files_, path);
  for (const SafetensorsEntry& entry : header.tensors)
    if (const auto [before, added] = tensors_.emplace(entry.name, Place{path, entry, header.data_begin}); !added)
      throw_error("import: \"{}\" is in {} and in {}; download the model again", printable(entry.name),
                  before->second.path, path);
}

void HfTensors::read_index(const std::string& dir) {
  where_ = dir + "/" + kIndexFile;
  const std::vector<uint8_t> bytes = files_.read_file(where_);
  const auto json =
      parse_json<nlohmann::json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where_,
                                 {.bytes = kMaxFileBytes, .depth = 8, .values = 10'000'000, .keys = 1'000'000});
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    throw_error("import: {} has no \"weight_map\" that lists tensors and their files; download the model again",
                where_);
  std::map<std::string, std::string> shards;  // file -> one of its tensors
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      throw_error("import: {} places \"{}\" in {}, which is not the name of a file in the folder", where_,
                  printable(tensor), printable_json(file));
    shards.emplace(file.get<std::string>(), tensor);
  }
  for (const auto& [file, tensor] : shards)
    if (!files_.exists(dir + "/" + file))
      throw_error("import: the shard {}/{} is missing; it has \"{}\": download it", dir, file, printable(tensor));
  for (const auto& [file, tensor] : shards) add_file(dir + "/" + file);
  for (const auto& [tensor, file] : map->items()) {
    const std::string path = dir + "/" + file.get<std::string>();
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.path != path)
      throw_error("import: {} places \"{}\" in {}, but that file does not have it; download the model again", where_,
                  printable(tensor), path);
  }
}

void HfTensors::expect(const std::string& name, const Shape& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw_error(
        "import: the tensor \"{}\" is missing in {}; the folder is incomplete, or config.json belongs to another model",
        printable(name), where_);
  const auto& [path, entry, data_begin] = found->second;
  if (entry.type.shape != shape)
    throw_error("import: \"{}\" in {} has shape {}, but config.json requires {}", printable(name), path,
                lockstep::to_string(entry.type.shape), lockstep::to_string(shape));
  const DType dtype = entry.type.dtype;
  if (dtype != f32 && dtype != f16 && dtype != bf16)
    throw_error("import: \"{}\" in {} has elements of type {}; weights must be F32, F16 or BF16", printable(name), path,
                safetensors_name(dtype));
}

std::vector<float> HfTensors::read(const std::string& name, const Shape& shape) {
  expect(name, shape);
  used_.insert(name);
  const auto& [path, entry, data_begin] = tensors_.at(name);
  const DType dtype = entry.type.dtype;
  std::vector<float> out(static_cast<size_t>(count(shape)));
  std::vector<uint8_t> bytes(static_cast<size_t>(entry.type.bytes()));
  if (files_.read(path, data_begin + entry.offset, bytes) < bytes.size())
    throw_error("import: {} ends within \"{}\"; download it again", path, printable(name));
  if (dtype == f32) {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  } else if (dtype == f16) {
    widen_halves<Float16>(bytes, out);
  } else {
    widen_halves<BFloat16>(bytes, out);
  }
  return out;
}

std::vector<std::string> HfTensors::unused() const {
  std::vector<std::string> out;
  for (const auto& [name, place] : tensors_)
    if (!used_.count(name)) out.push_back(name);
  return out;
}

}  // namespace lockstep::detail
