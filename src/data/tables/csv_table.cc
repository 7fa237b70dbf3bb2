#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"
#include "data/tables/csv_reader.h"
#include "data/tables/table.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMaxCsvColumns = 1 << 20;
constexpr size_t kMaxCategories = 1 << 20;

using Cells = std::vector<std::string_view>;

// Reads the examples of a CSV file into a table.
class CsvTableReader {
 public:
  CsvTableReader(const std::string& path, const TableFormat& format, FileSystem& files)
      : reader_(path, ',', files), format_(format) {
    table_.name = path;
  }

  Table read() {
    Cells cells;
    if (!reader_.next(cells)) throw_error("read {}: the file has no lines with cells; give a table", reader_.path());
    const bool named = has_header(cells);
    set_columns(cells, named);
    if (named && !reader_.next(cells))
      throw_error("read {}: it has the names of the columns, but no examples; add lines", reader_.path());
    category_ = is_category(cells);
    do {
      add(cells);
    } while (reader_.next(cells));
    if (category_) number_classes();
    return std::move(table_);
  }

 private:
  bool has_header(const Cells& cells) const {
    if (format_.header == "yes") return true;
    if (format_.header == "no") return false;
    if (format_.header != "auto")
      throw_error("data: the header setting of a table is \"{}\"; choose auto, yes or no", format_.header);
    double ignored = 0;
    return std::ranges::none_of(cells, [&](std::string_view cell) { return parse_csv_number(cell, ignored); });
  }

  void set_columns(const Cells& cells, bool named) {
    if (cells.size() < 2 || cells.size() > kMaxCsvColumns)
      throw_error(
          "read {}: line {} has {} cell{}; a table has features and a target, separated by commas: 2 to {} "
          "columns",
          reader_.path(), reader_.line(), cells.size(), cells.size() == 1 ? "" : "s", kMaxCsvColumns);
    for (size_t i = 0; i < cells.size(); ++i)
      names_.push_back(named && !cells[i].empty() ? std::string(cells[i]) : std::to_string(i + 1));
    target_ = target_column(named);
    for (size_t i = 0; i < names_.size(); ++i)
      if (i != target_) table_.feature_names.push_back(names_[i]);
    table_.target_name = names_[target_];
    if (format_.like &&
        (format_.like->feature_names != table_.feature_names || format_.like->target_name != table_.target_name))
      throw_error("read {}: its columns are not those of {}; use files with the same columns in the same order",
                  reader_.path(), format_.like->name);
  }

  size_t target_column(bool named) const {
    if (format_.target.empty()) return names_.size() - 1;
    const auto found = std::find(names_.begin(), names_.end(), format_.target);
    if (found == names_.end())
      throw_error("read {}: it has no column \"{}\"{}; the columns are {}{}", reader_.path(), printable(format_.target),
                  named ? "" : " and no names of columns", column_list(),
                  named ? ";" + printable(suggestion(format_.target, names_)) : "");
    if (std::find(found + 1, names_.end(), format_.target) != names_.end())
      throw_error("read {}: it has two columns \"{}\"; rename one", reader_.path(), printable(format_.target));
    return static_cast<size_t>(found - names_.begin());
  }
  std::string column_list() const {
    constexpr size_t kMost = 20;
    std::string out;
    for (size_t i = 0; i < std::min(kMost, names_.size()); ++i) out += (i ? ", " : "") + printable(names_[i], 40);
    return names_.size() > kMost ? out + ", ..." : out;
  }

  bool is_category(const Cells& first) const {
    if (format_.like) return format_.like->classes > 0;
    if (format_.kind == "category") return true;
    if (format_.kind == "number") return false;
    if (format_.kind != "auto")
      throw_error("data: the kind of a target is \"{}\"; choose auto, number or category", format_.kind);
    double ignored = 0;
    return first.size() == names_.size() && !first[target_].empty() && !parse_csv_number(first[target_], ignored);
  }

  void add(const Cells& cells) {
    if (cells.size() != names_.size())
      throw_error("read {}: line {} has {} cell{}, but there are {} columns; fix the line", reader_.path(),
                  reader_.line(), cells.size(), cells.size() == 1 ? "" : "s", names_.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i != target_) {
        table_.features.push_back(number(cells[i], i));
      } else if (category_) {
        add_category(cells[i]);
      } else {
        table_.targets.push_back(number(cells[i], i));
      }
    }
  }

  std::string place(size_t column) const {
    const std::string number = std::to_string(column + 1);
    return fmt::format("line {}, column {}{}", reader_.line(), number,
                       names_[column] == number ? "" : fmt::format(" ({})", printable(names_[column], 60)));
  }

  float number(std::string_view cell, size_t column) const {
    double value = 0;
    if (parse_csv_number(cell, value)) {
      if (const auto out = static_cast<float>(value); std::isfinite(out)) return out;
      throw_error("read {}: {}: {} is out of the range of f32; scale the column", reader_.path(), place(column),
                  printable(cell, 60));
    }
    if (cell.find_first_not_of(' ') == cell.npos)
      throw_error("read {}: {}: the cell is empty; fill it, or remove the line", reader_.path(), place(column));
    throw_error("read {}: {}: \"{}\" is not a number; {}", reader_.path(), place(column), printable(cell, 60),
                column == target_ ? "fix it, or make the target a category" : "fix it, or remove the column");
  }

  void add_category(std::string_view cell) {
    if (cell.empty())
      throw_error("read {}: {}: the cell is empty; fill it, or remove the line", reader_.path(), place(target_));
    auto found = categories_.find(cell);
    if (found == categories_.end()) {
      if (format_.like && !std::ranges::binary_search(format_.like->class_names, cell))
        throw_error("read {}: {}: the class \"{}\" is not in {}; remove the line, or add training examples",
                    reader_.path(), place(target_), printable(cell, 60), format_.like->name);
      if (categories_.size() >= kMaxCategories)
        throw_error("read {}: {}: more than {} classes; choose another target column", reader_.path(), place(target_),
                    kMaxCategories);
      found = categories_.emplace(std::string(cell), static_cast<int32_t>(categories_.size())).first;
    }
    table_.labels.push_back(found->second);
  }

  // Categories were numbered as they came; their sorted order gives the class numbers.
  void number_classes() {
    if (format_.like) {
      table_.class_names = format_.like->class_names;
    } else {
      for (const auto& [name, number] : categories_) table_.class_names.push_back(name);
    }
    std::vector<int32_t> numbers(categories_.size());
    for (const auto& [name, number] : categories_)
      numbers[static_cast<size_t>(number)] =
          static_cast<int32_t>(std::ranges::lower_bound(table_.class_names, name) - table_.class_names.begin());
    for (int32_t& label : table_.labels) label = numbers[static_cast<size_t>(label)];
    table_.classes = std::ssize(table_.class_names);
  }

  CsvReader reader_;
  const TableFormat& format_;
  Table table_;
  std::vector<std::string> names_;  // of all columns
  size_t target_ = 0;
  bool category_ = false;
  std::map<std::string, int32_t, std::less<>> categories_;
};

}  // namespace

Table read_csv_table(const std::string& path, const TableFormat& format, FileSystem& files) {
  return CsvTableReader(path, format, files).read();
}

}  // namespace lockstep::detail
