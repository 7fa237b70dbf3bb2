#include "jobs/local/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file.h"
#include "jobs/local/pod_log.h"

namespace lockstep {
namespace {

struct OpenedLog {
  Descriptor file;
  ino_t inode = 0;
  int64_t size = 0;
};

OpenedLog open_log(const std::string& path) {
  OpenedLog out{Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (!out.file) {
    if (errno != ENOENT && errno != ENOTDIR) throw_io_error("open", path, errno);
    return out;
  }
  struct stat info = {};
  if (::fstat(out.file.get(), &info) != 0) throw_io_error("read", path, errno);
  if (!S_ISREG(info.st_mode)) throw IoError("read " + path + ": not a regular file; remove it");
  out.inode = info.st_ino;
  out.size = info.st_size;
  return out;
}

ino_t inode_of(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

using Block = std::array<char, 65536>;

// The offset at which the last `lines` lines of the file begin. Subtracts the lines found from `lines`.
int64_t tail_of(const OpenedLog& from, const std::string& path, int64_t& lines) {
  Block block;
  int64_t end = from.size;
  bool last_byte = true;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(block.size()));
    const ssize_t n = ::pread(from.file.get(), block.data(), static_cast<size_t>(end - begin), begin);
    if (n < 0) throw_io_error("read", path, errno);
    for (ssize_t i = n; i-- > 0;) {
      const bool ends_file = std::exchange(last_byte, false);
      if (block[static_cast<size_t>(i)] != '\n' || ends_file) continue;
      if (--lines == 0) return begin + i + 1;
    }
    end = begin;
  }
  if (from.size > 0) --lines;  // the first line has no newline before it
  return 0;
}

}  // namespace

LogReader::LogReader(std::string path, std::optional<int64_t> tail, std::optional<int64_t> since)
    : path_(std::move(path)), tail_(tail), since_(since) {}

// Opens the file in which the output begins that is wanted, at its position.
void LogReader::find_start() {
  if (!since_) return find_tail();
  find_since();
  if (!tail_ || !file_) return;
  // Both are given: the later position.
  const ino_t inode = inode_;
  const int64_t offset = offset_;
  Descriptor file = std::move(file_);
  find_tail();
  const bool tail_in_older = inode_ != inode && inode_of(path_ + ".1") == inode_;
  if (!tail_in_older && (inode_ != inode || offset_ >= offset)) return;
  file_ = std::move(file);
  inode_ = inode;
  offset_ = offset;
}

// Opens the file with the first output at or after the time. Without such output, starts at the end.
void LogReader::find_since() {
  const int64_t time = *since_;
  OpenedLog newest = open_log(path_), older = open_log(path_ + ".1");
  std::optional<int64_t> at;
  if (older.file && older.inode != newest.inode) at = offset_since(path_ + ".1", time);
  if (at)
    newest = std::move(older);
  else
    at = offset_since(path_, time).value_or(newest.size);
  if (!newest.file) return;
  file_ = std::move(newest.file);
  inode_ = newest.inode;
  offset_ = *at;
  since_.reset();
}

// Opens the file in which the tail begins, at its position.
void LogReader::find_tail() {
  int64_t lines = *tail_;
  OpenedLog newest = open_log(path_), older = open_log(path_ + ".1");
  if (!newest.file && !older.file) return;
  int64_t at = newest.size;
  if (newest.file && lines > 0) at = tail_of(newest, path_, lines);
  const bool in_older = older.file && older.inode != newest.inode && (lines > 0 || !newest.file);
  if (in_older) {
    at = lines > 0 ? tail_of(older, path_ + ".1", lines) : older.size;
    newest = std::move(older);
  }
  file_ = std::move(newest.file);
  inode_ = newest.inode;
  offset_ = at;
  tail_.reset();
}

bool LogReader::open_next(const std::function<bool(std::string_view)>& sink, bool& stopped) {
  if (tail_ || since_) {
    find_start();
    return static_cast<bool>(file_);
  }
  OpenedLog next = open_log(path_ + ".1");
  if (file_ && next.file && next.inode == inode_) {
    next = open_log(path_);
  } else {
    // Start at the oldest file. If the writer was faster than this reader, some output was dropped.
    if (const std::string note = dropped_note(path_); !note.empty() && !sink(note)) stopped = true;
    if (!next.file) next = open_log(path_);
  }
  if (!next.file) return false;
  file_ = std::move(next.file);
  inode_ = next.inode;
  offset_ = 0;
  return !stopped;
}

bool LogReader::drain(const std::function<bool(std::string_view)>& sink) {
  Block block;
  while (file_) {
    const ssize_t n = ::pread(file_.get(), block.data(), block.size(), offset_);
    if (n < 0) throw_io_error("read", path_, errno);
    if (n == 0) break;
    offset_ += n;
    if (!sink(std::string_view(block.data(), static_cast<size_t>(n)))) return false;
  }
  return true;
}

bool LogReader::read(const std::function<bool(std::string_view)>& sink) {
  for (;;) {
    if (!drain(sink)) return false;
    if (file_ && inode_of(path_) == inode_) return true;
    // The log was rotated. More may have been written to the old file before.
    if (!drain(sink)) return false;
    bool stopped = false;
    if (!open_next(sink, stopped)) return !stopped;
  }
}

}  // namespace lockstep
