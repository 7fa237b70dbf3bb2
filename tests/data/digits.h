// A tiny data set with the file layout of MNIST: five training and three test images of 4 x 3 pixels.
#pragma once

#include <zlib.h>

#include <array>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/catalog.h"
#include "data/idx.h"

namespace lockstep {

inline std::vector<uint8_t> gzip(const std::vector<uint8_t>& bytes) {
  z_stream state = {};
  deflateInit2(&state, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY);
  std::vector<uint8_t> out(deflateBound(&state, bytes.size()));
  state.next_in = const_cast<Bytef*>(bytes.data());
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = out.data();
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

struct Digits {
  std::array<IdxData, 4> files;  // in the order of DatasetSpec::files
  detail::DatasetSpec spec;

  Digits() {
    for (size_t half = 0; half < 2; ++half) {
      const int64_t n = half == 0 ? 5 : 3;
      IdxData& images = files[2 * half];
      IdxData& labels = files[2 * half + 1];
      images = {{n, 4, 3}, {}};
      labels = {{n}, {}};
      for (int64_t i = 0; i < n * 12; ++i) images.bytes.push_back(static_cast<uint8_t>(31 * i + 5));
      for (int64_t i = 0; i < n; ++i) labels.bytes.push_back(static_cast<uint8_t>(i % 4));
    }
    const char* names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                           "t10k-labels-idx1-ubyte"};
    spec.name = "digits";
    spec.classes = 4;
    spec.files.resize(4);
    for (size_t i = 0; i < 4; ++i) spec.files[i] = {names[i], files[i].shape, idx_md5(files[i])};
  }

  // Writes the four files into a folder, compressed or not; `rename` changes their names.
  template <class Rename>
  void write(const std::string& folder, bool compressed, Rename rename) const {
    FileSystem::real().make_dirs(folder);
    for (size_t i = 0; i < 4; ++i) {
      const std::vector<uint8_t> raw = encode_idx(files[i]);
      FileSystem::real().write(folder + "/" + rename(spec.files[i].name), compressed ? gzip(raw) : raw);
    }
  }
  void write(const std::string& folder) const {
    write(folder, false, [](std::string name) { return name; });
  }
};

}  // namespace lockstep
