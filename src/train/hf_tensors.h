// The tensors of a Hugging Face folder: model.safetensors, or shards with model.safetensors.index.json. Reads headers
// first; the bytes of a tensor are read when they are needed. An object must be used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/shape.h"
#include "train/safetensors.h"

namespace lockstep::detail {

class HfTensors {
 public:
  // Reads the headers of all files. Throws Error, naming the file, when a shard is missing, truncated, not a safetensors
  // file, or does not have the tensors that the index lists. Throws IoError when a file cannot be read.
  HfTensors(FileSystem& files, const std::string& dir);

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  // The file of a tensor. REQUIRES: has(name).
  const std::string& file_of(const std::string& name) const { return tensors_.at(name).path; }

  // Throws Error, naming the tensor and the file, when it is missing, has another shape, or its elements are not F32,
  // F16 or BF16.
  void expect(const std::string& name, const Shape& shape) const;
  // The elements of a tensor as f32, in row-major order. Marks it as used. Throws as expect() does, and IoError.
  std::vector<float> read(const std::string& name, const Shape& shape);
  // The tensors that were not read and not ignored.
  std::vector<std::string> unused() const;
  // Marks a tensor as used without reading it.
  void ignore(const std::string& name) { used_.insert(name); }

 private:
  struct Place {
    std::string path;
    SafetensorsEntry entry;
    int64_t data_begin = 0;
  };
  void add_file(const std::string& path);
  void read_index(const std::string& dir);

  FileSystem& files_;
  std::string where_;
  std::map<std::string, Place> tensors_;
  std::set<std::string> used_;
};

}  // namespace lockstep::detail
