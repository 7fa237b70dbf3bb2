#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/os/environment.h"
#include "base/os/host_name.h"

namespace lockstep {
namespace {

std::string_view remedy(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free some space or choose another folder";
    case EDQUOT:
      return "the disk quota is used up: free some space or choose another folder";
    case EROFS:
      return "choose a folder that can be written";
    case EACCES:
    case EPERM:
      return "check the permissions of the path and of the folders above it";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a component of the path is a file; check the path";
    case EISDIR:
      return "give a file, not a folder";
    case ELOOP:
      return "the path is a symbolic link, which lockstep does not follow here: remove it, or choose another path";
    case ENXIO:
      return "the path is not a regular file: remove it, or choose another path";
    case EMFILE:
    case ENFILE:
      return "too many files are open: raise the limit (ulimit -n)";
    default:
      return "check the disk and the path";
  }
}

Descriptor open_retrying(const std::string& path, int flags, mode_t mode = 0644) {
  for (;;) {
    Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode));
    if (file || errno != EINTR) return file;
  }
}

std::string_view kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return S_ISSOCK(mode) ? "a socket" : "not a file";
}

void require_regular(std::string_view operation, const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return;
  if (S_ISDIR(mode)) throw_io_error(operation, path, EISDIR);
  throw IoError(fmt::format("{} {}: it is {}; a regular file is required", operation, path, kind_of(mode)));
}

[[noreturn]] void throw_too_large(const std::string& path, int64_t most) {
  throw Error(
      fmt::format("read {}: the file has more than {} bytes, the limit; check that it is the right file", path, most));
}

std::string read_to_end(int fd, const std::string& path, int64_t most) {
  std::string out;
  char piece[1 << 14];
  for (;;) {
    const ssize_t n = ::read(fd, piece, sizeof(piece));
    if (n == 0) return out;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path, errno);
    out.append(piece, static_cast<size_t>(n));
    if (static_cast<int64_t>(out.size()) > most) throw_too_large(path, most);
  }
}

// The kinds of files that may be opened.
enum class FileKind { regular, folder, any };

// A file opened by its path. Retries system calls that a signal interrupted.
class PathFile {
 public:
  PathFile(std::string_view operation, const std::string& path, int flags, FileKind kind = FileKind::regular)
      : path_(path) {
    // O_NONBLOCK: opening a pipe must not wait for its other end.
    file_ = open_retrying(path, flags | (kind == FileKind::regular ? O_NONBLOCK : 0));
    if (!file_) throw_io_error(operation, path, errno);
    if (kind != FileKind::regular) return;
    struct stat info;
    if (::fstat(file_.get(), &info) != 0) throw_io_error(operation, path, errno);
    require_regular(operation, path, info.st_mode);
  }

  size_t read(int64_t offset, std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(file_.get(), out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
      if (n == 0) break;
      if (n > 0) {
        done += static_cast<size_t>(n);
      } else if (errno != EINTR) {
        throw_io_error("read", path_, errno);
      }
    }
    return done;
  }

  void write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
      if (n >= 0) {
        bytes = bytes.subspan(static_cast<size_t>(n));
      } else if (errno != EINTR) {
        throw_io_error("write", path_, errno);
      }
    }
  }

  void sync() {
    while (::fsync(file_.get()) != 0) {
      if (errno == EINVAL) return;  // this kind of file cannot be synced
      if (errno != EINTR) throw_io_error("sync", path_, errno);
    }
  }

  // Network file systems report a failed write only here.
  void close() {
    if (!file_.close()) throw_io_error("close", path_, errno);
  }

 private:
  std::string path_;
  Descriptor file_;
};

class RealWriter final : public FileWriter {
 public:
  explicit RealWriter(const std::string& path) : file_("create", path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW) {}
  void write(std::span<const uint8_t> bytes) override { file_.write(bytes); }
  void finish() override {
    file_.sync();
    file_.close();
  }

 private:
  PathFile file_;
};

class RealOpenFile final : public OpenFile {
 public:
  explicit RealOpenFile(const std::string& path) : file_("open", path, O_RDONLY) {}
  size_t read(int64_t offset, std::span<uint8_t> out) override { return file_.read(offset, out); }

 private:
  PathFile file_;
};

// Opens the file again for every read.
class ReopenedFile final : public OpenFile {
 public:
  ReopenedFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  size_t read(int64_t offset, std::span<uint8_t> out) override { return files_.read(path_, offset, out); }

 private:
  FileSystem& files_;
  std::string path_;
};

class RealFileSystem final : public FileSystem {
 public:
  bool exists(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) throw_io_error("stat", path, errno);
    return false;
  }

  int64_t size(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) throw_io_error("stat", path, errno);
    require_regular("read", path, info.st_mode);
    return info.st_size;
  }

  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    return PathFile("open", path, O_RDONLY).read(offset, out);
  }

  std::unique_ptr<OpenFile> open(const std::string& path) override { return std::make_unique<RealOpenFile>(path); }

  void write(const std::string& path, std::span<const uint8_t> bytes) override {
    RealWriter file(path);
    file.write(bytes);
    file.finish();
  }

  void append(const std::string& path, std::span<const uint8_t> bytes) override {
    PathFile file("open", path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
    file.write(bytes);
    file.close();
  }

  std::unique_ptr<FileWriter> create(const std::string& path) override { return std::make_unique<RealWriter>(path); }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error("rename to", to, errno);
  }

  void remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_io_error("remove", path, errno);
  }

  void remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw_io_error("remove folder", path, error.value());
  }

  void make_dirs(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw_io_error("create folder", path, error.value());
  }

  void sync_dir(const std::string& path) override {
    PathFile("open", path, O_RDONLY | O_DIRECTORY, FileKind::folder).sync();
  }

  std::vector<std::string> list(const std::string& path) override {
    std::error_code error;
    std::filesystem::directory_iterator entries(path, error);
    if (error) throw_io_error("list", path, error.value());
    std::vector<std::string> names;
    for (const std::filesystem::directory_iterator end; entries != end; entries.increment(error)) {
      if (error) throw_io_error("list", path, error.value());
      names.push_back(entries->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

}  // namespace

void throw_io_error(std::string_view operation, const std::string& path, int error) {
  throw IoError(fmt::format("{} {}: {}; {}", operation, path, std::generic_category().message(error), remedy(error)));
}

FileSystem& FileSystem::real() {
  // Never destroyed: another thread may still write while the process exits.
  static auto* const instance = new RealFileSystem;
  return *instance;
}

std::unique_ptr<OpenFile> FileSystem::open(const std::string& path) {
  return std::make_unique<ReopenedFile>(*this, path);
}

std::vector<uint8_t> FileSystem::read_file(const std::string& path, int64_t most) {
  // Opened once, so that a file that is replaced meanwhile is still read completely. The size is only a first guess.
  const std::unique_ptr<OpenFile> file = open(path);
  const int64_t size = this->size(path);
  if (size > most) throw_too_large(path, most);
  std::vector<uint8_t> bytes(static_cast<size_t>(size) + 1);
  for (size_t done = 0;;) {
    const size_t read = file->read(static_cast<int64_t>(done), std::span(bytes).subspan(done));
    done += read;
    if (static_cast<int64_t>(done) > most) throw_too_large(path, most);
    if (done < bytes.size()) {
      bytes.resize(done);
      return bytes;
    }
    bytes.resize(2 * bytes.size());
  }
}

void FileSystem::write_atomic(const std::string& path, std::span<const uint8_t> bytes) {
  static std::atomic<int> serial = 0;
  // Hosts that share the folder may have equal process numbers. The name cannot be guessed, so that no other user can
  // create the file first.
  uint64_t random = 0;
  if (::getentropy(&random, sizeof(random)) != 0) random = 0;
  const std::string temporary =
      fmt::format("{}.{}.{}.{}.{:016x}.tmp", path, own_host_name(), ::getpid(), ++serial, random);
  const auto remove_temporary = [&] {
    try {
      remove(temporary);
    } catch (const IoError&) {  // the first failure is the one to report
    }
  };
  try {
    write(temporary, bytes);
    rename(temporary, path);
  } catch (const IoError& error) {
    remove_temporary();
    std::string text = error.what();  // name the file that the user knows
    if (const size_t at = text.find(temporary); at != text.npos) text.replace(at, temporary.size(), path);
    throw IoError(text);
  } catch (...) {
    remove_temporary();
    throw;
  }
  sync_dir(parent_dir(path));
}

std::string read_user_file(const std::string& path, int64_t most) {
  if (path == "-") return read_to_end(STDIN_FILENO, "standard input", most);
  const Descriptor file = open_retrying(path, O_RDONLY);
  if (!file) throw_io_error("open", path, errno);
  return read_to_end(file.get(), path, most);
}

void write_user_file(const std::string& path, std::string_view text) {
  namespace fs = std::filesystem;
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    PathFile file("open", path, O_WRONLY | O_APPEND, FileKind::any);
    file.write(bytes);
    return file.close();
  }
  const bool is_link = fs::is_regular_file(status) && fs::is_symlink(fs::symlink_status(path, ignored));
  FileSystem::real().write_atomic(is_link ? fs::canonical(path).string() : path, bytes);
}

bool is_own_path(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && (info.st_uid == ::geteuid() || info.st_uid == 0);
}

Descriptor open_lock_file(const std::string& path, unsigned mode) {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK;
  Descriptor file = open_retrying(path, O_RDWR | O_CREAT | kFlags, mode);
  if (!file && errno == EACCES) {
    file = open_retrying(path, O_RDONLY | kFlags);
    if (!file && errno != ELOOP) errno = EACCES;
  }
  struct stat info;
  if (!file || (::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode))) return file;
  file.close();
  errno = ENXIO;
  return file;
}

std::string parent_dir(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

TempDir::TempDir() {
  path_ = environment_variable("TMPDIR").value_or("/tmp") + "/lockstep-XXXXXX";
  if (!::mkdtemp(path_.data())) throw_io_error("create folder", path_, errno);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
