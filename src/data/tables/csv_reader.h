// CsvReader: the records of a CSV file (RFC 4180), read in parts. Not thread-safe.
//
// Cells may be quoted; a quoted cell may contain separators, line breaks and doubled quotes. Lines end with LF or CRLF.
// Empty lines and a UTF-8 byte order mark are skipped.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

class CsvReader {
 public:
  // Throws Error for an empty file and for UTF-16, IoError when the file cannot be read. REQUIRES: the file system
  // outlives the reader.
  CsvReader(const std::string& path, char separator, FileSystem& files = FileSystem::real());

  // Reads a record. Its cells are valid until the next call. Returns false at the end. Throws Error, naming the line,
  // for an unclosed quote, text after a quote, and records of more than kMaxCsvRecord bytes.
  bool next(std::vector<std::string_view>& cells);

  const std::string& path() const { return path_; }
  // The line on which the last record begins, from 1 on.
  int64_t line() const { return record_line_; }

  static constexpr int64_t kMaxCsvRecord = 16 << 20;

 private:
  enum class Scan { record, empty_line, more };  // more: the buffer ends before the record does
  Scan scan(std::vector<std::string_view>& cells);
  // The end of the cell that begins at `from`; null if the buffer ends first.
  const char* scan_plain(const char* from) const;
  const char* scan_quoted(const char* from, std::string_view& cell);
  // Moves the rest of the buffer to its beginning and reads more. Returns false at the end of the file.
  bool refill();

  std::string path_;
  std::unique_ptr<OpenFile> file_;
  char separator_;
  size_t part_;  // bytes to read at a time; a small file is read with one call
  std::vector<char> buffer_;
  const char* at_ = nullptr;  // the next byte to parse
  const char* end_ = nullptr;
  int64_t offset_ = 0;  // bytes read from the file
  bool ended_ = false;  // the file has no more bytes
  int64_t line_ = 1, record_line_ = 1, newlines_ = 0;
  std::deque<std::string> unescaped_;  // cells with doubled quotes
};

// Parses a decimal number, with spaces around it allowed. Returns false for anything else, also for infinities and NaN.
bool parse_csv_number(std::string_view cell, double& value);

}  // namespace lockstep::detail
