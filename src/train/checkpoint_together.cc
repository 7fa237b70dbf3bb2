#include "train/checkpoint_together.h"

#include <fmt/format.h>

#include <optional>

#include "base/check.h"
#include "train/checkpoint_folder.h"
#include "train/manifest.h"

namespace lockstep::detail {
namespace {

constexpr char kFine = '+', kFailed = '-';

// Does a step of the work, tells the others how it went, and throws when it went wrong in any process. Returns what
// each process has to say.
template <class Work>
std::vector<std::string> together(const Exchange& exchange, Work work) {
  std::string own;
  try {
    own = kFine + work();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    own = kFailed + std::string(error.what());
  }
  std::vector<std::string> all = exchange(own);
  for (size_t p = 0; p < all.size(); ++p) {
    LOCKSTEP_CHECK(!all[p].empty(), "process {} said nothing", p);
    if (all[p][0] == kFailed) throw IoError(fmt::format("process {}: {}", p, all[p].substr(1)));
    all[p].erase(0, 1);
  }
  return all;
}

}  // namespace

WrittenCheckpoint write_together(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                 int64_t shard_bytes, const Exchange& exchange) {
  const int64_t step = contents.info.step;
  const bool first = contents.writer.index == 0;
  WrittenCheckpoint out{.path = dir + "/" + step_name(step), .problems = {}};
  std::optional<StagedCheckpoint> staged;
  const std::string folder = together(exchange, [&]() -> std::string {
    if (!first) return "";
    if (!files.exists(dir)) {
      files.make_dirs(dir);
      files.sync_dir(parent_dir(dir));
    }
    out.problems = tidy(files, dir);
    staged.emplace(files, dir, step);
    files.make_dirs(staged->path());
    return staged->path();
  })[0];
  const std::vector<std::string> parts =
      together(exchange, [&] { return encode_manifest(write_part(files, folder, std::move(contents), shard_bytes)); });
  together(exchange, [&]() -> std::string {
    if (!first) return "";
    std::vector<CheckpointInfo> infos;
    for (const std::string& part : parts) infos.push_back(decode_manifest(part, folder));
    write_manifest(files, folder, merged(infos));
    files.sync_dir(folder);
    for (std::string& problem : staged->install()) out.problems.push_back(std::move(problem));
    return "";
  });
  return out;
}

}  // namespace lockstep::detail
