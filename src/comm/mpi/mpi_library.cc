#include "comm/mpi/mpi_library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "liblockstep_mpi.so";
constexpr const char* kWithoutMpi = "set LOCKSTEP_COORDINATOR to HOST:PORT of process 0 and LOCKSTEP_COLLECTIVES=tcp";

// The folders of the program and of the library that contains this function. Relative names are left out: they would
// depend on the current folder.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> out;
  std::error_code failed;
  fs::path program = fs::read_symlink("/proc/self/exe", failed);
  // Without /proc, as in a new root folder: the name that the program was started by.
  if (const auto* const name = reinterpret_cast<const char*>(getauxval(AT_EXECFN)); failed && name) program = name;
  if (program.is_absolute()) out.push_back(program.parent_path());
  Dl_info module = {};
  if (dladdr(reinterpret_cast<const void*>(&own_folders), &module) != 0 && module.dli_fname)
    if (const fs::path file = module.dli_fname;
        file.is_absolute() && std::ranges::find(out, file.parent_path()) == out.end())
      out.push_back(file.parent_path());
  return out;
}

std::vector<std::string> plugin_files() {
  std::vector<std::string> out;
  const auto add = [&](const fs::path& folder) {
    if (const std::string file = (folder / kFile).lexically_normal(); std::ranges::find(out, file) == out.end())
      out.push_back(file);
  };
  for (const fs::path& folder : own_folders()) {
    add(folder);
    add(folder / "lockstep");
    // Programs are in bin/ or libexec/lockstep/.
    for (const char* const prefix : {"..", "../.."}) add(folder / prefix / LOCKSTEP_LIBRARY_FOLDER / "lockstep");
  }
  out.emplace_back(kFile);
  return out;
}

// "Open MPI v4.1.4" of "Open MPI v4.1.4, package: Debian OpenMPI, ident: ...".
std::string version_of(const MpiFunctions& functions) {
  char text[256] = {};
  if (functions.library_version(text, sizeof text) != kMpiSuccess) return "MPI";
  const std::string version = text;
  return version.substr(0, version.find_first_of(",\n"));
}

MpiLibrary load(const std::string& file) {
  // The plug-ins of MPI libraries may need symbols of them, so these are global.
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return {.failure = fmt::format("mpi: cannot load {} ({}); install Open MPI (package openmpi-bin), or {}", kFile,
                                   dlerror(), kWithoutMpi)};
  const auto plugin = reinterpret_cast<MpiPlugin>(dlsym(handle, kMpiPluginSymbol));
  const MpiFunctions* const functions = plugin ? plugin() : nullptr;
  if (!functions || functions->interface != kMpiInterface)
    return {.failure = fmt::format("mpi: {} belongs to another version of lockstep; install the file of this version, "
                                   "or {}",
                                   file, kWithoutMpi)};
  return {.functions = functions, .file = file, .version = version_of(*functions)};
}

}  // namespace

MpiLibrary load_mpi_library(const std::vector<std::string>& files) {
  std::error_code ignored;
  for (const std::string& file : files)
    if (fs::path(file).is_absolute() && fs::exists(file, ignored)) return load(file);
  for (const std::string& file : files)
    if (!fs::path(file).is_absolute()) {
      MpiLibrary found = load(file);
      // Without the file, the linker's message names it; otherwise a library is missing that the file needs.
      if (found.functions || found.failure.find("(" + file + ": ") == std::string::npos) return found;
    }
  return {.failure = fmt::format("mpi: {} was not found (searched: {}); install it from the package of this lockstep, "
                                 "or build lockstep where libopenmpi-dev is installed, or {}",
                                 kFile, fmt::join(files, ", "), kWithoutMpi)};
}

const MpiLibrary& mpi_library() {
  static const auto* const loaded = new MpiLibrary(load_mpi_library(plugin_files()));
  return *loaded;
}

const MpiFunctions& mpi_functions() {
  const MpiLibrary& library = mpi_library();
  if (!library.functions) throw Error(library.failure);
  return *library.functions;
}

}  // namespace lockstep
