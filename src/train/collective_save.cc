#include "train/collective_save.h"

#include <fmt/format.h>

#include <optional>

#include "base/check.h"
#include "train/checkpoint_folder.h"
#include "train/manifest.h"

namespace lockstep::detail {
namespace {

constexpr char kSucceeded = '+', kFailed = '-';

// Runs work() and exchanges its result. Throws in all processes if it failed in any of them. Returns the results of all
// processes.
template <class Work>
std::vector<std::string> run_collectively(const Exchange& exchange, Work work) {
  std::string own;
  try {
    own = kSucceeded + work();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    own = kFailed + std::string(error.what());
  }
  std::vector<std::string> all = exchange(own);
  for (size_t p = 0; p < all.size(); ++p) {
    LOCKSTEP_CHECK(!all[p].empty(), "empty message from process {}", p);
    if (all[p][0] == kFailed) throw IoError(fmt::format("process {}: {}", p, all[p].substr(1)));
    all[p].erase(0, 1);
  }
  return all;
}

}  // namespace

WrittenCheckpoint write_collectively(FileSystem& files, const std::string& dir, CheckpointContents contents,
                                     int64_t shard_bytes, const Exchange& exchange) {
  const int64_t step = contents.info.step;
  const bool first = contents.writer.index == 0;
  WrittenCheckpoint out{.path = dir + "/" + step_name(step), .problems = {}};
  std::optional<StagedCheckpoint> staged;
  const std::string folder = run_collectively(exchange, [&]() -> std::string {
    if (!first) return "";
    if (!files.exists(dir)) {
      files.make_dirs(dir);
      files.sync_dir(parent_dir(dir));
    }
    out.problems = recover_folder(files, dir);
    staged.emplace(files, dir, step);
    files.make_dirs(staged->path());
    return staged->path();
  })[0];
  const std::vector<std::string> parts = run_collectively(
      exchange, [&] { return encode_manifest(write_part(files, folder, std::move(contents), shard_bytes)); });
  run_collectively(exchange, [&]() -> std::string {
    if (!first) return "";
    std::vector<CheckpointInfo> infos;
    for (const std::string& part : parts) infos.push_back(decode_manifest(part, folder));
    write_manifest(files, folder, merge_parts(infos));
    files.sync_dir(folder);
    for (std::string& problem : staged->install()) out.problems.push_back(std::move(problem));
    return "";
  });
  return out;
}

}  // namespace lockstep::detail
