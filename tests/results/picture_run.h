// A run that has learned to tell dark, light and striped pictures apart, and pictures to try it on.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "data/images/png_write.h"
#include "support/program.h"

namespace lockstep {

inline void write_text(const std::string& path, const std::string& text) {
  FileSystem::real().make_dirs(parent_dir(path));
  FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

inline void write_picture(const std::string& path, const detail::DecodedImage& image) {
  const std::vector<uint8_t> png = detail::to_png(image);
  FileSystem::real().make_dirs(parent_dir(path));
  FileSystem::real().write(path, png);
}

// A gray picture; `kind`: dark, light or striped. `seed` changes its shades a little.
inline detail::DecodedImage picture(const std::string& kind, int seed, int64_t rows = 8, int64_t cols = 8) {
  detail::DecodedImage out{.rows = rows, .cols = cols, .channels = 1, .pixels = {}};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) {
      const bool light = kind == "light" || (kind == "striped" && col * 4 / cols % 2 == 0);
      out.pixels.push_back(static_cast<uint8_t>((light ? 200 : 20) + (row * 7 + col * 3 + seed * 5) % 30));
    }
  return out;
}

// The folder of a run on pictures in folders dark, light and striped, trained once.
inline const std::string& picture_run() {
  static const TempDir dir;
  static const std::string run = [] {
    const std::string data = dir.path() + "/pictures", out = dir.path() + "/run";
    for (const char* kind : {"dark", "light", "striped"})
      for (int i = 0; i < 30; ++i) {
        const std::string part = i < 20 ? "/train/" : "/test/";
        write_picture(data + part + kind + "/" + std::to_string(i) + ".png", picture(kind, i));
      }
    const ProcessResult result = run_lockstep({"train", "--dataset", "images:" + data, "--model", "mlp", "--steps",
                                               "60", "--batch-size", "20", "--checkpoint-dir", out, "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return out;
  }();
  return run;
}

// The folder of its data set.
inline std::string picture_data() { return parent_dir(picture_run()) + "/pictures"; }

}  // namespace lockstep
