#include "data/images/draw.h"

#include <algorithm>
#include <cctype>

#include "base/printable.h"

namespace lockstep::detail {
namespace {

struct Glyph {
  char character;
  std::array<std::string_view, 7> rows;
};

constexpr std::array kGlyphs = {
#define GLYPH(character, ...) Glyph{character, {__VA_ARGS__}},
#include "data/images/font.def"
#undef GLYPH
};

const Glyph& glyph_of(char character) {
  const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  const Glyph* unknown = &kGlyphs[0];
  for (const Glyph& each : kGlyphs) {
    if (each.character == upper) return each;
    if (each.character == '?') unknown = &each;
  }
  return *unknown;
}

void set_pixel(DecodedImage& image, int64_t row, int64_t col, const Color& color) {
  if (row < 0 || col < 0 || row >= image.rows || col >= image.cols) return;
  const auto at = static_cast<size_t>((row * image.cols + col) * 3);
  for (size_t c = 0; c < 3; ++c) image.pixels[at + c] = color[c];
}

}  // namespace

DecodedImage blank_image(int64_t rows, int64_t cols, const Color& color) {
  DecodedImage out{.rows = rows, .cols = cols, .channels = 3, .pixels = {}};
  out.pixels.reserve(static_cast<size_t>(rows * cols * 3));
  for (int64_t i = 0; i < rows * cols; ++i) out.pixels.insert(out.pixels.end(), color.begin(), color.end());
  return out;
}

void draw_text(DecodedImage& image, int64_t row, int64_t col, std::string_view text, const Color& color) {
  while (!text.empty()) {
    const size_t size = std::max<size_t>(utf8_character_size(text), 1);
    const Glyph& glyph = glyph_of(size == 1 ? text[0] : '?');
    for (size_t r = 0; r < glyph.rows.size(); ++r)
      for (size_t c = 0; c < glyph.rows[r].size(); ++c)
        if (glyph.rows[r][c] == '#')
          set_pixel(image, row + static_cast<int64_t>(r), col + static_cast<int64_t>(c), color);
    col += kGlyphCols;
    text.remove_prefix(size);
  }
}

void draw_image(DecodedImage& image, int64_t row, int64_t col, const DecodedImage& from, int64_t factor) {
  const auto channels = static_cast<size_t>(from.channels);
  for (int64_t r = 0; r < from.rows * factor; ++r)
    for (int64_t c = 0; c < from.cols * factor; ++c) {
      const uint8_t* pixel = from.pixels.data() + static_cast<size_t>(r / factor * from.cols + c / factor) * channels;
      set_pixel(image, row + r, col + c,
                channels == 3 ? Color{pixel[0], pixel[1], pixel[2]} : Color{pixel[0], pixel[0], pixel[0]});
    }
}

}  // namespace lockstep::detail
