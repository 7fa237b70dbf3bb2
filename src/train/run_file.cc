#include "train/run_file.h"

#include "base/file.h"
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

}  // namespace lockstep
