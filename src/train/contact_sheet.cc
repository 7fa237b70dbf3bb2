#include "train/contact_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "data/images/draw.h"
#include "train/evaluation_json.h"
#include "train/read_examples.h"

namespace lockstep {
namespace {

constexpr int64_t kLeastCell = 84, kGap = 6, kLines = 3;
constexpr detail::Color kBackground = {24, 24, 27}, kRight = {134, 239, 172}, kWrong = {252, 165, 165},
                        kNumber = {161, 161, 170};

struct Layout {
  int64_t columns, rows, factor, cell_cols, cell_rows;

  Layout(int64_t images, int64_t image_rows, int64_t image_cols)
      : columns(static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(images))))),
        rows((images + columns - 1) / columns),
        factor((kLeastCell + image_cols - 1) / image_cols),
        cell_cols(image_cols * factor),
        cell_rows(image_rows * factor + 2 + kLines * (detail::kGlyphRows + 1)) {}
};

// The text, or its begin if it does not fit before `end`.
std::string fitting(const std::string& text, const std::string& end, int64_t cols) {
  const auto most = static_cast<size_t>(std::max<int64_t>(cols / detail::kGlyphCols, 1));
  const size_t room = most > end.size() ? most - end.size() : 0;
  return text.substr(0, room) + end;
}

bool is_image(const Type& example) {
  const size_t rank = example.shape.size();
  return example.dtype == u8 && (rank == 2 || (rank == 3 && (example.shape[2] == 1 || example.shape[2] == 3)));
}

}  // namespace

bool has_images(const Source& source) {
  return std::ranges::any_of(source.fields(),
                             [](const Field& field) { return field.name == "images" && is_image(field.example); });
}

detail::DecodedImage contact_sheet(const Source& source, const std::vector<ClassificationReport::Mistake>& mistakes,
                                   const std::vector<std::string>& class_names) {
  std::vector<int64_t> examples;
  for (const auto& mistake : mistakes) examples.push_back(mistake.example);
  const BatchArrays batch = read_examples(source, examples);
  const auto found = batch.find("images");
  if (found == batch.end() || found->second.dtype() != u8 || found->second.rank() < 3)
    throw_error("eval: {} has no images, so there is no contact sheet; leave out --worst", source.name());
  const Array& images = found->second;
  detail::DecodedImage image{.rows = images.shape(1), .cols = images.shape(2), .channels = 1, .pixels = {}};
  if (images.rank() == 4) image.channels = images.shape(3);
  if (image.channels != 1 && image.channels != 3)
    throw_error("eval: the images of {} have {} channels, but a contact sheet shows 1 or 3; leave out --worst",
                source.name(), image.channels);
  const int64_t bytes = image.rows * image.cols * image.channels;
  const Layout layout(std::ssize(mistakes), image.rows, image.cols);
  detail::DecodedImage sheet = detail::blank_image(layout.rows * (layout.cell_rows + kGap) + kGap,
                                                   layout.columns * (layout.cell_cols + kGap) + kGap, kBackground);
  for (int64_t i = 0; i < std::ssize(mistakes); ++i) {
    const auto& mistake = mistakes[static_cast<size_t>(i)];
    const int64_t row = kGap + i / layout.columns * (layout.cell_rows + kGap),
                  col = kGap + i % layout.columns * (layout.cell_cols + kGap);
    const uint8_t* pixels = images.data<uint8_t>().data() + i * bytes;
    image.pixels.assign(pixels, pixels + bytes);
    detail::draw_image(sheet, row, col, image, layout.factor);
    int64_t line = row + image.rows * layout.factor + 2;
    const auto write = [&](const std::string& text, const std::string& end, const detail::Color& color) {
      detail::draw_text(sheet, line, col, fitting(text, end, layout.cell_cols), color);
      line += detail::kGlyphRows + 1;
    };
    write("is " + shown_class(class_names, mistake.label), "", kRight);
    write(shown_class(class_names, mistake.predicted),
          fmt::format(" {:.0f}%", 100 * static_cast<double>(mistake.probability)), kWrong);
    write(fmt::format("#{}", mistake.example), "", kNumber);
  }
  return sheet;
}

}  // namespace lockstep
