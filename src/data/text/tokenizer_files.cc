#include "data/text/tokenizer_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "base/check.h"
#include "data/text/text_encode.h"
#include "data/text/token_file.h"
#include "lockstep/text_data.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kMaxFlatVocabulary = 1 << 16;

// A token file that is written piece by piece and appears under its path at the end.
class TokenOutput {
 public:
  virtual ~TokenOutput() = default;
  virtual void append(std::span<const int32_t> ids) = 0;
  virtual int64_t count() const = 0;
  virtual void finish() = 0;
};

class FlatOutput final : public TokenOutput {
 public:
  FlatOutput(std::string path, int64_t vocabulary, FileSystem& files) : path_(std::move(path)), files_(files) {
    LOCKSTEP_CHECK(vocabulary <= kMaxFlatVocabulary, "a vocabulary of {} tokens", vocabulary);
    std::random_device random;  // several processes may write the same file
    partial_path_ = fmt::format("{}.{:08x}{:08x}.tmp", path_, random(), random());
    writer_ = files_.create(partial_path_);
  }
  ~FlatOutput() override {
    writer_.reset();
    try {
      files_.remove(partial_path_);
    } catch (const IoError&) {  // the first failure is the one to report
    }
  }
  void append(std::span<const int32_t> ids) override {
    buffer_.resize(ids.size() * 2);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<uint16_t>(ids[i]);
      std::memcpy(&buffer_[2 * i], &id, sizeof(id));
    }
    writer_->write(buffer_);
    count_ += std::ssize(ids);
  }
  int64_t count() const override { return count_; }
  void finish() override {
    writer_->finish();
    files_.rename(partial_path_, path_);
    files_.sync_dir(parent_dir(path_));
  }

 private:
  std::string path_, partial_path_;
  FileSystem& files_;
  std::unique_ptr<FileWriter> writer_;
  std::vector<uint8_t> buffer_;
  int64_t count_ = 0;
};

class HeaderOutput final : public TokenOutput {
 public:
  HeaderOutput(const std::string& path, int64_t vocabulary, FileSystem& files) : writer_(path, vocabulary, files) {}
  void append(std::span<const int32_t> ids) override { writer_.append(ids); }
  int64_t count() const override { return writer_.count(); }
  void finish() override { writer_.finish(); }

 private:
  TokenFileWriter writer_;
};

std::unique_ptr<TokenOutput> open_output(const std::string& path, TokenFormat format, int64_t vocabulary,
                                         FileSystem& files) {
  if (format == TokenFormat::flat) return std::make_unique<FlatOutput>(path, vocabulary, files);
  return std::make_unique<HeaderOutput>(path, vocabulary, files);
}

// Counts the bytes of text that ids stand for. Tokens that separate documents have none.
class TextMeter {
 public:
  explicit TextMeter(const Tokenizer& tokenizer) : sizes_(static_cast<size_t>(tokenizer.vocabulary())) {
    for (size_t id = 0; id < sizes_.size(); ++id)
      sizes_[id] = static_cast<int64_t>(tokenizer.token_bytes(static_cast<int32_t>(id)).size());
    if (const auto end = tokenizer.end_of_text()) sizes_[static_cast<size_t>(*end)] = 0;
  }
  // Adds ids until this many bytes are reached; returns the number of ids.
  size_t add(std::span<const int32_t> ids, int64_t limit) {
    size_t n = 0;
    while (n < ids.size() && bytes_ < limit) bytes_ += sizes_[static_cast<size_t>(ids[n++])];
    return n;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<int64_t> sizes_;
  int64_t bytes_ = 0;
};

void check_has_tokens(const TokenOutput& output, const std::string& path) {
  if (output.count() == 0)
    throw_error("tokenize: {} would have no tokens; give more text, or another share for the validation set", path);
}

}  // namespace

TextDocuments gather_documents(const std::vector<std::string>& inputs, const DataOptions& options) {
  TextDocuments all;
  for (const std::string& input : inputs) {
    const bool is_named = is_text_dataset(input) && input.find(':') == input.npos;
    TextDocuments found =
        is_named && !FileSystem::real().exists(input) ? load_documents(input, options) : find_documents(input);
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

std::string validation_path(const std::string& output) {
  const std::filesystem::path path(output);
  const std::string stem = path.stem().string();
  const std::string name = (stem == "train" ? "val" : stem + "_val") + path.extension().string();
  return (path.parent_path() / name).string();
}

TokenizeResult tokenize_documents(const TextDocuments& documents, const Tokenizer& tokenizer,
                                  const TokenizeOptions& options, FileSystem& files) {
  if (options.format == TokenFormat::flat && tokenizer.vocabulary() > kMaxFlatVocabulary)
    throw_error(
        "tokenize: the tokenizer {} has {} tokens, but files of nanoGPT have 16-bit ids, at most {}; use the format "
        "llmc",
        tokenizer.name(), tokenizer.vocabulary(), kMaxFlatVocabulary);
  if (!(options.validation >= 0 && options.validation < 1))
    throw_error("tokenize: the share of the validation set is {}; it must be from 0 to below 1", options.validation);
  const bool has_validation = options.validation > 0;
  const std::string second_path = validation_path(options.output);
  const auto first = open_output(options.output, options.format, tokenizer.vocabulary(), files);
  const auto second =
      has_validation ? open_output(second_path, options.format, tokenizer.vocabulary(), files) : nullptr;
  const auto limit = has_validation
                         ? static_cast<int64_t>(static_cast<double>(total_bytes(documents)) * (1 - options.validation))
                         : std::numeric_limits<int64_t>::max();
  TextMeter meter(tokenizer);
  encode_documents(
      documents, tokenizer, options.threads,
      [&](std::span<const int32_t> ids) {
        const size_t n = meter.add(ids, limit);
        first->append(ids.first(n));
        if (n < ids.size()) {
          second->append(ids.subspan(n));
          meter.add(ids.subspan(n), std::numeric_limits<int64_t>::max());
        }
        if (options.progress) options.progress(meter.bytes());
      },
      files);
  check_has_tokens(*first, options.output);
  if (second) check_has_tokens(*second, second_path);
  first->finish();
  if (second) second->finish();
  return {first->count(), second ? second->count() : 0};
}

TokenizerPtr train_on_documents(const TextDocuments& documents, int64_t vocabulary, const std::string& name,
                                FileSystem& files) {
  std::vector<std::string> texts;
  TextPieces pieces(documents, files);
  for (TextPiece piece; pieces.next(piece);) texts.push_back(std::move(piece.text));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return train_tokenizer(views, vocabulary, name);
}

}  // namespace lockstep::detail
