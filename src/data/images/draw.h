// Drawing on RGB images: text in a small font, and scaled images. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "data/images/image_codec.h"

namespace lockstep::detail {

using Color = std::array<uint8_t, 3>;

// A character takes 6 x 8 pixels, with the space to the next one.
inline constexpr int64_t kGlyphCols = 6, kGlyphRows = 8;

// An image of one color.
DecodedImage blank_image(int64_t rows, int64_t cols, const Color& color);

// Draws text with its upper left corner at (row, col). Letters are drawn as capitals, and characters that the font does
// not have as "?". What is outside of the image is cut off. REQUIRES: the image has 3 channels.
void draw_text(DecodedImage& image, int64_t row, int64_t col, std::string_view text, const Color& color);

// Draws `from`, each pixel as a square of factor x factor. A gray image becomes RGB. What is outside is cut off.
void draw_image(DecodedImage& image, int64_t row, int64_t col, const DecodedImage& from, int64_t factor);

}  // namespace lockstep::detail
