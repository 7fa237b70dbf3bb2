// Image data sets: MNIST and Fashion-MNIST by name, any IDX files by path, or images made on the spot.
// docs/how-to/data.md says where files are looked for and how they are checked. Every function may be called from any thread;
// callbacks run on the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ImageDataset {
  std::vector<uint8_t> images;  // (count, rows, cols), 0 to 255
  std::vector<uint8_t> labels;  // (count), each below classes
  int64_t count = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t classes = 0;
};

struct Dataset {
  ImageDataset train;
  ImageDataset test;
};

// What happens while a data set is being brought in. The views are valid during the callback only.
struct DataEvent {
  enum class Kind {
    receiving,  // bytes of total have arrived (total 0: not known; bytes 0: the source has just been asked)
    present,    // the file was there already; its sum was right
    stored,     // the file has arrived, its sum is right, and it lies in the folder
    note,       // text says what went wrong and what is done about it
  };
  Kind kind = Kind::note;
  std::string_view file = {};    // "train-images-idx3-ubyte"
  std::string_view source = {};  // where it comes from, in words
  int64_t bytes = 0;
  int64_t total = 0;
  std::string_view text = {};
};

struct DataOptions {
  // A folder that holds the four files, raw or .gz. When given, no other source is asked. For fetch_dataset: where to
  // put them.
  std::string dir = {};
  // Where fetched files are kept, one folder per data set. Empty: $LOCKSTEP_CACHE_DIR, else $XDG_CACHE_HOME/lockstep,
  // else
  // ~/.cache/lockstep.
  std::string cache_dir = {};
  // Whether mirrors and the package manager may be asked.
  bool allow_download = true;
  // Compute the sums of files in the cache too. They were checked when written; without this only size and header are.
  bool verify = false;
  // Called for every event. When empty, notes go to the standard error stream.
  std::function<void(const DataEvent&)> progress = {};
};

// The data sets that have names and files: "mnist", "fashion-mnist".
std::vector<std::string> dataset_names();

// The data set of that name:
//   "mnist", "fashion-mnist"   fetched when it is nowhere on this machine
//   "synthetic"                synthetic_digits(6000, 1000)
//   "IMAGES,LABELS"            paths of two IDX files, raw or .gz; their last tenth, at least one image, is the test
//   set "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS"
// Throws Error for an unknown name, a wrong file in options.dir or files that do not fit each other, IoError when a
// file cannot be read or (listing every source with its reason) when no source has it.
Dataset load_dataset(std::string_view name, const DataOptions& options = {});

// An image data set on the disk, for sets that are not to be loaded: raw IDX files.
struct ImageFiles {
  std::string images_path, labels_path;
};
struct DatasetFiles {
  ImageFiles train, test;
};
// Where the raw files of a data set lie: those of a name in options.dir, where they are checked and nothing is written,
// or else in the cache, into which they are fetched first; of paths all four must be given. Throws Error for
// "synthetic", which has no files, for a compressed file, and as load_dataset does.
DatasetFiles dataset_files(std::string_view name, const DataOptions& options = {});

// Images of 28 x 28 pixels in ten classes that need no file: each class has a smooth pattern of its own, each image
// shows its class's pattern moved by up to two pixels, fainter or stronger, under noise. The same on every machine for
// the same seed; the test images are others of the same classes. Throws Error for a negative number.
Dataset synthetic_digits(int64_t train, int64_t test, uint64_t seed = 0);

// Makes sure that options.dir, or the cache, holds the four files with the right sums; fetches those that are
// missing or wrong. Returns the folder. Throws as load_dataset does.
std::string fetch_dataset(std::string_view name, const DataOptions& options = {});

// What verify_dataset found about one file.
struct DataCheck {
  std::string file;
  std::string path;  // empty when missing
  std::string md5;   // of the raw bytes; empty when missing or unreadable
  std::string expected_md5;
  std::string problem;  // empty when the file is right
};

// Computes the sums of the four files in options.dir, or in the cache. Fetches nothing, changes nothing.
std::vector<DataCheck> verify_dataset(std::string_view name, const DataOptions& options = {});

// Images and labels of any size from two IDX files, raw or .gz, with no checksum. The images have three dimensions and
// the labels one; counts must agree. The number of classes is the largest label plus one.
ImageDataset load_idx_pair(const std::string& images_path, const std::string& labels_path);

}  // namespace lockstep
