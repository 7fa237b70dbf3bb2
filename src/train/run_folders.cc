#include "train/run_folders.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/file.h"

namespace lockstep {

std::string find_run(const std::string& command, const std::string& argument) {
  FileSystem& files = FileSystem::real();
  if (argument.empty())
    throw_error("{}: the name of the run is empty; give a folder, a run of {}/, or last", command, kRunsFolder);
  if (files.exists(argument)) return argument;
  const std::string root = kRunsFolder;
  if (argument == "last") {
    std::vector<std::string> found;
    if (files.exists(root))
      for (const std::string& name : files.list(root))
        if (files.exists(root + "/" + name + "/config.yaml")) found.push_back(root + "/" + name);
    if (found.empty()) throw_error("{}: there are no runs in {}/; train one first", command, root);
    const auto written = [](const std::string& run) { return std::filesystem::last_write_time(run + "/config.yaml"); };
    return *std::max_element(found.begin(), found.end(),
                             [&](const std::string& a, const std::string& b) { return written(a) < written(b); });
  }
  if (argument.find('/') == argument.npos && files.exists(root + "/" + argument)) return root + "/" + argument;
  throw_error("{}: {} does not exist, and {}/ has no run of that name; `lockstep runs` lists them", command, argument,
              root);
}

}  // namespace lockstep
