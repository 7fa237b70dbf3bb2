// Checkpoints: a folder `step_00001000` with safetensors shards and manifest.json, which is written last. What is there
// is whole: a folder without a manifest, or with one whose sums do not fit, is never loaded. docs/reference/checkpoint-format.md has
// the format. Functions may be called from any thread; a Checkpointer is used by one.
#pragma once

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
  // By path, in order: "params/dense/0/w", "optimizer/first/dense/0/w", "optimizer/step" ...; with their shardings when
  // they are saved; when they are loaded, with those that were asked for, else plain: the mesh of the run that saved
  // them may not exist here.
  std::vector<std::pair<std::string, Array>> arrays = {};
  std::map<std::string, std::string> config = {};  // the resolved settings of the run
  std::map<std::string, double> metrics = {};      // the last known, such as "test_accuracy"
};

// What a checkpoint holds, without its data.
struct CheckpointPiece {
  IndexBox box;        // which part of the array
  std::string shard;   // its file
  int64_t offset = 0;  // of its first byte in the shard's data
};
struct CheckpointEntry {
  std::string name;
  Type type;
  std::string spec;                     // "P('data')"
  PartitionSpec partition;              // the same
  int mesh = -1;                        // in CheckpointInfo::meshes; -1: it lay whole on one device
  std::vector<CheckpointPiece> pieces;  // one, the whole, where one process wrote it
};
struct CheckpointShard {
  std::string file;
  int64_t bytes = 0;
  std::string sha256;
  int64_t chunk_bytes = 0;          // a part of it that can be verified on its own; 0: there is none
  std::vector<std::string> chunks;  // the sums of those, the last of which may be shorter
};
struct CheckpointInfo {
  std::string path;  // of the folder
  int format = 0;
  std::string written_by;  // "lockstep 0.1.0"
  int64_t step = 0;
  Cursor cursor;
  uint64_t seed = 0;
  std::string mesh;                           // "Mesh('data': 8)", empty without one
  std::vector<std::vector<MeshAxis>> meshes;  // the same; several when arrays lay on different ones
  std::vector<CheckpointEntry> entries;
  std::vector<CheckpointShard> shards;
  std::map<std::string, std::string> config;
  std::map<std::string, double> metrics;
};

struct SaveOptions {
  // Arrays go into one file up to this many bytes, then into the next; an array is never cut.
  int64_t shard_bytes = int64_t{2} << 30;
  FileSystem* files = nullptr;  // null: the disk
};

// Writes step_%08d in `dir`, which one process writes at a time, replacing one of that step. Returns its path. Throws
// IoError naming the file; what was in `dir` before stays whole. Throws Error when two arrays have one name, when a
// name is not UTF-8, when an array is traced or donated, and when the step is negative.
std::string save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, const SaveOptions& options = {});

struct LoadOptions {
  // How each array is to lie, by its name and type; undefined: whole, on one device. Of one that is cut across lanes
  // each lane gets its own piece, and only the parts of the files that hold pieces of lanes here are read. Empty: all
  // arrays whole.
  std::function<NamedSharding(const std::string& name, const Type& type)> sharding = {};
  FileSystem* files = nullptr;  // null: the disk
};

// Reads a checkpoint's folder. Every byte that is read is checked against its sum; where all arrays are read, so is
// every byte of the files. Throws Error naming the shard, or the manifest, that is wrong, or the array whose rank does
// not fit its sharding, and IoError when a file cannot be read.
Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options = {});
// Its manifest, and whether the shards are there and as long as it says; their sums are compared only when asked for.
// Throws as load_checkpoint does.
CheckpointInfo inspect_checkpoint(const std::string& path, bool verify = false);

// The steps that have a manifest in `dir`, ascending; no error when there is no such folder.
std::vector<int64_t> list_checkpoints(const std::string& dir);
std::string checkpoint_path(const std::string& dir, int64_t step);

// The checkpoint that --resume names. "" and "none": none. "auto": the whole one of `dir` with the highest step, none
// when there are no checkpoints; each one above it that was refused is told to `say`, with the reason. A step: that of
// `dir`. Else a path: of a checkpoint, or of a folder of them, which stands for its highest whole one. Throws Error
// when what was named is not there or not whole, and when there are checkpoints and none of them is whole.
std::optional<Checkpoint> find_checkpoint(const std::string& dir, const std::string& resume,
                                          const std::function<void(const std::string&)>& say,
                                          const LoadOptions& options = {});

struct CheckpointerOptions {
  std::string dir;
  int64_t keep_last = 3;  // those written last; 0: all
  // The checkpoint with the best value of this metric is kept too; empty: none.
  std::string best_metric = "test_accuracy";
  bool higher_is_better = true;
  // The step that the run goes on from. Higher ones that `dir` held before were passed over, and are neither counted
  // nor removed. None: all that are whole count.
  std::optional<int64_t> resumed_step = {};
  int64_t shard_bytes = SaveOptions{}.shard_bytes;
  FileSystem* files = nullptr;  // null: the disk
};

// With several processes each makes one, of the same folder, and all save the same steps: each writes what its own
// devices hold, and the first puts the checkpoint in its place.
//
// Saves in the background: save() copies the arrays and returns. A failed save is kept for failures() and harms nothing
// that was saved before. Old checkpoints are removed only after a newer one is whole, and what is not whole is neither
// counted nor removed. Those that `dir` held before count as older than those written here, and the best is looked for
// among them too. What processes that died left half-written is removed at the next save.
class Checkpointer {
 public:
  // Throws Error when `dir` is empty, or keep_last or shard_bytes make no sense.
  explicit Checkpointer(CheckpointerOptions options);
  ~Checkpointer();  // waits
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Waits for the save before it, if that is still being written. Throws Error as save_checkpoint does; what the disk
  // does is told by failures().
  void save(Checkpoint checkpoint);
  // Returns when all is written.
  void wait();
  // What failed since the last call: saves, and removals after saves that went well. Empty when all went well.
  std::vector<std::string> failures();
  // Steps written whole so far by this object.
  std::vector<int64_t> saved() const;
  // The step with the best metric among the checkpoints that are there, known from the first save on.
  std::optional<int64_t> best() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
