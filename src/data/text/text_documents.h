// Documents of text: files of a folder or of a named data set, read in pieces so that memory stays bounded. Functions
// are safe from any thread; a TextPieces belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "lockstep/data.h"

namespace lockstep::detail {

struct TextDocument {
  std::string name;                                  // the path of the file
  int64_t size = 0;                                  // bytes
  std::shared_ptr<const std::string> contents = {};  // null: read from the file
};
using TextDocuments = std::vector<TextDocument>;

// The document of a file, or those of a folder: *.txt and *.md, recursively, ordered by path. Empty files and hidden
// ones are left out. Links to folders are not followed. Throws Error when there is no text, IoError when the path does
// not exist or cannot be read.
TextDocuments find_documents(const std::string& path, FileSystem& files = FileSystem::real());

// The documents of a named set, verified. Throws as load_dataset() does.
TextDocuments load_documents(const std::string& name, const DataOptions& options);

int64_t total_bytes(const TextDocuments& documents);

struct TextPiece {
  std::string text;
  size_t document = 0;  // its index
  bool ends_document = false;
};

// Cuts documents into pieces of about 1 MiB for tokenizers that work on words: a piece ends before the space between
// two words or after the newline between two lines. Text without such a place is cut between characters after 16 MiB.
// Where it is cut depends on the text only.
class TextPieces {
 public:
  // REQUIRES: the documents and the file system outlive this object.
  TextPieces(const TextDocuments& documents, FileSystem& files) : documents_(documents), files_(files) {}

  // Reads the next piece; false after the last one. Throws Error, with the position, when the text has a zero byte or
  // is not UTF-8, IoError when it cannot be read.
  bool next(TextPiece& piece);

 private:
  void open_document();
  // Reads until the buffer has this many bytes, or to the end of the document.
  void fill(size_t size);

  const TextDocuments& documents_;
  FileSystem& files_;
  size_t document_ = 0;             // the current one
  std::unique_ptr<OpenFile> file_;  // null: the document is not open, or in memory
  bool open_ = false;
  bool at_end_ = false;  // the buffer has the rest of the document
  int64_t offset_ = 0;   // of the end of the buffer in the document
  std::string buffer_;
};

// The position at which the first piece of the text ends, at most text.size(). `is_whole`: nothing follows the text. 0:
// more text is required.
size_t piece_end(std::string_view text, bool is_whole);

// All different characters of the documents, as text, ordered by code point. Throws as TextPieces::next() does.
std::string distinct_characters(const TextDocuments& documents, FileSystem& files = FileSystem::real());

// Adds the contents of the documents, with their boundaries, to a digest. Throws IoError when they cannot be read.
void add_documents(const TextDocuments& documents, Digest& digest, FileSystem& files = FileSystem::real());

}  // namespace lockstep::detail
