#include "lockstep/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "data/dataset.h"
#include "data/text/text_documents.h"
#include "data/text/text_encode.h"
#include "data/text/text_spec.h"
#include "data/text/token_file.h"

namespace lockstep {
namespace detail {
namespace {

constexpr int64_t kMostResident = int64_t{1} << 27;  // bytes of text, or tokens

// The tokens of a data set, or of a part of it: in memory, or a range of a token file.
struct TokenSet {
  std::string name;
  std::vector<int32_t> ids = {};
  std::string path = {};  // empty: in memory
  TokenRange range = {};  // in memory: all ids

  int64_t count() const { return range.end - range.begin; }
};

TokenSet in_memory(std::string name, std::vector<int32_t> ids) {
  const TokenRange range{0, std::ssize(ids)};
  return {.name = std::move(name), .ids = std::move(ids), .range = range};
}

// Splits off the last part. The number of training tokens is rounded down.
std::pair<TokenSet, TokenSet> split_tokens(TokenSet whole, double share) {
  const int64_t train = static_cast<int64_t>(std::floor(static_cast<double>(whole.count()) * (1 - share)));
  TokenSet rest{.name = "the validation part of " + whole.name, .path = whole.path};
  if (whole.path.empty()) {
    rest = in_memory(rest.name, {whole.ids.begin() + train, whole.ids.end()});
    whole.ids.resize(static_cast<size_t>(train));
    whole.range = {0, train};
  } else {
    rest.range = {whole.range.begin + train, whole.range.end};
    whole.range.end = rest.range.begin;
  }
  whole.name = "the training part of " + whole.name;
  return {std::move(whole), std::move(rest)};
}

// Calls f with all ids of a set, in pieces.
template <class F>
void for_each_part(const TokenSet& set, int64_t vocabulary, const F& f) {
  if (set.path.empty()) return f(std::span<const int32_t>(set.ids));
  constexpr int64_t kPart = 1 << 20;
  const TokenFile file(set.path);
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kPart, set.count())));
  for (int64_t at = set.range.begin; at < set.range.end; at += kPart) {
    const std::span<int32_t> part = std::span(ids).first(static_cast<size_t>(std::min(kPart, set.range.end - at)));
    file.read(at, part, vocabulary);
    f(std::span<const int32_t>(part));
  }
}

// Mean bytes of the tokens after the first one, which is no target.
double mean_bytes(const TokenSet& set, const Tokenizer& tokenizer, int64_t vocabulary) {
  std::vector<int64_t> sizes(static_cast<size_t>(vocabulary));
  for (int64_t id = 0; id < tokenizer.vocabulary(); ++id)
    sizes[static_cast<size_t>(id)] = std::ssize(tokenizer.token_bytes(static_cast<int32_t>(id)));
  if (const std::optional<int32_t> end = tokenizer.end_of_text()) sizes[static_cast<size_t>(*end)] = 0;
  int64_t bytes = 0, first = -1;
  for_each_part(set, vocabulary, [&](std::span<const int32_t> ids) {
    if (first < 0 && !ids.empty()) first = sizes[static_cast<size_t>(ids[0])];
    for (const int32_t id : ids) bytes += sizes[static_cast<size_t>(id)];
  });
  return static_cast<double>(bytes - first) / static_cast<double>(set.count() - 1);
}

SourcePtr source_of(TokenSet set, const TokenWindows& windows) {
  if (set.path.empty()) return token_source(std::move(set.ids), windows, set.name);
  return token_file_source(set.path, windows, set.range, set.name);
}

// Makes the sources. `own` is the validation set if the data set has its own.
TextData finish(TokenSet tokens, std::optional<TokenSet> own, TokenizerPtr tokenizer, int64_t vocabulary,
                const TextDataOptions& options) {
  TextData out{.tokenizer = std::move(tokenizer), .vocabulary = vocabulary, .streamed = !tokens.path.empty()};
  if (!own && options.validation > 0) std::tie(tokens, own) = split_tokens(std::move(tokens), options.validation);
  TokenWindows windows{.context = options.context, .seed = options.seed, .vocabulary = vocabulary};
  out.train_tokens = tokens.count();
  out.train = source_of(std::move(tokens), windows);
  if (!own) return out;
  out.validation_tokens = own->count();
  if (own->count() < 2)
    throw_error("text: {} has {} tokens, but a prediction needs at least 2; give more text or a larger share",
                own->name, own->count());
  if (out.tokenizer) out.bytes_per_token = mean_bytes(*own, *out.tokenizer, vocabulary);
  windows.shuffle_offset = false;
  out.validation = source_of(std::move(*own), windows);
  return out;
}

// The vocabulary of a tokenizer, or the larger one of the options.
int64_t vocabulary_of(const Tokenizer& tokenizer, const TextDataOptions& options) {
  if (options.vocabulary == 0) return tokenizer.vocabulary();
  if (options.vocabulary < tokenizer.vocabulary())
    throw_error("text: a vocabulary of {} tokens, but the tokenizer {} has {}; use at least as many, or 0",
                options.vocabulary, tokenizer.name(), tokenizer.vocabulary());
  return options.vocabulary;
}

// Loads a tokenizer. The folder of the options is that of the data set.
TokenizerPtr load_with(const std::string& spec, std::string_view corpus, const TextDataOptions& options) {
  TokenizerOptions out{.corpus = corpus, .data = options.data};
  out.data.dir.clear();
  return load_tokenizer(spec, out);
}

TokenSet memory_tokens(const TextDocuments& documents, const Tokenizer& tokenizer, const std::string& name,
                       const TextDataOptions& options) {
  std::vector<int32_t> ids;
  encode_documents(documents, tokenizer, options.threads,
                   [&](std::span<const int32_t> piece) { ids.insert(ids.end(), piece.begin(), piece.end()); });
  return in_memory(name, std::move(ids));
}

// The number of tokens of a file in the cache; empty if it does not exist or is damaged.
std::optional<int64_t> cached_count(const std::string& path) {
  if (!FileSystem::real().exists(path)) return {};
  try {
    return read_token_layout(path).count;
  } catch (const Error&) {
    return {};
  }
}

void note_text(const TextDataOptions& options, const std::string& text) {
  if (options.data.progress) {
    options.data.progress({.kind = DataEvent::Kind::note, .text = text});
  } else {
    print_stderr("lockstep: {}\n", text);
  }
}

// The tokens as a file of the cache, which is written if it does not exist.
TokenSet cached_tokens(const TextDocuments& documents, const Tokenizer& tokenizer, const std::string& name,
                       const TextDataOptions& options) {
  const std::string folder = cache_folder("tokens", options.data);
  if (folder.empty())
    throw_error(
        "text: streaming {} needs a folder for its tokens, but $HOME, $XDG_CACHE_HOME and $LOCKSTEP_CACHE_DIR are not "
        "set; set one of them, or keep the text in memory",
        name);
  Sha256 digest;
  digest.update(text_bytes("tokens 1\n"));  // changes whenever the same text and tokenizer give other tokens
  digest.update(text_bytes(tokenizer.to_json()));
  add_documents(documents, digest);
  const std::string path = fmt::format("{}/{}.tokens", folder, digest.hex());
  std::optional<int64_t> count = cached_count(path);
  if (!count) {
    note_text(options, fmt::format("tokenizing {:.1f} MB of {} with {} into {}",
                                   static_cast<double>(total_bytes(documents)) / 1e6, name, tokenizer.name(), path));
    FileSystem::real().make_dirs(folder);
    TokenFileWriter writer(path, tokenizer.vocabulary());
    encode_documents(documents, tokenizer, options.threads, [&](std::span<const int32_t> ids) { writer.append(ids); });
    writer.finish();
    count = writer.count();
  }
  return {.name = name, .path = path, .range = {0, *count}};
}

TextData open_documents(const TextSpec& spec, const TextDataOptions& options) {
  const TextDocuments train =
      spec.kind == TextSpec::Kind::named ? load_documents(spec.train, options.data) : find_documents(spec.train);
  std::optional<TextDocuments> own;
  if (!spec.validation.empty()) own = find_documents(spec.validation);
  TextDocuments all = train;
  if (own) all.insert(all.end(), own->begin(), own->end());
  const std::string kind = options.tokenizer.empty() ? "bytes" : options.tokenizer;
  std::string corpus;
  if (kind == "chars") corpus = distinct_characters(all) + (all.size() > 1 ? "\n" : "");
  const TokenizerPtr tokenizer = load_with(kind, corpus, options);
  const int64_t vocabulary = vocabulary_of(*tokenizer, options);
  const bool stream = options.stream == "on" || (options.stream == "auto" && total_bytes(all) > kMostResident);
  const auto tokens_of = [&](const TextDocuments& documents, const std::string& name) {
    return stream ? cached_tokens(documents, *tokenizer, name, options)
                  : memory_tokens(documents, *tokenizer, name, options);
  };
  std::optional<TokenSet> own_tokens;
  if (own) own_tokens = tokens_of(*own, "the validation set of " + options.dataset);
  return finish(tokens_of(train, options.dataset), std::move(own_tokens), tokenizer, vocabulary, options);
}

TokenSet open_token_file(const std::string& path, bool stream, int64_t vocabulary) {
  const TokenFile file(path);
  if (stream) return {.name = path, .path = path, .range = {0, file.count()}};
  std::vector<int32_t> ids(static_cast<size_t>(file.count()));
  file.read(0, ids, vocabulary);
  return in_memory(path, std::move(ids));
}

// The tokenizer that `lockstep data tokenize` writes beside a token file: train.tokenizer.json for train.bin. Empty if
// there is none.
std::string tokenizer_beside(const std::string& path) {
  std::string out = std::filesystem::path(path).replace_extension(".tokenizer.json").string();
  return FileSystem::real().exists(out) ? out : "";
}

TextData open_tokens(const TextSpec& spec, const TextDataOptions& options) {
  if (options.tokenizer == "chars")
    throw_error("text: {} has token ids, not characters; give the file of the tokenizer that made them",
                options.dataset);
  const std::string chosen = options.tokenizer.empty() ? tokenizer_beside(spec.train) : options.tokenizer;
  const TokenizerPtr tokenizer = chosen.empty() ? nullptr : load_with(chosen, {}, options);
  int64_t vocabulary = tokenizer ? vocabulary_of(*tokenizer, options) : options.vocabulary, count = 0, largest = -1;
  for (const std::string& path : {spec.train, spec.validation}) {
    if (path.empty()) continue;
    const TokenFile file(path);
    count += file.count();
    if (vocabulary == 0) largest = std::max(largest, file.largest(0, file.count()));
  }
  if (vocabulary == 0) vocabulary = largest + 1;
  const bool stream = options.stream == "on" || (options.stream == "auto" && count > kMostResident);
  std::optional<TokenSet> own;
  if (!spec.validation.empty()) own = open_token_file(spec.validation, stream, vocabulary);
  return finish(open_token_file(spec.train, stream, vocabulary), std::move(own), tokenizer, vocabulary, options);
}

void check_text_options(const TextDataOptions& options, const TextSpec& spec) {
  if (spec.kind != TextSpec::Kind::named && !options.data.dir.empty())
    throw_error("text: {} is given by its path, so the folder {} has no effect; remove the folder setting",
                options.dataset, options.data.dir);
  if (!(options.validation >= 0 && options.validation < 1))
    throw_error("text: a validation share of {}; use 0 (none) or more, below 1", options.validation);
  if (options.stream != "auto" && options.stream != "on" && options.stream != "off")
    throw_error("text: stream is \"{}\"; use auto, on or off", options.stream);
  if (options.vocabulary < 0 || options.vocabulary > kMaxTokenVocabulary)
    throw_error("text: a vocabulary of {} tokens; use 0 to {}", options.vocabulary, kMaxTokenVocabulary);
}

}  // namespace
}  // namespace detail

TextData open_text_data(const TextDataOptions& options) {
  const detail::TextSpec spec = detail::parse_text_spec(options.dataset);
  detail::check_text_options(options, spec);
  return spec.kind == detail::TextSpec::Kind::tokens ? detail::open_tokens(spec, options)
                                                     : detail::open_documents(spec, options);
}

}  // namespace lockstep
