// The inputs of `lockstep predict`: image files, rows of .npy and CSV files, examples of a data set. Each becomes an
// example in the form that a model takes. Used by the main thread, except InputSet::read().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/images/image_codec.h"
#include "train/config.h"
#include "train/model_info.h"

namespace lockstep::cli {

// What was changed in inputs to make them fit the model, counted. Safe from any thread.
class Conversions {
 public:
  void add(const std::string& change) {
    const std::lock_guard lock(mutex_);
    ++counts_[change];
  }
  // "3 images were scaled to 28 x 28 pixels", ordered by change.
  std::vector<std::string> notes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

// Converts an image to the size and channels of the model, row-major.
struct ImageForm {
  int64_t rows = 0, cols = 0, channels = 1;
  bool invert = false;
  bool expects_dark = false;  // training images are light on dark: bright ones are counted in a note

  int64_t bytes() const { return rows * cols * channels; }
  void convert(detail::DecodedImage image, std::byte* out, Conversions& conversions) const;
};
ImageForm image_form(const ModelInfo& info, const TrainConfig& config, bool invert);

// Some of the inputs.
class InputSet {
 public:
  virtual ~InputSet() = default;
  virtual int64_t count() const = 0;
  virtual std::string name(int64_t i) const = 0;
  // What the data says about the input, such as its class; empty if unknown.
  virtual std::string label(int64_t) const { return ""; }
  // Writes the example: pixels u8, or features f32. Throws Error or IoError when the input is damaged. Safe from any
  // thread. REQUIRES: `out` has room.
  virtual void read(int64_t i, std::byte* out, Conversions& conversions) const = 0;
};
using InputSets = std::vector<std::unique_ptr<InputSet>>;

// Image files, the images below folders, and .npy files of images. "-" stands for the paths on standard input, one per
// line. Throws Error for paths that do not exist or have no images.
InputSets open_images(const std::vector<std::string>& paths, const ImageForm& form);

// Rows of CSV files and of .npy files with features. Columns are found by their names, if the file has them. Throws Error
// when the file does not fit the model.
InputSets open_tables(const std::vector<std::string>& paths, const ModelInfo& info, Conversions& conversions);

// Examples of the test set of a data set. `range`: "0:10", "5:", ":20", or empty for all. Throws Error when the range is
// not within the set.
struct DatasetInput {
  std::string dataset, data_dir, range;
};
InputSets open_dataset(const DatasetInput& input, const ModelInfo& info, const TrainConfig& config,
                       const ImageForm& form);

}  // namespace lockstep::cli
