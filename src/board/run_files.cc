#include "board/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "board/run_file_json.h"

namespace lockstep::board {
namespace {

constexpr int64_t kMaxJsonBytes = int64_t{16} << 20, kMaxPictureBytes = int64_t{16} << 20,
                  kMaxSampleBytes = int64_t{4} << 20;

std::string version_of(const std::filesystem::path& path) {
  std::error_code size_error, time_error;
  const auto bytes = std::filesystem::file_size(path, size_error);
  const auto time = std::filesystem::last_write_time(path, time_error);
  if (size_error || time_error) return "";
  return fmt::format("{}-{}", bytes, time.time_since_epoch().count());
}

std::string version_of_folder(const std::filesystem::path& path) {
  std::string out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    out += entry.path().filename().string() + ":" + version_of(entry.path()) + ";";
  return out.empty() ? "" : std::to_string(std::hash<std::string>()(out));
}

// Throws Error when the file is missing, too large or not readable.
std::vector<uint8_t> bytes_of(const std::string& folder, const std::string& name, int64_t most,
                              std::string_view remedy) {
  FileSystem& files = FileSystem::real();
  const std::string path = folder + "/" + name;
  try {
    if (!files.exists(path)) throw_error("the run has no {}; {}", name, remedy);
    if (const int64_t size = files.size(path); size > most)
      throw_error("{} has {} bytes, but the board reads at most {}; {}", name, size, most, remedy);
    return files.read_file(path, most);
  } catch (const IoError& error) {
    throw_error("{}", error.what());
  }
}

// The last part of a file, from the begin of a line.
std::string last_lines(const std::string& path) {
  FileSystem& files = FileSystem::real();
  const int64_t size = files.size(path), begin = std::max<int64_t>(0, size - kMaxSampleBytes);
  std::string out(static_cast<size_t>(size - begin), '\0');
  out.resize(files.read(path, begin, {reinterpret_cast<uint8_t*>(out.data()), out.size()}));
  return begin == 0 ? out : out.substr(std::min(out.size(), out.find('\n')));
}

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

std::map<std::string, std::string> file_versions(const std::string& run_folder) {
  const std::filesystem::path folder = run_folder;
  std::map<std::string, std::string> out = {{"evaluation", version_of(folder / kEvaluationFile)},
                                            {"samples", version_of(folder / kSamplesFile)},
                                            {"mesh", version_of(folder / kMeshFile)},
                                            {"trace", version_of_folder(folder / "trace")}};
  std::erase_if(out, [](const auto& each) { return each.second.empty(); });
  return out;
}

std::string evaluation_json(const std::string& run_folder) {
  return checked_evaluation(text_of(bytes_of(run_folder, kEvaluationFile, kMaxJsonBytes, kEvaluationRemedy)));
}

std::vector<uint8_t> worst_picture(const std::string& run_folder) {
  std::vector<uint8_t> bytes = bytes_of(run_folder, kPictureFile, kMaxPictureBytes, kEvaluationRemedy);
  if (!is_complete_png(bytes))
    throw_error("{} has {} bytes and is not a complete PNG file; {}", kPictureFile, bytes.size(), kEvaluationRemedy);
  return bytes;
}

std::string samples_json(const std::string& run_folder) {
  const std::string path = run_folder + "/" + kSamplesFile;
  try {
    if (!FileSystem::real().exists(path)) throw_error("the run has no {}; {}", kSamplesFile, kSamplesRemedy);
    return samples_of(last_lines(path));
  } catch (const IoError& error) {
    throw_error("{}", error.what());
  }
}

std::string mesh_json(const std::string& run_folder) {
  return checked_mesh(text_of(bytes_of(run_folder, kMeshFile, kMaxJsonBytes, kMeshRemedy)));
}

}  // namespace lockstep::board
