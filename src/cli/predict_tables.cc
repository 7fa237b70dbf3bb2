#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"
#include "cli/predict_inputs.h"
#include "data/tables/csv_reader.h"
#include "data/tables/npy.h"
#include "train/problem.h"
#include "train/read_examples.h"

namespace lockstep::cli {
namespace {

using Cells = std::vector<std::string_view>;

// A row of a table, or why it cannot be used.
struct FeatureRow {
  std::vector<float> features;
  std::string label, error;
};

// The rows of a CSV file with the columns of the model.
class CsvRows final : public InputSet {
 public:
  CsvRows(const std::string& path, const ModelInfo& info, Conversions& conversions)
      : path_(path), info_(info), reader_(path, ',') {
    Cells cells;
    if (!reader_.next(cells)) throw_error("predict: {} has no lines with cells; give rows of the table", path);
    if (is_header(cells)) {
      find_columns(cells, conversions);
      if (!reader_.next(cells)) throw_error("predict: {} has the names of the columns, but no rows; add lines", path);
    } else {
      number_columns(cells.size());
    }
    do add(cells);
    while (reader_.next(cells));
  }

  int64_t count() const override { return std::ssize(rows_); }
  std::string name(int64_t i) const override { return fmt::format("{}:{}", path_, lines_[static_cast<size_t>(i)]); }
  std::string label(int64_t i) const override { return rows_[static_cast<size_t>(i)].label; }
  void read(int64_t i, std::byte* out, Conversions&) const override {
    const FeatureRow& row = rows_[static_cast<size_t>(i)];
    if (!row.error.empty()) throw Error(row.error);
    std::memcpy(out, row.features.data(), row.features.size() * sizeof(float));
  }

 private:
  static bool is_header(const Cells& cells) {
    double ignored = 0;
    return std::ranges::none_of(cells, [&](std::string_view cell) { return detail::parse_csv_number(cell, ignored); });
  }

  void find_columns(const Cells& cells, Conversions& conversions) {
    width_ = cells.size();
    std::vector<std::string> missing;
    for (const std::string& feature : info_.features) {
      const auto found = std::find(cells.begin(), cells.end(), feature);
      if (found == cells.end()) missing.push_back(printable(feature, 60));
      columns_.push_back(static_cast<size_t>(found - cells.begin()));
    }
    if (!missing.empty())
      throw_error("predict: {} has no column {}; the model needs the {} columns of its training table", path_,
                  fmt::join(missing, ", "), info_.features.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i] == info_.target)
        label_ = i;
      else if (std::find(columns_.begin(), columns_.end(), i) == columns_.end())
        conversions.add(fmt::format("column {} of {} is not used by the model", printable(cells[i], 60), path_));
    }
  }

  // A file without names has the columns of the training table, with or without the target.
  void number_columns(size_t width) {
    width_ = width;
    const size_t features = info_.features.size();
    size_t target = features;  // the last column, unless the training table had none with a name
    std::from_chars(info_.target.data(), info_.target.data() + info_.target.size(), target);
    if (width == features + 1) {
      if (info_.target == std::to_string(target) && target >= 1 && target <= width)
        --target;
      else
        target = features;
      label_ = target;
    } else if (width != features) {
      throw_error("predict: line {} of {} has {}; the model needs {} features, or these and the target {}",
                  reader_.line(), path_, counted(static_cast<int64_t>(width), "cell"), features,
                  printable(info_.target, 60));
    }
    for (size_t i = 0; i < width; ++i)
      if (!label_ || i != *label_) columns_.push_back(i);
  }

  void add(const Cells& cells) {
    FeatureRow row;
    lines_.push_back(reader_.line());
    if (cells.size() != width_) {
      row.error = fmt::format("read {}: line {} has {}, but there are {} columns; fix the line", path_, reader_.line(),
                              counted(std::ssize(cells), "cell"), width_);
    } else {
      for (const size_t column : columns_) add_feature(cells[column], column, row);
      if (label_) row.label = std::string(cells[*label_]);
    }
    rows_.push_back(std::move(row));
  }

  void add_feature(std::string_view cell, size_t column, FeatureRow& row) const {
    double value = 0;
    if (detail::parse_csv_number(cell, value) && std::isfinite(static_cast<float>(value))) {
      row.features.push_back(static_cast<float>(value));
    } else if (row.error.empty()) {
      row.error = fmt::format("read {}: line {}, column {}: \"{}\" is not a number in the range of f32; fix the cell",
                              path_, reader_.line(), column + 1, printable(cell, 60));
    }
  }

  std::string path_;
  const ModelInfo& info_;
  detail::CsvReader reader_;
  size_t width_ = 0;
  std::vector<size_t> columns_;  // of the features
  std::optional<size_t> label_;
  std::vector<FeatureRow> rows_;
  std::vector<int64_t> lines_;
};

class NpyRows final : public InputSet {
 public:
  NpyRows(const std::string& path, const ModelInfo& info) : file_(path) {
    const Shape& shape = file_.header().shape;
    const DType dtype = file_.example().dtype;
    if (shape.size() != 2 || shape[1] != std::ssize(info.features) || (dtype != f32 && dtype != f64))
      throw_error("predict: {} has {} {}; the model needs float32 or float64 (n, {})", path,
                  detail::npy_name(file_.header().element), to_string(shape), info.features.size());
  }
  int64_t count() const override { return file_.count(); }
  std::string name(int64_t i) const override { return fmt::format("{}[{}]", file_.path(), i); }
  void read(int64_t i, std::byte* out, Conversions&) const override {
    const Type type = file_.example();
    const auto n = static_cast<size_t>(lockstep::count(type.shape));
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    file_.read({&i, 1}, bytes.data());
    std::vector<float> features(n);
    for (size_t k = 0; k < n; ++k) {
      double wide = 0;
      if (type.dtype == f64) {
        std::memcpy(&wide, bytes.data() + k * sizeof(double), sizeof(double));
        features[k] = static_cast<float>(wide);
      } else {
        std::memcpy(&features[k], bytes.data() + k * sizeof(float), sizeof(float));
      }
      if (!std::isfinite(features[k]))
        throw_error("read {}: element {} is not finite; fix or remove the row", name(i), k);
    }
    std::memcpy(out, features.data(), n * sizeof(float));
  }

 private:
  detail::NpyFile file_;
};

// Examples [begin, end) of a source.
class SourceRows final : public InputSet {
 public:
  SourceRows(SourcePtr source, std::string title, int64_t begin, int64_t end, const ModelInfo& info, ImageForm form)
      : source_(std::move(source)), title_(std::move(title)), begin_(begin), info_(info), form_(form) {
    for (int64_t i = begin; i < end; ++i) examples_.push_back(i);
    batch_ = read_examples(*source_, examples_);
    if (const auto labels = batch_.find("labels"); labels != batch_.end())
      labels_ = labels->second.to_vector<int64_t>();
  }
  int64_t count() const override { return std::ssize(examples_); }
  std::string name(int64_t i) const override { return fmt::format("{}[{}]", title_, begin_ + i); }
  std::string label(int64_t i) const override {
    return labels_.empty() ? "" : class_name(info_, labels_[static_cast<size_t>(i)]);
  }
  void read(int64_t i, std::byte* out, Conversions& conversions) const override {
    if (info_.kind == ModelInfo::Kind::table) {
      const auto width = std::ssize(info_.features);
      std::memcpy(out, batch_.at("features").data<float>().data() + i * width,
                  static_cast<size_t>(width) * sizeof(float));
      return;
    }
    const Array& images = batch_.at("images");
    detail::DecodedImage image{.rows = images.shape(1), .cols = images.shape(2), .channels = 1, .pixels = {}};
    if (images.rank() == 4) image.channels = images.shape(3);
    const int64_t bytes = image.rows * image.cols * image.channels;
    const uint8_t* from = images.data<uint8_t>().data() + i * bytes;
    image.pixels.assign(from, from + bytes);
    form_.convert(std::move(image), out, conversions);
  }

 private:
  SourcePtr source_;
  std::string title_;
  int64_t begin_;
  const ModelInfo& info_;
  ImageForm form_;
  std::vector<int64_t> examples_, labels_;
  BatchArrays batch_;
};

int64_t end_of_range(const std::string& range, std::string_view text, int64_t otherwise) {
  if (text.empty()) return otherwise;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw_error("predict: the range is \"{}\"; give BEGIN:END, such as 0:10", range);
  return value;
}

std::pair<int64_t, int64_t> parse_range(const std::string& range, int64_t count) {
  if (range.empty()) return {0, count};
  const size_t colon = range.find(':');
  if (colon == range.npos) throw_error("predict: the range is \"{}\"; give BEGIN:END, such as 0:10", range);
  const std::string_view text(range);
  const int64_t begin = end_of_range(range, text.substr(0, colon), 0),
                end = end_of_range(range, text.substr(colon + 1), count);
  if (begin >= end || end > count)
    throw_error(
        "predict: the range {} is not within the {} of the data set; give BEGIN:END with 0 <= BEGIN < END <= {}", range,
        counted(count, "example"), count);
  return {begin, end};
}

}  // namespace

InputSets open_tables(const std::vector<std::string>& paths, const ModelInfo& info, Conversions& conversions) {
  InputSets out;
  for (const std::string& path : paths) {
    if (path == "-") throw_error("predict: a table cannot be read from standard input; give a file");
    if (path.ends_with(".npy"))
      out.push_back(std::make_unique<NpyRows>(path, info));
    else
      out.push_back(std::make_unique<CsvRows>(path, info, conversions));
  }
  return out;
}

InputSets open_dataset(const DatasetInput& input, const ModelInfo& info, const TrainConfig& config,
                       const ImageForm& form) {
  const Problem problem =
      builtin_eval_problem(config, {.dataset = input.dataset, .data_dir = input.data_dir, .info = info});
  const SourcePtr& set = problem.test ? problem.test : problem.validation;
  if (!set) throw_error("predict: {} has neither a test set nor a validation set; give files instead", input.dataset);
  const auto [begin, end] = parse_range(input.range, set->count());
  InputSets out;
  out.push_back(std::make_unique<SourceRows>(set, input.dataset, begin, end, info, form));
  return out;
}

}  // namespace lockstep::cli
