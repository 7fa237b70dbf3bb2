#include "jobs/stand_in.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace lockstep {
namespace {

// Image base name, from any registry, and program. Both images are builds of the same example: data-parallel training
// of MNIST by pmap, on 8 CPU devices in each process, for 10 epochs.
constexpr std::array<std::pair<std::string_view, const char*>, 2> kStandIns = {{
    {"jaxjob-spmd-mnist", "spmd_mnist_pmap"},
    {"jaxjob-dist-spmd-mnist", "spmd_mnist_pmap"},
}};

// "c" of "a.b:5000/c:tag@sha256:...".
std::string_view base_name(std::string_view image) {
  image = image.substr(0, image.find('@'));
  if (const size_t slash = image.rfind('/'); slash != image.npos) image.remove_prefix(slash + 1);
  return image.substr(0, image.find(':'));
}

}  // namespace

bool is_image_program(const std::string& name) {
  return std::ranges::any_of(kStandIns, [&](const auto& each) { return name == each.second; });
}

std::string stand_in_of(const Container& container) {
  if (!container.command.empty() || !container.args.empty()) return "";
  for (const auto& [image, program] : kStandIns)
    if (base_name(container.image) == image) return program;
  return "";
}

std::vector<std::string> stand_in_paths(const std::string& name, const std::string& lockstep) {
  const std::filesystem::path folder = std::filesystem::path(lockstep).parent_path();
  std::vector<std::string> paths;
  for (const char* relative : {"examples", "../libexec/lockstep"})
    paths.push_back((folder / relative / name).lexically_normal().string());
  return paths;
}

std::string find_stand_in(const std::string& name, const std::string& lockstep) {
  const std::vector<std::string> paths = stand_in_paths(name, lockstep);
  for (const std::string& path : paths)
    if (::access(path.c_str(), X_OK) == 0) return path;
  throw_error(
      "apply: the program {}, which runs here in place of the image, is not installed (looked for {}); install "
      "lockstep with its examples (-DLOCKSTEP_BUILD_EXAMPLES=ON), or give the container a command, such as "
      "[lockstep, train]",
      name, fmt::join(paths, " and "));
}

}  // namespace lockstep
