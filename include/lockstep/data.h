// Image data sets: MNIST, Fashion-MNIST and CIFAR-10 by name, any IDX files by path, or synthetic images.
// image_data.h has these and more kinds as sources.
// docs/how-to/data.md lists the sources of files and how they are verified. Functions are safe from any thread;
// callbacks run in the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/source.h"

namespace lockstep {

class FileSystem;

struct ImageDataset {
  std::vector<uint8_t> images;  // (count, rows, cols), or (count, rows, cols, channels) with several; 0 to 255
  std::vector<uint8_t> labels;  // (count), each below classes
  int64_t count = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t channels = 1;
  int64_t classes = 0;
};

struct Dataset {
  ImageDataset train;
  ImageDataset test;
};

// A progress event while a data set is fetched. The views are valid only during the callback.
struct DataEvent {
  enum class Kind {
    receiving,  // `bytes` of `total` have arrived (total 0: unknown; bytes 0: the request was just sent)
    present,    // the file already exists with the correct checksum
    stored,     // the file was fetched, verified and stored in the folder
    note,       // a problem and how it is handled, in `text`
  };
  Kind kind = Kind::note;
  std::string_view file = {};    // "train-images-idx3-ubyte"
  std::string_view source = {};  // a description of the source
  int64_t bytes = 0;
  int64_t total = 0;
  std::string_view text = {};
};

struct DataOptions {
  // A folder with the files, raw or .gz. If given, no other source is used. For fetch_dataset: the folder to store
  // them in.
  std::string dir = {};
  // The cache for fetched files, with one folder per data set. Empty: $LOCKSTEP_CACHE_DIR, else
  // $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep.
  std::string cache_dir = {};
  // Whether files may be downloaded from mirrors or with the package manager.
  bool allow_download = true;
  // Verify the checksums of cached files again. They were verified when written; by default only size and header are
  // checked.
  bool verify = false;
  // Called for every event. If empty, notes are printed to stderr.
  std::function<void(const DataEvent&)> progress = {};
};

// The names of the data sets that consist of files: images ("mnist", "fashion-mnist") and text ("moby-dick", "sotu").
std::vector<std::string> dataset_names();

// A named data set, and where its files are on this machine.
struct DatasetInfo {
  std::string name;
  std::string kind;  // "images" or "text"
  int64_t files = 0;
  int64_t bytes = 0;
  std::string folder = {};  // with all files, not verified: options.dir, the cache or a system package; empty: none
};
// Lists the data sets of dataset_names() in the same order. Throws IoError when a folder cannot be read.
std::vector<DatasetInfo> list_datasets(const DataOptions& options = {});

// Loads a data set into memory. Names:
//   "mnist", "fashion-mnist"   fetched if not found on this machine
//   "synthetic"                synthetic_digits(6000, 1000)
//   "IMAGES,LABELS"            two IDX files, raw or .gz; the last tenth, at least one image, becomes the test set
//   "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS"
// Throws Error for an unknown name, a wrong file in options.dir, or files that do not match each other. Throws IoError
// when a file cannot be read, or when no source has it, listing every source with its reason.
Dataset load_dataset(std::string_view name, const DataOptions& options = {});

// A set of images and labels as raw IDX files, for data that is streamed from disk.
struct ImageFiles {
  std::string images_path, labels_path;
};
struct DatasetFiles {
  ImageFiles train, test;
};
// The raw files of a data set. Those of a named set are in options.dir, where they are verified and nothing is written,
// or else in the cache, where they are fetched if missing. A name of paths must have all four. Throws Error for
// "synthetic", which has no files, and for a compressed file; otherwise throws as load_dataset does.
DatasetFiles dataset_files(std::string_view name, const DataOptions& options = {});

// Generates images of 28 x 28 pixels in ten classes. Each class has a smooth random pattern. An image shows the pattern
// of its class, shifted by up to two pixels, with random contrast and noise. Training and test images use the same
// patterns. The same seed gives the same images on every machine. Throws Error for a negative number.
Dataset synthetic_digits(int64_t train, int64_t test, uint64_t seed = 0);

// Ensures that options.dir, or the cache, contains all files of a set with correct checksums. Fetches files that are
// missing or wrong. Returns the folder. Throws as load_dataset does.
std::string fetch_dataset(std::string_view name, const DataOptions& options = {});

// The result of verify_dataset for one file.
struct DataCheck {
  std::string file;
  std::string path;  // empty when missing
  std::string md5;   // of the raw bytes; empty when missing or unreadable
  std::string expected_md5;
  std::string problem;  // empty when the file is correct
};

// Verifies the checksums of all files in options.dir, or in the cache. Does not fetch or change anything.
std::vector<DataCheck> verify_dataset(std::string_view name, const DataOptions& options = {});

// Loads images and labels of any size from two IDX files, raw or .gz, without checksums. Images must have three
// dimensions, or four with channels, labels one, and the counts must agree. The number of classes is the largest label
// plus one.
ImageDataset load_idx_pair(const std::string& images_path, const std::string& labels_path);

// Images and labels as a source with the fields "images" and "labels". The first form is resident; its memory is moved,
// not copied; `origins` are paths for messages. Throws Error when the sizes and labels of the set are inconsistent. The second form reads images from disk
// when they are needed; only the labels are kept in memory. Throws as load_idx_pair does when the headers are wrong, and
// Error for .gz files, because these do not allow random access. `files` null: the real file system; it must outlive
// the source.
SourcePtr image_source(ImageDataset set, const ImageFiles& origins = {});
SourcePtr image_source(const ImageFiles& paths, FileSystem* files = nullptr);

}  // namespace lockstep
