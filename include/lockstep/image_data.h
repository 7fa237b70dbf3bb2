// Image data sets as sources: by name, or as IDX files, folders of PNG and JPEG files, or .npy files.
//
//   ImageData data = open_image_data({.dataset = "images:photos", .validation = "0.1", .rows = 64, .cols = 64});
//   data.train->count();  data.class_names;
//
// docs/how-to/data.md describes the kinds of data. Functions are safe from any thread; callbacks run in the caller's
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data.h"
#include "lockstep/shape.h"
#include "lockstep/source.h"

namespace lockstep {

struct ImageDataOptions {
  // "mnist", "fashion-mnist", "cifar10"    fetched if not found on this machine
  // "synthetic"                            synthetic_digits(6000, 1000)
  // "IMAGES,LABELS[,TEST_IMAGES,TEST_LABELS]"  IDX files
  // "images:DIR"                           DIR/CLASS/NAME.png, or DIR/train/CLASS/NAME.png and DIR/test/CLASS/NAME.png
  // "npy:X.npy,Y.npy[,TEST_X.npy,TEST_Y.npy]"  uint8 images (n, rows, cols[, channels]) and integer labels (n)
  std::string dataset = "mnist";
  // The folder with the files of a named set, and the cache for fetched files: see DataOptions.
  std::string data_dir = {};
  std::string cache_dir = {};
  bool allow_download = true;
  // "on": training images stay on disk. "off": they are in memory. "auto": on disk if they need more than half of the
  // memory. Named sets are then in memory.
  std::string stream = "auto";
  // Empty: none. A share such as "0.1": held out of the training set by hold_out(). Otherwise a set of its own, written
  // like `dataset`, with all its images.
  std::string validation = {};
  // images: scale and crop all images to this size. 0: they must have one size.
  int64_t rows = 0, cols = 0;
  // Only the shapes are needed: a named set that would be in memory is neither read nor fetched, and its images are zeros.
  bool only_shapes = false;
  // Called for every event of a download. If empty, notes are printed to stderr.
  std::function<void(const DataEvent&)> progress = {};
};

// Sources with the fields "images" u8, shape [rows, cols] or [rows, cols, channels], and "labels", a number below
// `classes`: u8 for up to 256 classes, else i32.
struct ImageData {
  SourcePtr train;
  SourcePtr validation = nullptr;  // null: none
  SourcePtr test = nullptr;        // null: none
  Shape shape = {};                // of an image
  int64_t classes = 0;
  std::vector<std::string> class_names = {};  // empty: the classes have only numbers
};

// Opens a data set. Throws Error for an unknown name, wrong options, or files that are damaged or do not match each
// other. Throws IoError when a file cannot be read or fetched. Damaged images of a streamed folder are found by their
// headers, or else by Source::read().
ImageData open_image_data(const ImageDataOptions& options);

// The files or folders of a data set: training images, training labels, test images, test labels; or one folder. Empty
// for synthetic data. For descriptions; does not access the disk.
std::vector<std::string> image_data_files(const ImageDataOptions& options);

// Whether open_image_data() is the function for this name: not text, tokens or tables.
bool is_image_data(const std::string& dataset);

}  // namespace lockstep
