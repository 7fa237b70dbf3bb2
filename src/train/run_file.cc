#include "train/run_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "train/checkpoint_folder.h"
#include "train/manifest.h"

namespace lockstep {

std::string run_file(const std::string& dir, const std::string& name) {
  FileSystem& files = FileSystem::real();
  const std::string inside = dir + "/" + name;
  if (files.exists(inside)) return inside;
  const std::string folder = detail::locate_checkpoint(files, dir);
  if (!files.exists(folder + "/" + detail::kManifest)) return "";
  // "run/step_00000010/" has the parent "run/step_00000010".
  std::string trimmed = folder;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::string beside = parent_dir(trimmed) + "/" + name;
  return files.exists(beside) ? beside : "";
}

void replace_run_file(FileSystem& files, const std::string& folder, const std::string& name,
                      std::span<const uint8_t> bytes) {
  const std::string temporary = fmt::format("{}/.{}.tmp-{}", folder, name, ::getpid());
  files.remove(temporary);
  try {
    files.append(temporary, bytes);
    files.rename(temporary, folder + "/" + name);
  } catch (const IoError&) {
    files.remove(temporary);  // part of it may be on a full disk
    throw;
  }
}

}  // namespace lockstep
