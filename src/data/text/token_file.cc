#include "data/text/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace lockstep::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr uint32_t kMagic16 = 20240520, kVersion16 = 1;
constexpr uint32_t kMagic32 = 20240801, kVersion32 = 7;
constexpr int64_t kMaxIds16 = 1 << 16;

// Other files that could be taken for flat ids by mistake, by their first bytes: at least four, because flat ids may
// start with any two.
struct OtherFormat {
  std::string_view bytes;
  const char* name;
};
using namespace std::string_view_literals;
constexpr OtherFormat kOtherFormats[] = {
    {"\x1f\x8b\x08\x00"sv, "gzip: run `gunzip -k` on it"},
    {"\x1f\x8b\x08\x08"sv, "gzip: run `gunzip -k` on it"},
    {"PK\x03\x04"sv, "a zip archive"},
    {"\x93NUMPY"sv, "a .npy file: write its numbers with ids.astype('uint16').tofile(FILE)"},
    {"GGUF"sv, "a GGUF model"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"\x89PNG"sv, "a PNG image"},
    {"%PDF"sv, "a PDF document"},
    {"\xc6\xd7\x34\x01"sv, "a model of llm.c"},
    {"\x8a\xd8\x34\x01"sv, "an evaluation set of llm.c"},
    {"\x8f\xd8\x34\x01"sv, "a training state of llm.c"},
    {"\x01\x34\xd8\x88"sv, "a big-endian token file"},
    {"\x01\x34\xd9\xa1"sv, "a big-endian token file"},
};

void reject_other_formats(const std::string& path, std::string_view start) {
  for (const OtherFormat& other : kOtherFormats)
    if (start.starts_with(other.bytes))
      throw_error("tokens: {} is not a token file but {}; give a file of token ids, or text with text:FILE", path,
                  other.name);
}

// Whether the start of a file is plain text. Ids of 16 bits have other bytes: the upper halves of small ones are 0.
bool looks_like_text(std::span<const uint8_t> start) {
  constexpr size_t kLeast = 64;
  return start.size() >= kLeast && std::ranges::all_of(start, [](uint8_t c) {
           return (c >= ' ' && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
         });
}

TokenLayout header_layout(const std::string& path, const std::array<uint32_t, 4>& header, int64_t size) {
  const bool wide = header[0] == kMagic32;
  const uint32_t version = wide ? kVersion32 : kVersion16;
  if (header[1] != version)
    throw_error("tokens: {} has version {} of the format with magic {}; version {} is supported", path, header[1],
                header[0], version);
  TokenLayout layout{.begin = kHeaderBytes, .width = wide ? 4 : 2};
  const uint64_t declared = uint64_t{header[3]} << 32 | header[2];
  if (size < kHeaderBytes)
    throw_error("tokens: {} ends after {} of the {} bytes of its header; copy the file again", path, size,
                kHeaderBytes);
  const int64_t bytes = size - kHeaderBytes;
  if (bytes % layout.width != 0 || declared != static_cast<uint64_t>(bytes / layout.width))
    throw_error("tokens: {} declares {} tokens, but {} bytes follow its header, {} for each token; copy the file again",
                path, declared, bytes, layout.width);
  if (declared == 0) throw_error("tokens: {} has no tokens; give a file with tokens", path);
  layout.count = bytes / layout.width;
  return layout;
}

}  // namespace

TokenLayout read_token_layout(const std::string& path, FileSystem& files) {
  const int64_t size = files.size(path);
  if (size == 0) throw_error("tokens: {} is empty; give a file with tokens", path);
  std::array<uint32_t, 4> header = {};
  const size_t got = files.read(path, 0, {reinterpret_cast<uint8_t*>(header.data()), sizeof(header)});
  reject_other_formats(path, {reinterpret_cast<const char*>(header.data()), got});
  if (got >= sizeof(header[0]) && (header[0] == kMagic16 || header[0] == kMagic32))
    return header_layout(path, header, size);
  std::array<uint8_t, 256> start;
  if (looks_like_text(std::span(start).first(files.read(path, 0, start))))
    throw_error("tokens: {} is a text file; give it as text:{}, or tokenize it with `lockstep data tokenize`", path,
                path);
  if (size % 2 != 0)
    throw_error(
        "tokens: {} has {} bytes, an odd number, so it has no 16-bit tokens; give a token file of nanoGPT, llm.c or "
        "`lockstep data tokenize`, or text with text:FILE",
        path, size);
  return {.begin = 0, .count = size / 2, .width = 2};
}

TokenFile::TokenFile(std::string path, FileSystem& files)
    : path_(std::move(path)), layout_(read_token_layout(path_, files)), file_(files.open(path_)) {}

void TokenFile::read(int64_t begin, std::span<int32_t> out, int64_t vocabulary) const {
  const int64_t end = begin + std::ssize(out);
  LOCKSTEP_CHECK(begin >= 0 && end <= count(), "tokens {} to {} of {}", begin, end, count());
  constexpr int64_t kPiece = 4096;
  std::array<uint16_t, kPiece> narrow;
  for (int64_t at = begin; at < end; at += kPiece) {
    const std::span<int32_t> ids =
        out.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(std::min(kPiece, end - at)));
    if (layout_.width == 4) {
      read_bytes(at, ids.size_bytes(), ids.data());
    } else {
      read_bytes(at, ids.size() * sizeof(uint16_t), narrow.data());
      std::copy_n(narrow.begin(), ids.size(), ids.begin());
    }
    check_ids(ids, vocabulary, path_, at);
  }
}

void TokenFile::read_bytes(int64_t at, size_t size, void* out) const {
  if (file_->read(layout_.begin + at * layout_.width, {static_cast<uint8_t*>(out), size}) < size)
    throw IoError(
        fmt::format("read {}: it ends before token {} of {} although it was complete when opened; do not change the "
                    "file while it is in use",
                    path_, at + static_cast<int64_t>(size) / layout_.width - 1, count()));
}

int64_t TokenFile::largest(int64_t begin, int64_t end) const {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> ids(static_cast<size_t>(std::clamp<int64_t>(end - begin, 0, kPiece)));
  int64_t out = -1;
  for (int64_t at = begin; at < end; at += kPiece) {
    const std::span<int32_t> piece = std::span(ids).first(static_cast<size_t>(std::min(kPiece, end - at)));
    read(at, piece, kMaxTokenVocabulary);
    out = std::max<int64_t>(out, *std::max_element(piece.begin(), piece.end()));
  }
  return out;
}

void check_ids(std::span<const int32_t> ids, int64_t vocabulary, const std::string& where, int64_t first) {
  uint32_t most = 0;  // as unsigned numbers, negative ids are the largest
  for (const int32_t id : ids) most = std::max(most, static_cast<uint32_t>(id));
  if (most < static_cast<uint64_t>(vocabulary)) return;
  for (size_t i = 0; i < ids.size(); ++i)
    if (const auto id = static_cast<uint32_t>(ids[i]); id >= static_cast<uint64_t>(vocabulary))
      throw_error(
          "tokens: {} has token {} at position {}, but the vocabulary has {} tokens; use the tokenizer or vocabulary "
          "that the file was made with",
          where, id, first + static_cast<int64_t>(i), vocabulary);
}

TokenFileWriter::TokenFileWriter(std::string path, int64_t vocabulary, FileSystem& files)
    : path_(std::move(path)), vocabulary_(vocabulary), files_(files) {
  LOCKSTEP_CHECK(vocabulary >= 1 && vocabulary <= kMaxTokenVocabulary, "a vocabulary of {} tokens", vocabulary);
  std::random_device random;  // several processes may write the same file
  const std::string unique = fmt::format("{}.{:08x}{:08x}", path_, random(), random());
  ids_path_ = unique + ".ids.tmp";
  whole_path_ = unique + ".tmp";
  ids_ = files_.create(ids_path_);
}

TokenFileWriter::~TokenFileWriter() {
  ids_.reset();
  for (const std::string& path : {ids_path_, whole_path_}) {
    try {
      files_.remove(path);
    } catch (const IoError&) {  // the first failure is the one to report
    }
  }
}

void TokenFileWriter::append(std::span<const int32_t> ids) {
  check_ids(ids, vocabulary_, path_, count_);
  if (vocabulary_ > kMaxIds16) {
    const auto bytes = std::as_bytes(ids);
    ids_->write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  } else {
    buffer_.resize(ids.size() * 2);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<uint16_t>(ids[i]);
      std::memcpy(&buffer_[2 * i], &id, sizeof(id));
    }
    ids_->write(buffer_);
  }
  count_ += std::ssize(ids);
}

void TokenFileWriter::copy_ids(FileWriter& to) {
  const std::unique_ptr<OpenFile> from = files_.open(ids_path_);
  buffer_.resize(1 << 20);
  for (int64_t at = 0;;) {
    const size_t n = from->read(at, buffer_);
    if (n == 0) return;
    to.write(std::span(buffer_).first(n));
    at += static_cast<int64_t>(n);
  }
}

void TokenFileWriter::finish() {
  ids_->finish();
  const bool wide = vocabulary_ > kMaxIds16;
  std::array<uint32_t, kHeaderBytes / 4> header = {};
  header[0] = wide ? kMagic32 : kMagic16;
  header[1] = wide ? kVersion32 : kVersion16;
  header[2] = static_cast<uint32_t>(count_);
  header[3] = static_cast<uint32_t>(count_ >> 32);
  const std::unique_ptr<FileWriter> whole = files_.create(whole_path_);
  whole->write({reinterpret_cast<const uint8_t*>(header.data()), sizeof(header)});
  copy_ids(*whole);
  whole->finish();
  files_.rename(whole_path_, path_);
  files_.sync_dir(parent_dir(path_));
  files_.remove(ids_path_);
}

void write_token_file(const std::string& path, std::span<const int32_t> ids, int64_t vocabulary, FileSystem& files) {
  TokenFileWriter writer(path, vocabulary, files);
  writer.append(ids);
  writer.finish();
}

}  // namespace lockstep::detail
