// Token files: sequences of token ids on disk, little-endian, in one of these forms.
//
//   flat        16-bit ids and nothing else, as nanoGPT writes them
//   16 bits     a header of 256 32-bit integers (magic 20240520, version 1, number of ids), then 16-bit ids, as llm.c
//               writes them
//   32 bits     the same header with magic 20240801 and version 7, then 32-bit ids, as llm.c writes them for large
//               vocabularies
//
// A number of ids above 2^32 - 1 has its upper half in the fourth integer of the header. Input is not trusted: the
// declared number is compared with the size of the file. Ids are read with pread and not through mmap: a file that
// shrinks while it is in use is then an error and not a signal that ends the process. Reading a window takes about a
// microsecond if the page cache has it.
//
// A TokenFile is safe from any thread, a TokenFileWriter is not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

struct TokenLayout {
  int64_t begin = 0;  // bytes before the first id
  int64_t count = 0;  // number of ids
  int64_t width = 2;  // bytes of an id: 2 or 4
};

// Reads the header, if there is one, and checks it against the size of the file. Throws Error when the file is empty,
// has half an id at its end, is a file of another kind, or does not have the declared number of ids. Throws IoError
// when it cannot be read.
TokenLayout read_token_layout(const std::string& path, FileSystem& files = FileSystem::real());

class TokenFile {
 public:
  // Throws as read_token_layout() does. REQUIRES: the file system outlives the object.
  explicit TokenFile(std::string path, FileSystem& files = FileSystem::real());

  const std::string& path() const { return path_; }
  int64_t count() const { return layout_.count; }
  int64_t width() const { return layout_.width; }

  // Reads the ids from position `begin` on. Throws IoError when the file has become shorter, and Error, naming the
  // position, for an id that is not below the vocabulary. REQUIRES: the range is within the file.
  void read(int64_t begin, std::span<int32_t> out, int64_t vocabulary) const;

  // The largest id of the range [begin, end), which is read completely; -1 for an empty range.
  int64_t largest(int64_t begin, int64_t end) const;

 private:
  // Reads bytes from the position of an id on.
  void read_bytes(int64_t at, size_t size, void* out) const;

  std::string path_;
  TokenLayout layout_;
  std::unique_ptr<OpenFile> file_;
};

// Throws Error, naming the position, for the first id that is not in [0, vocabulary). `first` is the position of
// ids[0].
void check_ids(std::span<const int32_t> ids, int64_t vocabulary, const std::string& where, int64_t first = 0);

// The largest number of different ids that a token file can have.
inline constexpr int64_t kMaxTokenVocabulary = int64_t{1} << 31;

// Writes a token file with a header: 16-bit ids if the vocabulary allows them. Nothing is visible under the path before
// finish(). The number of ids comes first in the file but is known last, so ids go to a temporary file beside it.
class TokenFileWriter {
 public:
  // Throws IoError when the file cannot be created. REQUIRES: 1 <= vocabulary <= kMaxTokenVocabulary, and the folder
  // exists.
  TokenFileWriter(std::string path, int64_t vocabulary, FileSystem& files = FileSystem::real());
  // Removes the temporary files if finish() was not called or failed.
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // Throws Error for an id outside the vocabulary, IoError when the disk is full.
  void append(std::span<const int32_t> ids);
  int64_t count() const { return count_; }

  // Replaces the file atomically. Throws IoError. REQUIRES: called once, as the last call.
  void finish();

 private:
  void copy_ids(FileWriter& to);

  std::string path_, ids_path_, whole_path_;
  int64_t vocabulary_;
  FileSystem& files_;
  std::unique_ptr<FileWriter> ids_;
  std::vector<uint8_t> buffer_;
  int64_t count_ = 0;
};

// Writes all ids at once. Throws as TokenFileWriter does.
void write_token_file(const std::string& path, std::span<const int32_t> ids, int64_t vocabulary,
                      FileSystem& files = FileSystem::real());

}  // namespace lockstep::detail
