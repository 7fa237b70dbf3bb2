// Checkpoints. A checkpoint is a folder such as `step_00001000` with safetensors shards and a manifest.json, which is
// written last. A folder without a manifest, or with a wrong checksum, is incomplete or damaged and is never loaded.
// docs/reference/checkpoint-format.md has the format. Functions are safe from any thread; a Checkpointer must be used
// by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/loader.h"
#include "lockstep/sharding.h"

namespace lockstep {

class FileSystem;

struct Checkpoint {
  int64_t step = 0;
  Cursor cursor = {};
  uint64_t seed = 0;
  // Arrays by path, in order: "params/dense/0/w", "optimizer/first/dense/0/w", "optimizer/step" ... Loaded arrays have
  // the shardings of LoadOptions, not those they were saved with, because that mesh may not exist here.
  std::vector<std::pair<std::string, Array>> arrays = {};
  std::map<std::string, std::string> config = {};  // the resolved settings of the run
  std::map<std::string, double> metrics = {};      // the latest values, such as "test_accuracy"
};

// The contents of a checkpoint, without array data. CheckpointInfo has one entry per array; an array is stored as one
// or more pieces; each piece is in one shard, a safetensors file.
struct CheckpointPiece {
  IndexBox box;        // which part of the array
  std::string shard;   // the file
  int64_t offset = 0;  // of its first byte in the shard's data
};
struct CheckpointEntry {
  std::string name;
  Type type;
  std::string spec;                     // the sharding it was saved with, "P('data')"
  PartitionSpec partition;              // the same as a value
  int mesh = -1;                        // index in CheckpointInfo::meshes; -1: it was on one device
  std::vector<CheckpointPiece> pieces;  // a single one if one process wrote the array
};
struct CheckpointShard {
  std::string file;
  int64_t bytes = 0;
  std::string sha256;
  int64_t chunk_bytes = 0;          // size of the chunks with their own checksums; 0: none
  std::vector<std::string> chunks;  // the chunks' SHA-256 checksums; the last chunk may be shorter
};
struct CheckpointInfo {
  std::string path;  // the folder
  int format = 0;
  std::string written_by;  // "lockstep 0.1.0"
  int64_t step = 0;
  Cursor cursor;
  uint64_t seed = 0;
  std::string mesh;                           // "Mesh('data': 8)"; empty without one
  std::vector<std::vector<MeshAxis>> meshes;  // the same as values; several if arrays were on different meshes
  std::vector<CheckpointEntry> entries;
  std::vector<CheckpointShard> shards;
  std::map<std::string, std::string> config;
  std::map<std::string, double> metrics;
};

struct SaveOptions {
  // A new file is started when this many bytes would be exceeded. An array is never split over files.
  int64_t shard_bytes = int64_t{2} << 30;
  FileSystem* files = nullptr;  // null: the real file system
};

// Writes step_%08d in `dir`, replacing an existing checkpoint of that step. Returns its path. Throws IoError naming the
// file; earlier checkpoints in `dir` stay intact. Throws Error when two arrays have the same name, a name is not UTF-8,
// an array is traced or donated, or the step is negative. REQUIRES: no other run writes to `dir`.
std::string save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, const SaveOptions& options = {});

struct LoadOptions {
  // The sharding of each array, by its name and type; undefined: the complete array on one device. Of an array that is
  // sharded over lanes, each lane gets its own piece, and only the parts of the files that this process needs are read.
  // Empty: all arrays complete, on one device.
  std::function<NamedSharding(const std::string& name, const Type& type)> sharding = {};
  // The names of the arrays to load. Others are not read. Empty: all.
  std::function<bool(const std::string& name)> wanted = {};
  FileSystem* files = nullptr;  // null: the real file system
};

// Reads a checkpoint folder and verifies the checksum of every byte it reads. Throws Error naming the shard or manifest
// that is damaged, or the array whose rank does not fit its sharding. Throws IoError when a file cannot be read.
Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options = {});
// Reads the manifest and checks that the shards exist with the right sizes. Verifies their checksums only if `verify`.
// Throws as load_checkpoint does.
CheckpointInfo inspect_checkpoint(const std::string& path, bool verify = false);

// The steps of the checkpoints with a manifest in `dir`, ascending; empty if the folder does not exist.
std::vector<int64_t> list_checkpoints(const std::string& dir);
std::string checkpoint_path(const std::string& dir, int64_t step);

// Loads the checkpoint that --resume selects:
//   "" or "none"  none
//   "auto"        the complete checkpoint in `dir` with the highest step; none if there are no checkpoints
//   a step        the checkpoint of that step in `dir`
//   a path        that checkpoint, or the complete one with the highest step if it is a folder of checkpoints
// Calls `warn` for each damaged checkpoint that was skipped, with the reason. Throws Error when the selected checkpoint
// is missing or damaged, and when there are checkpoints but none is complete.
std::optional<Checkpoint> find_checkpoint(const std::string& dir, const std::string& resume,
                                          const std::function<void(const std::string&)>& warn,
                                          const LoadOptions& options = {});

struct CheckpointerOptions {
  std::string dir;
  int64_t keep_last = 3;  // number of newest checkpoints to keep; 0: all
  // The checkpoint with the best value of this metric is kept too; empty: no metric.
  std::string best_metric = "test_accuracy";
  bool higher_is_better = true;
  // The step that the run resumed from. Checkpoints above it that already existed were skipped; they are neither
  // counted nor removed. None: all complete checkpoints count.
  std::optional<int64_t> resumed_step = {};
  int64_t shard_bytes = SaveOptions{}.shard_bytes;
  // The longest time for one operation on a file, such as a write to a network file system.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  // Null: the real file system. Must outlive the current save, even if the Checkpointer is destroyed before it.
  FileSystem* files = nullptr;
};

// Saves checkpoints in a background thread and removes old ones. save() copies the arrays and returns. A failed save is
// reported by failures() and does not affect earlier checkpoints.
//
// An old checkpoint is removed only after a newer one is complete. Incomplete ones are neither counted nor removed.
// Checkpoints that already existed in `dir` count as older than those written here, and may be the best one. The next
// save removes partial checkpoints of processes that died.
//
// In a job of several processes each process creates a Checkpointer for the same folder, and all save the same steps.
// Each writes the arrays of its own devices; the first process completes the checkpoint.
class Checkpointer {
 public:
  // Throws Error when `dir` is empty, or keep_last, shard_bytes or deadline is out of range.
  explicit Checkpointer(CheckpointerOptions options);
  // Waits for the current save, unless an operation on a file takes longer than the deadline; then the thread ends by
  // itself when that operation returns.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Waits for the previous save, then starts this one. Throws Error as save_checkpoint does, and IoError as wait() does;
  // failures() reports I/O errors.
  void save(Checkpoint checkpoint);
  // Waits until the current save is complete. Throws IoError when one of its operations on a file takes longer than the
  // deadline; the save goes on, and the next call waits again.
  void wait();
  // Failed saves and removals since the last call.
  std::vector<std::string> failures();
  // The steps that this object saved completely.
  std::vector<int64_t> saved() const;
  // The step with the best metric among the existing checkpoints; none before the first save.
  std::optional<int64_t> best() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with its thread
};

}  // namespace lockstep
