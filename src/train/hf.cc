#include "lockstep/hf.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"
#include "base/printable.h"
#include "lockstep/half.h"
#include "lockstep/math.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"
#include "train/hf_config.h"
#include "train/hf_layout.h"
#include "train/hf_tensors.h"
#include "train/safetensors.h"

namespace lockstep {
namespace {

// A tokenizer of bytes or characters in our own format, beside a tokenizer.json for other programs.
constexpr const char* kOwnTokenizer = "lockstep_tokenizer.json";
constexpr int64_t kMaxConfigBytes = 1 << 20;

std::string_view text_view(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string used_prefix(const detail::HfTensors& tensors, detail::HfFamily family) {
  const std::string prefix = detail::hf_prefix(family), embedding = detail::hf_embedding_name(family);
  return !tensors.has(prefix + embedding) && tensors.has(embedding) ? "" : prefix;
}

// A tied model may store its output layer too; then it must equal the embedding.
void check_tied_output(detail::HfTensors& tensors, const GptConfig& config, const std::string& embedding) {
  const std::string name = "lm_head.weight";
  if (!config.tied || !tensors.has(name)) return;
  const Shape shape = {config.vocabulary, config.width};
  if (tensors.read(name, shape) != tensors.read(embedding, shape))
    throw_error("import: \"{}\" in {} differs from \"{}\", but config.json has \"tie_word_embeddings\": true", name,
                tensors.file_of(name), embedding);
}

void check_no_others(detail::HfTensors& tensors, const std::string& config) {
  for (const std::string& name : tensors.unused())
    if (detail::is_hf_buffer(name)) tensors.ignore(name);
  const std::vector<std::string> unused = tensors.unused();
  if (unused.empty()) return;
  const std::string others =
      unused.size() > 1 ? fmt::format(" and {}", counted(static_cast<int64_t>(unused.size()) - 1, "other tensor")) : "";
  throw_error("import: {} has the tensor \"{}\"{}, which the model of {} does not have; it is another kind of model",
              tensors.file_of(unused[0]), printable(unused[0]), others, config);
}

Gpt read_params(detail::HfTensors& tensors, const detail::HfConfig& config, const std::string& config_path) {
  const std::string prefix = used_prefix(tensors, config.family);
  const std::string embedding = prefix + detail::hf_embedding_name(config.family);
  // First, so that a config.json of another model costs nothing.
  tensors.expect(embedding, {config.model.vocabulary, config.model.width});
  Gpt params = gpt_form(config.model);
  std::map<Array*, std::vector<float>> values;
  for (const detail::HfSlot& slot : detail::hf_slots(config.model, config.family, prefix, params)) {
    LOCKSTEP_CHECK(slot.leaf, "{}", slot.name);
    const std::vector<float> tensor = tensors.read(slot.name, slot.shape);
    std::vector<float>& leaf = values[slot.leaf];
    leaf.resize(static_cast<size_t>(count(slot.leaf->shape())));
    copy_from_tensor(slot, tensor, leaf);
  }
  check_tied_output(tensors, config.model, embedding);
  check_no_others(tensors, config_path);
  for (auto& [leaf, elements] : values) {
    const Shape shape = leaf->shape();
    *leaf = Array::from(std::move(elements), shape);
  }
  return params;
}

// Sets the tokenizer, or adds a note why there is none.
void read_tokenizer(const std::string& dir, HfModel& model) {
  FileSystem& files = FileSystem::real();
  try {
    if (const std::string own = dir + "/" + kOwnTokenizer; files.exists(own)) {
      const std::vector<uint8_t> bytes = files.read_file(own);
      model.tokenizer = tokenizer_from_json(text_view(bytes), own);
    } else if (files.exists(dir + "/tokenizer.json") || files.exists(dir + "/merges.txt")) {
      model.tokenizer = load_tokenizer(dir);
    } else {
      model.notes.push_back(
          fmt::format("{} has neither tokenizer.json nor merges.txt: the model has no tokenizer", dir));
      return;
    }
  } catch (const Error& error) {
    model.notes.push_back(fmt::format("the model has no tokenizer: {}", error.what()));
    return;
  }
  if (model.tokenizer->vocabulary() > model.config.vocabulary)
    model.notes.push_back(fmt::format("the tokenizer has {} tokens, of which the model knows the first {}",
                                      model.tokenizer->vocabulary(), model.config.vocabulary));
}

void append_bytes(std::vector<uint8_t>& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

std::vector<uint8_t> encode_elements(const std::vector<float>& values, DType dtype, const std::string& name) {
  std::vector<uint8_t> out;
  out.reserve(values.size() * static_cast<size_t>(size_of(dtype)));
  for (const float value : values) {
    if (!std::isfinite(value))
      throw_error("export: \"{}\" has the value {}, which is not finite; choose another checkpoint", name, value);
    if (dtype == f32) {
      append_bytes(out, std::bit_cast<uint32_t>(value), 4);
    } else if (dtype == bf16) {
      append_bytes(out, BFloat16(value).bits, 2);
    } else {
      const Float16 half(value);
      if (!std::isfinite(static_cast<float>(half)))
        throw_error("export: \"{}\" has the value {}, which f16 cannot represent; choose bf16 or f32", name, value);
      append_bytes(out, half.bits, 2);
    }
  }
  return out;
}

void write_weights(FileSystem& files, const std::string& path, const std::vector<detail::HfSlot>& slots, DType dtype) {
  std::vector<detail::SafetensorsEntry> entries;
  int64_t offset = 0;
  for (const detail::HfSlot& slot : slots) {
    entries.push_back({slot.name, {dtype, slot.shape}, offset});
    offset = entries.back().end();
  }
  const std::string header = detail::encode_safetensors(entries, {{"format", "pt"}});
  const std::unique_ptr<FileWriter> writer = files.create(path);
  writer->write({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
  for (const detail::HfSlot& slot : slots) {
    const std::vector<float> values = slot.leaf ? copy_to_tensor(slot, slot.leaf->data<float>())
                                                : std::vector<float>(static_cast<size_t>(count(slot.shape)));
    writer->write(encode_elements(values, dtype, slot.name));
  }
  writer->finish();
}

// A folder beside the final one. The destructor removes it unless it was installed.
class StagedFolder {
 public:
  StagedFolder(FileSystem& files, const std::string& dir)
      : files_(files), dir_(dir), path_(fmt::format("{}.tmp-{}", dir, getpid())) {
    files_.remove_tree(path_);
    files_.make_dirs(path_);
  }
  ~StagedFolder() {
    if (installed_) return;
    try {
      files_.remove_tree(path_);
    } catch (const IoError&) {  // the error that brought us here is reported
    }
  }
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) {
    files_.write(path_ + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  void install() {
    files_.sync_dir(path_);
    files_.rename(path_, dir_);
    installed_ = true;
    files_.sync_dir(parent_dir(dir_));
  }

 private:
  FileSystem& files_;
  std::string dir_, path_;
  bool installed_ = false;
};

std::string without_slashes(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

}  // namespace

HfModel load_hf(const std::string& dir, const HfLoadOptions& options) {
  FileSystem& files = FileSystem::real();
  const std::string config_path = dir + "/config.json";
  if (!files.exists(dir)) throw_error("import: {} does not exist; give the folder of a Hugging Face model", dir);
  if (!files.exists(config_path))
    throw_error("import: {} has no config.json; give the folder of a Hugging Face model", dir);
  if (options.context < 0) throw_error("import: the context is {}; give at least 1", options.context);
  const std::vector<uint8_t> text = files.read_file(config_path, kMaxConfigBytes);
  const detail::HfConfig config = detail::parse_hf_config(text_view(text), config_path, options.context);
  detail::HfTensors tensors(files, dir);
  HfModel out;
  out.config = config.model;
  out.params = read_params(tensors, config, config_path);
  read_tokenizer(dir, out);
  return out;
}

void save_hf(const std::string& dir, const GptConfig& config, const Gpt& params, const HfSaveOptions& options) {
  check(config);
  if (dir.empty()) throw_error("export: the name of the folder is empty; give one");
  if (options.dtype != f32 && options.dtype != bf16 && options.dtype != f16)
    throw_error("export: the element type is {}; choose f32, bf16 or f16", name(options.dtype));
  FileSystem& files = options.files ? *options.files : FileSystem::real();
  const std::string folder = without_slashes(dir);
  if (files.exists(folder) && !files.list(folder).empty())
    throw_error("export: the folder {} is not empty; choose another one, or remove it", folder);
  const detail::HfFamily family = detail::hf_family(config);
  check_gpt_params("export", config, params);
  Gpt copy = tree_map([](const Array& a) { return astype(a, f32); }, params);
  const std::vector<detail::HfSlot> slots = detail::hf_slots(config, family, detail::hf_prefix(family), copy);
  StagedFolder staged(files, folder);
  write_weights(files, staged.path() + "/model.safetensors", slots, options.dtype);
  if (const Tokenizer* tokenizer = options.tokenizer) {
    staged.write("tokenizer.json", detail::encode_hf_tokenizer(*tokenizer));
    staged.write("tokenizer_config.json", detail::encode_tokenizer_config(*tokenizer, config.context));
    if (tokenizer->name() == "bytes" || tokenizer->name() == "chars") staged.write(kOwnTokenizer, tokenizer->to_json());
  }
  staged.write("generation_config.json", detail::encode_generation_config(options.tokenizer));
  staged.write("config.json", detail::encode_hf_config(config, family, options.dtype, options.tokenizer));
  staged.install();
}

}  // namespace lockstep
