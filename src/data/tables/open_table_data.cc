#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "data/share.h"
#include "data/split_list.h"
#include "data/tables/table.h"
#include "lockstep/split.h"
#include "lockstep/table_data.h"

namespace lockstep {
namespace detail {
namespace {

constexpr std::string_view kCsvPrefix = "csv:", kNpyPrefix = "npy:";
constexpr uint64_t kTableTestSeed = 1, kTableValidationSeed = 0;
constexpr double kTableTestShare = 0.1;

// Opens the files of one table: FILE, or X and Y.
Table read_table(std::span<const std::string> paths, bool npy, const TableFormat& format) {
  return npy ? read_npy_table(paths[0], paths[1], format) : read_csv_table(paths[0], format);
}

struct TablePaths {
  bool npy = false;
  std::vector<std::string> paths;  // of one table, or of two
  size_t each() const { return npy ? 2 : 1; }
};

TablePaths table_paths(const std::string& dataset) {
  TablePaths out{.npy = dataset.starts_with(kNpyPrefix), .paths = {}};
  if (!out.npy && !dataset.starts_with(kCsvPrefix))
    throw_error("data: \"{}\" is not a table; give csv:FILE or npy:X.npy,Y.npy", dataset);
  out.paths = split_list(std::string_view(dataset).substr(kCsvPrefix.size()), ',');
  const bool empty = std::ranges::any_of(out.paths, [](const std::string& path) { return path.empty(); });
  if (empty || (out.paths.size() != out.each() && out.paths.size() != 2 * out.each()))
    throw_error("data: \"{}\" has {} paths{}; give csv:FILE[,TEST_FILE] or npy:X.npy,Y.npy[,TEST_X.npy,TEST_Y.npy]",
                dataset, out.paths.size(), empty ? ", some of them empty" : "");
  return out;
}

// Means and standard deviations of columns over some rows, in double precision. Two passes, so that large means do not
// cancel.
struct ColumnMoments {
  std::vector<float> means, deviations;

  ColumnMoments(const std::vector<float>& values, int64_t columns, const Source& rows) {
    std::vector<double> sums(static_cast<size_t>(columns)), squares(static_cast<size_t>(columns));
    const auto for_each_row = [&](const auto& f) {
      for (int64_t i = 0; i < rows.count(); ++i) f(values.data() + rows.row(0, i) * columns);
    };
    const auto count = static_cast<double>(rows.count());
    for_each_row([&](const float* row) {
      for (size_t c = 0; c < sums.size(); ++c) sums[c] += row[c];
    });
    for (double& sum : sums) sum /= count;
    for_each_row([&](const float* row) {
      for (size_t c = 0; c < sums.size(); ++c) squares[c] += (row[c] - sums[c]) * (row[c] - sums[c]);
    });
    for (size_t c = 0; c < sums.size(); ++c) {
      const double deviation = std::sqrt(squares[c] / count);
      means.push_back(static_cast<float>(sums[c]));
      deviations.push_back(static_cast<float>(deviation) > 0 ? static_cast<float>(deviation) : 1.0f);
    }
  }
};

Table read_validation(const std::string& validation, bool npy, const TableFormat& format) {
  const bool prefixed = validation.starts_with(kCsvPrefix) || validation.starts_with(kNpyPrefix);
  const TablePaths files = table_paths(prefixed ? validation : std::string(npy ? kNpyPrefix : kCsvPrefix) + validation);
  if (files.npy != npy || files.paths.size() != files.each())
    throw_error("data: the validation set is \"{}\"; give a share of the training set such as 0.1, or {}", validation,
                npy ? "npy:X.npy,Y.npy" : "csv:FILE");
  return read_table(files.paths, npy, format);
}

}  // namespace
}  // namespace detail

TableData open_table_data(const TableDataOptions& options) {
  using namespace detail;
  const TablePaths files = table_paths(options.dataset);
  const std::span<const std::string> paths(files.paths);
  TableFormat format{.target = options.target, .header = options.header, .kind = options.kind};
  Table train = read_table(paths.first(files.each()), files.npy, format);
  format.like = &train;
  const std::optional<double> share = parse_share(options.validation);
  TableData out;
  if (paths.size() > files.each()) out.test = table_source(read_table(paths.subspan(files.each()), files.npy, format));
  if (!options.validation.empty() && !share)
    out.validation = table_source(read_validation(options.validation, files.npy, format));

  out.features = train.columns();
  out.feature_names = train.feature_names;
  out.target_name = train.target_name;
  out.classes = train.classes;
  out.class_names = train.class_names;
  const std::vector<float> features = train.features, targets = train.targets;
  out.train = table_source(std::move(train));
  if (!out.test) {
    SourceSplit split = hold_out(out.train, kTableTestShare, kTableTestSeed);
    out.train = std::move(split.kept);
    out.test = std::move(split.held_out);
  }
  if (share) {
    SourceSplit split = hold_out(out.train, *share, kTableValidationSeed);
    out.train = std::move(split.kept);
    out.validation = std::move(split.held_out);
  }
  ColumnMoments moments(features, out.features, *out.train);
  out.means = std::move(moments.means);
  out.deviations = std::move(moments.deviations);
  if (out.classes == 0) {
    const ColumnMoments target(targets, 1, *out.train);
    out.target_mean = target.means[0];
    out.target_deviation = target.deviations[0];
  }
  return out;
}

}  // namespace lockstep
