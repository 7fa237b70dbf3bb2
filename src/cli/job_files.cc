#include "cli/job_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "jobs/model/manifest.h"
#include "jobs/model/yaml_document.h"

namespace lockstep::cli {
namespace {

// Five characters as Kubernetes chooses them: without vowels, so that they form no words.
std::string random_suffix() {
  constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
  std::random_device source;
  std::string out;
  for (int i = 0; i < 5; ++i) out += kLetters[source() % kLetters.size()];
  return out;
}

std::vector<std::string> files_in(const std::string& command, const std::string& folder) {
  std::vector<std::string> out;
  for (const std::string& name : FileSystem::real().list(folder))
    if (name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json"))
      out.push_back((std::filesystem::path(folder) / name).string());
  if (out.empty())
    throw UsageError(fmt::format("{}: {} contains no .yaml, .yml or .json file; check the path", command, folder));
  return out;
}

struct JobFile {
  std::string path;
  bool named = true;  // given by the user; false: found in a folder
};

std::string text_of(const JobFile& file) {
  if (file.named) return read_user_file(file.path, kMaxManifestBytes);
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(file.path, kMaxManifestBytes);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

CLI::Option* add_files_flag(CLI::App& command, std::vector<std::string>& files) {
  return command
      .add_option("-f,--filename", files, "a manifest, a folder of manifests, or - for standard input; may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

JobFiles read_jobs(const std::string& command, const std::vector<std::string>& files, const JobFlags& flags) {
  std::vector<JobFile> all;
  for (const std::string& file : files) {
    if (file.find("://") != file.npos)
      throw UsageError(fmt::format("{}: {} is a URL, but manifests are read from files; download it first: curl -LO {}",
                                   command, file, file));
    if (file != "-" && std::filesystem::is_directory(file)) {
      for (const std::string& inside : files_in(command, file)) all.push_back({inside, false});
    } else {
      all.push_back({file});
    }
  }
  JobFiles out;
  for (const JobFile& file : all) {
    Manifests found = or_usage_error([&] {
      return parse_manifests(text_of(file), file.path == "-" ? "standard input" : file.path,
                             {.namespace_name = flags.lookup_namespace(),
                              .suffix = random_suffix(),
                              .any_kind = runner_name(flags) == "kubernetes"});
    });
    std::ranges::move(found.others, std::back_inserter(out.others));
    out.notes.insert(out.notes.end(), found.notes.begin(), found.notes.end());
    for (Job& job : found.jobs) {
      if (!flags.namespace_name.empty() && job.namespace_name != flags.namespace_name)
        throw UsageError(fmt::format("{}: the manifest of {} has namespace {}, but -n is {}; omit one of them", command,
                                     job.name, job.namespace_name, flags.namespace_name));
      out.jobs.push_back(std::move(job));
    }
  }
  std::stable_partition(out.others.begin(), out.others.end(),
                        [](const OtherObject& each) { return each.kind == "Namespace"; });
  return out;
}

}  // namespace lockstep::cli
