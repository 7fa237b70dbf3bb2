#include "data/text/text_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/text_bytes.h"
#include "data/dataset.h"
#include "data/text/unicode.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20, kMostPieceBytes = size_t{16} << 20;
// Text after a boundary that must be in memory to decide whether it is one.
constexpr size_t kLookahead = 8;

bool is_text_name(const fs::path& path) { return path.extension() == ".txt" || path.extension() == ".md"; }

// The text files of a folder, ordered by path.
std::vector<fs::path> text_files(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> out;
  fs::recursive_directory_iterator entries(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entries != end; entries.increment(error)) {
    std::error_code ignored;  // an entry that cannot be examined, such as a broken link, is no text file
    const bool hidden = entries->path().filename().string().starts_with('.');
    if (hidden && entries->is_directory(ignored)) entries.disable_recursion_pending();
    if (!hidden && is_text_name(entries->path()) && fs::is_regular_file(entries->path(), ignored))
      out.push_back(entries->path());
  }
  if (error) throw_io_error("list", folder, error.value());
  std::sort(out.begin(), out.end());
  return out;
}

bool is_space(uint32_t code) { return (UnicodeClasses::get()[code] & kSpace) != 0; }

// Whether tokens of words do not cross position i: before the space of "a b", after the newline of "a\nb".
bool is_word_boundary(std::string_view text, size_t i) {
  const char *begin = text.data(), *end = begin + text.size();
  const size_t space = text[i] == ' ' ? i : i - 1;
  if (space == 0 || space + 1 >= text.size() || (text[space] != ' ' && text[space] != '\n')) return false;
  if (text[space] == ' ' && space != i) return false;
  return !is_space(character_before(begin, begin + space).code) && !is_space(character_at(begin + space + 1, end).code);
}

// Throws Error for a zero byte or a byte that is not UTF-8. `first` is the position of the text in the document.
void check_text(std::string_view text, const std::string& name, int64_t first) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Character c = character_at(at, end);
    if (c.code == Utf8Character::kInvalid || c.code == 0)
      throw_error(
          "text: {} is not text in UTF-8: byte 0x{:02x} at position {}; convert it, for example with `iconv -f LATIN1 "
          "-t UTF-8`, or give token ids with tokens:FILE",
          name, static_cast<unsigned char>(*at), first + (at - text.data()));
    at += c.size;
  }
}

}  // namespace

TextDocuments find_documents(const std::string& path, FileSystem& files) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw_io_error("open", path, error ? error.value() : ENOENT);
  if (!fs::is_directory(status)) {
    const int64_t size = files.size(path);
    if (size == 0) throw_error("text: {} is empty; give a file with text", path);
    return {{path, size}};
  }
  TextDocuments out;
  const std::vector<fs::path> found = text_files(path);
  for (const fs::path& each : found)
    if (const int64_t size = files.size(each.string()); size > 0) out.push_back({each.string(), size});
  if (found.empty())
    throw_error("text: the folder {} has no *.txt or *.md files; give a folder with text, or a file of any name", path);
  if (out.empty()) throw_error("text: all {} text files of {} are empty; give files with text", found.size(), path);
  return out;
}

TextDocuments load_documents(const std::string& name, const DataOptions& options) {
  const DatasetSpec& spec = find_dataset(name);
  DataEnvironment env{spec, default_sources(spec, options.allow_download)};
  const std::vector<FileContents> contents = read_files(env, options);
  TextDocuments out;
  for (size_t i = 0; i < contents.size(); ++i) {
    const std::vector<uint8_t>& bytes = contents[i].bytes;
    out.push_back({spec.name + "/" + spec.files[i].name, std::ssize(bytes),
                   std::make_shared<const std::string>(bytes.begin(), bytes.end())});
  }
  return out;
}

int64_t total_bytes(const TextDocuments& documents) {
  int64_t out = 0;
  for (const TextDocument& document : documents) out += document.size;
  return out;
}

size_t piece_end(std::string_view text, bool is_whole) {
  if (is_whole && text.size() <= kPieceBytes) return text.size();
  if (text.size() < kPieceBytes + (is_whole ? 0 : kLookahead)) return 0;
  for (size_t i = kPieceBytes; i > kPieceBytes / 2; --i)
    if (is_word_boundary(text, i)) return i;
  const size_t limit = std::min(text.size() - (is_whole ? 1 : kLookahead), kMostPieceBytes);
  for (size_t i = kPieceBytes + 1; i <= limit; ++i)
    if (is_word_boundary(text, i)) return i;
  if (is_whole && text.size() <= kMostPieceBytes) return text.size();
  if (text.size() < kMostPieceBytes + (is_whole ? 0 : kLookahead)) return 0;
  size_t end = kMostPieceBytes;
  while (end > kMostPieceBytes - 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return end;
}

void TextPieces::open_document() {
  const TextDocument& document = documents_[document_];
  file_ = document.contents ? nullptr : files_.open(document.name);
  open_ = true;
  at_end_ = false;
  offset_ = 0;
  buffer_.clear();
}

void TextPieces::fill(size_t size) {
  const size_t before = buffer_.size();
  if (at_end_ || before >= size) return;
  size_t got = 0;
  if (file_) {
    buffer_.resize(size);
    got = file_->read(offset_, {reinterpret_cast<uint8_t*>(buffer_.data()) + before, size - before});
    buffer_.resize(before + got);
  } else {
    const std::string_view rest =
        std::string_view(*documents_[document_].contents).substr(static_cast<size_t>(offset_));
    got = std::min(rest.size(), size - before);
    buffer_ += rest.substr(0, got);
  }
  offset_ += static_cast<int64_t>(got);
  at_end_ = got < size - before;
}

bool TextPieces::next(TextPiece& piece) {
  if (document_ >= documents_.size()) return false;
  if (!open_) open_document();
  size_t end = 0;
  for (size_t size = kPieceBytes + kLookahead; end == 0; size = std::min(4 * size, kMostPieceBytes + kLookahead)) {
    fill(size);
    if (buffer_.empty()) break;
    end = piece_end(buffer_, at_end_);
  }
  const int64_t first = offset_ - std::ssize(buffer_);
  piece = {.text = buffer_.substr(0, end), .document = document_, .ends_document = at_end_ && end == buffer_.size()};
  buffer_.erase(0, end);
  check_text(piece.text, documents_[document_].name, first);
  if (piece.ends_document) {
    ++document_;
    open_ = false;
  }
  return true;
}

std::string distinct_characters(const TextDocuments& documents, FileSystem& files) {
  std::vector<bool> seen(0x110000);
  TextPieces pieces(documents, files);
  for (TextPiece piece; pieces.next(piece);)
    for (const char *at = piece.text.data(), *end = at + piece.text.size(); at < end;) {
      const Utf8Character c = character_at(at, end);
      seen[c.code] = true;
      at += c.size;
    }
  std::string out;
  for (uint32_t code = 0; code < seen.size(); ++code)
    if (seen[code]) append_utf8(code, out);
  return out;
}

void add_documents(const TextDocuments& documents, Digest& digest, FileSystem& files) {
  std::vector<uint8_t> buffer(kPieceBytes);
  for (const TextDocument& document : documents) {
    digest.update(text_bytes(fmt::format("\ndocument {}\n", document.size)));
    if (document.contents) {
      digest.update(text_bytes(*document.contents));
      continue;
    }
    const std::unique_ptr<OpenFile> file = files.open(document.name);
    for (int64_t at = 0;;) {
      const size_t n = file->read(at, buffer);
      digest.update(std::span(buffer).first(n));
      at += static_cast<int64_t>(n);
      if (n < buffer.size()) break;
    }
  }
}

}  // namespace lockstep::detail
