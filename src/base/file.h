// All access to the file system goes through FileSystem. FileSystem::real() is the disk; tests derive from FileSystem to
// inject failures. Every failure throws IoError with the operation, the path, the system's reason and a remedy. The real
// file system is safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.h"
#include "lockstep/error.h"

namespace lockstep {

// Throws IoError for a failed operation on a path, where error is an errno value:
// `write /data/x: No space left on device; the disk is full: free some space or choose another folder`.
[[noreturn]] void throw_io_error(std::string_view operation, const std::string& path, int error);

// A file that is written in several calls. If it is destroyed before finish(), any part of the bytes may be missing.
class FileWriter {
 public:
  FileWriter() = default;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  virtual ~FileWriter() = default;

  virtual void write(std::span<const uint8_t> bytes) = 0;
  // Forces all bytes to the disk and closes the file. REQUIRES: called once, as the last call.
  virtual void finish() = 0;
};

// A file that stays open for reading. Safe from any thread.
class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // Like FileSystem::read().
  virtual size_t read(int64_t offset, std::span<uint8_t> out) = 0;
};

// Default limit on the size of files that are read completely.
inline constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

class FileSystem {
 public:
  static FileSystem& real();

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  // Whether a file or folder of that name exists.
  virtual bool exists(const std::string& path) = 0;

  // Bytes in a regular file. This function, read() and open() reject pipes, devices and other special files, because
  // reading them could block forever or never end.
  virtual int64_t size(const std::string& path) = 0;

  // Reads bytes from `offset` on into `out`. Returns the number of bytes read, less than out.size() only at the end of
  // the file.
  virtual size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) = 0;

  // Opens a file that is read many times. The default implementation calls read() each time. REQUIRES: the file system
  // outlives the file.
  virtual std::unique_ptr<OpenFile> open(const std::string& path);

  // Creates or overwrites a file and forces its bytes to the disk. Not atomic: see write_atomic(). This function,
  // append() and create() reject symbolic links and special files, because another user who can write to the folder
  // could redirect the write to any file.
  virtual void write(const std::string& path, std::span<const uint8_t> bytes) = 0;

  // Appends bytes to a file and creates it if necessary. The bytes are not forced to the disk. After a failure, a part of
  // them may be in the file.
  virtual void append(const std::string& path, std::span<const uint8_t> bytes) = 0;

  // Creates or truncates a file that is written in several calls. REQUIRES: the file system outlives the writer.
  virtual std::unique_ptr<FileWriter> create(const std::string& path) = 0;

  // Renames within one file system and replaces a file or an empty folder at `to`.
  virtual void rename(const std::string& from, const std::string& to) = 0;

  // Removes a file. Does nothing if it does not exist.
  virtual void remove(const std::string& path) = 0;

  // Removes a folder with its contents. Does nothing if it does not exist. A failure may leave a part of it.
  virtual void remove_tree(const std::string& path) = 0;

  // Creates a folder and its parents. Does nothing if it exists.
  virtual void make_dirs(const std::string& path) = 0;

  // Forces the directory entries of a folder to the disk.
  virtual void sync_dir(const std::string& path) = 0;

  // Returns the names in a folder, sorted, without "." and "..".
  virtual std::vector<std::string> list(const std::string& path) = 0;

  // Returns the contents of a file. Throws Error when it has more than `most` bytes.
  std::vector<uint8_t> read_file(const std::string& path, int64_t most = kMaxFileBytes);

  // Replaces the contents of a file atomically. After return they survive a power failure; after an error the file is
  // unchanged. If several processes write at the same time, one of them wins. REQUIRES: the folder exists.
  void write_atomic(const std::string& path, std::span<const uint8_t> bytes);
};

// Reads a file that the user gives on the command line, up to its end. Pipes, devices and links are allowed; "-" is
// standard input. Throws Error when it has more than `most` bytes, IoError when it cannot be read.
std::string read_user_file(const std::string& path, int64_t most);

// Writes a file that the user gives on the command line. Writes to pipes and devices, follows links, and replaces a
// regular file like write_atomic().
void write_user_file(const std::string& path, std::string_view text);

// Whether the path belongs to the user of this process or to root. Does not follow links. False if the path does not
// exist.
bool is_own_path(const std::string& path);

// Opens a file for locking: read-write if possible, else read-only. Creates it with this mode if it does not exist.
// Returns an empty descriptor with errno set if that fails: ELOOP for a symbolic link, ENXIO for any other file that is not regular.
Descriptor open_lock_file(const std::string& path, unsigned mode);

// Returns the folder of a path: "a" for "a/b", "." for "b", "/" for "/b".
std::string parent_dir(const std::string& path);

// A new folder under $TMPDIR (or /tmp). The destructor removes it with its contents.
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
