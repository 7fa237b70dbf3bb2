// The one seam to the file system. FileSystem::real() is the disk; tests derive from FileSystem to provoke failures.
// Every failure throws IoError naming the operation, the path, the system's reason and a remedy.
// The real file system may be used from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {

// Throws IoError for a failed operation on a path, where error is an errno value:
// `write /data/x: No space left on device; the disk is full: free some space or choose another folder`.
[[noreturn]] void throw_io_error(std::string_view operation, const std::string& path, int error);

// A file being written piece by piece. One that is dropped before finish() may hold any part of the pieces.
class FileWriter {
 public:
  FileWriter() = default;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  virtual ~FileWriter() = default;

  virtual void write(std::span<const uint8_t> bytes) = 0;
  // Forces all bytes to the disk and closes the file. The last call.
  virtual void finish() = 0;
};

// A file that stays open for reading. Safe from any thread.
class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // As FileSystem::read.
  virtual size_t read(int64_t offset, std::span<uint8_t> out) = 0;
};

// Of a file that is read whole, unless a caller says otherwise.
inline constexpr int64_t kMostFileBytes = int64_t{256} << 20;

class FileSystem {
 public:
  static FileSystem& real();

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  // Whether something of that name is there, file or folder.
  virtual bool exists(const std::string& path) = 0;

  // Bytes in a regular file. What else a path may name, such as a pipe or a device, is refused here and by read() and
  // open(): a read from it could wait forever, or never end.
  virtual int64_t size(const std::string& path) = 0;

  // Fills the span from the file's bytes at offset on; returns how many were there, fewer only at the end of the file.
  virtual size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) = 0;

  // A file to be read many times. It goes through read() unless a file system knows better. REQUIRES: the file system
  // outlives it.
  virtual std::unique_ptr<OpenFile> open(const std::string& path);

  // Creates or overwrites a file and forces its bytes to the disk. Not atomic: see write_atomic. A symbolic link, a
  // pipe or a device at the path is refused here and by append() and create(): whoever can write to the folder could
  // lead us to any file of the user's.
  virtual void write(const std::string& path, std::span<const uint8_t> bytes) = 0;

  // Adds bytes to the end of a file, which is made when there is none. They are not forced to the disk; a failure may
  // leave a part of them.
  virtual void append(const std::string& path, std::span<const uint8_t> bytes) = 0;

  // Creates or empties a file, to be written piece by piece. The writer must not outlive the file system.
  virtual std::unique_ptr<FileWriter> create(const std::string& path) = 0;

  // Renames within one file system, replacing what is at `to`, if that is a file or an empty folder.
  virtual void rename(const std::string& from, const std::string& to) = 0;

  // Removes a file. No error when there is none.
  virtual void remove(const std::string& path) = 0;

  // Removes a folder with all it holds. No error when there is none. After a failure a part of it may be gone.
  virtual void remove_tree(const std::string& path) = 0;

  // Creates a folder and those above it. No error when it is there already.
  virtual void make_dirs(const std::string& path) = 0;

  // Forces the names in a folder to the disk.
  virtual void sync_dir(const std::string& path) = 0;

  // Names in a folder, sorted, without "." and "..".
  virtual std::vector<std::string> list(const std::string& path) = 0;

  // A whole file. Throws Error when it has more than `most` bytes.
  std::vector<uint8_t> read_file(const std::string& path, int64_t most = kMostFileBytes);

  // After return the file holds exactly these bytes, also after a power cut. On a failure it is as it was before.
  // Writers in several processes may race: one of them wins whole. The folder must exist.
  void write_atomic(const std::string& path, std::span<const uint8_t> bytes);
};

// A file that the user names on the command line: a pipe, a device or a link is read as what it is, up to its end, and
// "-" is standard input. Throws Error when it has more than `most` bytes, IoError when it cannot be read.
std::string read_user_file(const std::string& path, int64_t most);

// A file that the user names on the command line: a pipe or a device is written to, a link leads to what it names, and
// a regular file is replaced whole, as write_atomic does.
void write_user_file(const std::string& path, std::string_view text);

// Whether the path, without following a link, belongs to the user of this process (or to root). False where there is
// nothing.
bool is_own_path(const std::string& path);

// Opens a file for locking: read-write where possible, else read-only; made, with this mode, where there is none. Only
// a regular file that is no link is opened. Returns a descriptor, or -1 with errno set: ELOOP for a link, ENXIO for
// what is no regular file.
int open_lock_file(const std::string& path, unsigned mode);

// The folder part of a path: "a" of "a/b", "." of "b", "/" of "/b".
std::string parent_dir(const std::string& path);

// A new folder under $TMPDIR (or /tmp) that is removed, with all it holds, at the end of its scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep
