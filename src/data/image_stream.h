// ImageStream: random access to the images of a raw IDX file on disk. The labels are kept in memory. Immutable, safe
// from any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/loader.h"

namespace lockstep::detail {

class ImageStream {
 public:
  // Checks both headers and reads the labels. Throws as load_idx_pair does, and Error for gzip files. REQUIRES: the
  // file system outlives the stream.
  ImageStream(const ImageFiles& paths, FileSystem& files);

  const std::string& path() const { return path_; }
  int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t classes() const { return classes_; }

  // Reads the images and labels of the examples, in the given order. Consecutive examples are read with one call.
  // Throws IoError. REQUIRES: the buffers are large enough.
  void read(std::span<const int64_t> examples, uint8_t* images, uint8_t* labels) const;

 private:
  std::string path_;
  std::unique_ptr<OpenFile> file_;
  int64_t begin_ = 0;  // position of the first image in the file
  int64_t rows_ = 0, cols_ = 0, classes_ = 0;
  std::vector<uint8_t> labels_;
};

}  // namespace lockstep::detail
