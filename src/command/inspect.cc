#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "command/checkpoint_argument.h"
#include "command/commands.h"
#include "command/help.h"
#include "lockstep/checkpoint.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct InspectArguments {
  std::string checkpoint;
  bool verify = false, json = false;
};

// The checkpoint to show, and the steps of the other checkpoints in its folder.
struct FoundCheckpoint {
  std::string path;
  std::vector<int64_t> others;
};

FoundCheckpoint find(const std::string& path) {
  check_checkpoint_argument("inspect", path);
  if (FileSystem::real().exists(path + "/manifest.json")) return {.path = path, .others = {}};
  std::vector<int64_t> steps = list_checkpoints(path);
  // Without any checkpoint, reading the path reports why.
  if (steps.empty()) return {.path = path, .others = {}};
  const int64_t newest = steps.back();
  steps.pop_back();
  return {.path = checkpoint_path(path, newest), .others = std::move(steps)};
}

std::string amount_text(int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000 * 1000) return fmt::format("{:.1f} kB", number / 1e3);
  return fmt::format("{:.1f} MB", number / 1e6);
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> out(1);
  for (const char c : name)
    if (c == '/')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

void print_arrays(const CheckpointInfo& info) {
  std::vector<std::string> above;  // the folders of the previous line
  int64_t bytes = 0;
  for (const CheckpointEntry& entry : info.entries) {
    std::vector<std::string> parts = parts_of(entry.name);
    const std::string leaf = parts.back();
    parts.pop_back();
    size_t same = 0;
    while (same < parts.size() && same < above.size() && parts[same] == above[same]) ++same;
    for (size_t i = same; i < parts.size(); ++i) fmt::print("  {:{}}{}\n", "", 2 * i, printable(parts[i]));
    constexpr size_t kNames = 24;
    const size_t indent = 2 * parts.size();
    fmt::print("  {:{}}{:<{}}  {:<16}  {:<14}  {:>10}\n", "", indent, printable(leaf),
               kNames > indent ? kNames - indent : 0, to_string(entry.type), printable(entry.spec),
               amount_text(entry.type.bytes()));
    bytes += entry.type.bytes();
    above = std::move(parts);
  }
  fmt::print("  {} arrays, {}\n", info.entries.size(), amount_text(bytes));
}

void print_text(const CheckpointInfo& info, const FoundCheckpoint& found, bool verified) {
  fmt::print("{}\n  format {}, written by {}\n", printable(info.path, std::string::npos), info.format,
             printable(info.written_by));
  fmt::print("  step {}, epoch {}, example {}, seed {}\n", info.step, info.cursor.epoch, info.cursor.sample, info.seed);
  if (!info.mesh.empty()) fmt::print("  {}\n", printable(info.mesh));
  if (!found.others.empty()) fmt::print("  other steps here: {}\n", fmt::join(found.others, ", "));
  fmt::print("\narrays\n");
  print_arrays(info);
  fmt::print("\nshards\n");
  for (const CheckpointShard& shard : info.shards)
    fmt::print("  {}  {}  sha256 {}{}\n", printable(shard.file), amount_text(shard.bytes), shard.sha256,
               verified ? "  ok" : "");
  if (!info.metrics.empty()) fmt::print("\nmetrics\n");
  for (const auto& [name, value] : info.metrics) fmt::print("  {} {}\n", printable(name), value);
  if (!info.config.empty()) fmt::print("\nconfig\n");
  for (const auto& [key, value] : info.config) fmt::print("  {}: {}\n", printable(key), printable(value, 4000));
}

void print_json(const CheckpointInfo& info, const FoundCheckpoint& found, bool verified) {
  using nlohmann::ordered_json;
  ordered_json arrays = ordered_json::array(), shards = ordered_json::array();
  for (const CheckpointEntry& entry : info.entries) {
    arrays.push_back({{"name", entry.name},
                      {"dtype", name(entry.type.dtype)},
                      {"shape", entry.type.shape},
                      {"spec", entry.spec},
                      {"bytes", entry.type.bytes()}});
    ordered_json pieces = ordered_json::array();
    for (const CheckpointPiece& piece : entry.pieces) {
      ordered_json box = ordered_json::array();
      for (const Range& range : piece.box) box.push_back({range.begin, range.end});
      pieces.push_back({{"box", box}, {"shard", piece.shard}, {"offset", piece.offset}});
    }
    if (pieces.size() == 1) {
      arrays.back()["shard"] = pieces[0]["shard"];
      arrays.back()["offset"] = pieces[0]["offset"];
    } else {
      arrays.back()["pieces"] = pieces;
    }
  }
  for (const CheckpointShard& shard : info.shards)
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"sha256", shard.sha256}});
  const ordered_json out = {{"path", info.path},
                            {"format", info.format},
                            {"written_by", info.written_by},
                            {"step", info.step},
                            {"cursor", {{"epoch", info.cursor.epoch}, {"sample", info.cursor.sample}}},
                            {"seed", info.seed},
                            {"mesh", info.mesh},
                            {"other_steps", found.others},
                            {"verified", verified},
                            {"arrays", arrays},
                            {"shards", shards},
                            {"metrics", info.metrics},
                            {"config", info.config}};
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

int run(const InspectArguments& arguments) {
  const FoundCheckpoint found = find(arguments.checkpoint);
  const CheckpointInfo info = inspect_checkpoint(found.path, arguments.verify);
  if (arguments.json)
    print_json(info, found, arguments.verify);
  else
    print_text(info, found, arguments.verify);
  return kDone;
}

}  // namespace

void add_inspect_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("inspect", "show the contents of a checkpoint");
  auto arguments = std::make_shared<InspectArguments>();
  add_run_argument(*command, arguments->checkpoint);
  command->add_flag("--verify", arguments->verify, "also verify the checksums of all shards");
  command->add_flag("--json", arguments->json, "print JSON");
  const std::string& name = program.get_name();
  add_examples(*command, {name + " inspect run", name + " inspect run/step_00001000 --verify"});
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->checkpoint = find_run("inspect", arguments->checkpoint);
      return run(*arguments);
    };
  });
}

}  // namespace lockstep::cli
