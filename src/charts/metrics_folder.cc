#include "charts/metrics_folder.h"

#include <filesystem>

namespace lockstep::charts {

std::string find_metrics_file(FileSystem& files, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return files.exists(path) ? path : "";
  for (const char* name : {"/log/metrics.jsonl", "/metrics.jsonl"})
    if (files.exists(path + name)) return path + name;
  return "";
}

std::string run_name(const std::string& path) {
  std::filesystem::path left = std::filesystem::path(path).lexically_normal();
  for (;;) {
    const std::string name = left.filename();
    const bool is_part = name.empty() || name == "metrics.jsonl" || name == "log";
    if (!is_part || !left.has_parent_path() || left.parent_path() == left || left.parent_path().empty()) break;
    left = left.parent_path();
  }
  const std::string name = left.filename();
  return name.empty() || name == "." || name == ".." ? path : name;
}

}  // namespace lockstep::charts
