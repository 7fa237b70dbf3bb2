#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "train/logging.h"

namespace lockstep {
namespace detail {
namespace {

// A field in the format of RFC 4180: quoted if it contains a special character.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string header(const std::vector<std::string>& columns) {
  std::string out;
  for (const std::string& column : columns) {
    if (!out.empty()) out += ',';
    out += field(column);
  }
  return out + "\n";
}

// Parses the header; sets `end` to the position after it. Empty if the text does not contain a complete header.
std::vector<std::string> parse_header(const std::string& text, size_t& end) {
  std::vector<std::string> columns(1);
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && inside && i + 1 < text.size() && text[i + 1] == '"') {
      columns.back() += c;
      ++i;
    } else if (c == '"') {
      inside = !inside;
    } else if (inside || (c != ',' && c != '\n')) {
      columns.back() += c;
    } else if (c == ',') {
      columns.emplace_back();
    } else {
      end = i + 1;
      return columns;
    }
  }
  return {};
}

// The complete rows of steps up to first_step that have the right number of fields. Fields are numbers, never quoted.
std::string rows_until(const std::string& text, size_t at, size_t columns, int64_t first_step) {
  std::string kept;
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view row = std::string_view(text).substr(at, end - at);
    int64_t step = 0;
    const auto [after, error] = std::from_chars(row.data(), row.data() + row.size(), step);
    const auto commas = static_cast<size_t>(std::count(row.begin(), row.end(), ','));
    if (error != std::errc() || commas + 1 != columns || *after != ',' || step > first_step) continue;
    kept.append(row).push_back('\n');
  }
  return kept;
}

class CsvLogger final : public Logger {
 public:
  CsvLogger(const std::string& dir, FileSystem& files, LogClock clock)
      : file_(dir + "/metrics.csv", files, std::move(clock)) {}

  void begin(const RunInfo& info) override {
    sets_ = info.sets;
    columns_.clear();
    if (info.first_step == 0) return file_.open();
    file_.open([&](const std::string& old) {
      size_t rows = 0;
      columns_ = parse_header(old, rows);
      if (columns_.size() < 2 || columns_[0] != "step" || columns_[1] != "time") {
        columns_.clear();
        return std::string();
      }
      return header(columns_) + rows_until(old, rows, columns_.size(), info.first_step);
    });
  }

  void step(int64_t step, const Scalars& scalars) override { row(step, scalars); }

  void evaluation(int64_t step, const Scalars& scalars) override {
    row(step, scalars);
    file_.flush();
  }

  void end(int64_t, const Scalars&) override { file_.flush(); }

 private:
  void row(int64_t step, const Scalars& scalars) {
    if (file_.broken()) return;
    if (columns_.empty()) {
      // Add the columns of evaluations from the start, so that the first evaluation does not have to rewrite the file.
      columns_ = {"step", "time"};
      for (const auto& [name, value] : scalars) add_column(name);
      for (const std::string& set : sets_)
        for (const auto& [name, value] : task_scalars(scalars)) add_column(set + "_" + name);
      values_.resize(columns_.size());
      file_.buffer() += header(columns_);
    }
    values_.resize(columns_.size());
    const size_t before = columns_.size();
    std::fill(values_.begin(), values_.end(), nullptr);
    for (size_t i = 0; i < scalars.size(); ++i) values_[column(scalars[i].first, i + 2)] = &scalars[i].second;
    if (columns_.size() > before) widen(columns_.size() - before);
    line_.clear();
    const fmt::appender out(line_);
    fmt::format_to(out, FMT_COMPILE("{},{:.3f}"), step, file_.unix_seconds());
    for (size_t i = 2; i < values_.size(); ++i) {
      line_.push_back(',');
      if (values_[i] != nullptr) fmt::format_to(out, FMT_COMPILE("{}"), *values_[i]);
    }
    line_.push_back('\n');
    file_.buffer().append(line_.data(), line_.size());
    file_.added();
  }

  // The index of a column, which is added if it does not exist. `guess`: where to look first.
  size_t column(const std::string& name, size_t guess) {
    if (guess < columns_.size() && columns_[guess] == name) return guess;
    const auto at = std::find(columns_.begin() + 2, columns_.end(), name);
    const auto index = static_cast<size_t>(at - columns_.begin());
    if (at == columns_.end()) {
      columns_.push_back(name);
      values_.push_back(nullptr);
    }
    return index;
  }

  void add_column(const std::string& name) {
    if (std::find(columns_.begin() + 2, columns_.end(), name) == columns_.end()) columns_.push_back(name);
  }

  // Rewrites the file: existing rows get empty fields in the new columns.
  void widen(size_t more) {
    file_.edit([&](const std::string& old) {
      size_t at = 0;
      parse_header(old, at);
      std::string out = header(columns_);
      for (size_t end; (end = old.find('\n', at)) != std::string::npos; at = end + 1)
        out.append(old, at, end - at).append(more, ',').push_back('\n');
      return out;
    });
  }

  LogFile file_;
  std::vector<std::string> sets_ = {"test"};  // that are evaluated
  std::vector<std::string> columns_;
  std::vector<const double*> values_;  // of the current row; null: empty
  fmt::memory_buffer line_;            // the current row
};

}  // namespace

std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem& files, LogClock clock) {
  return std::make_shared<CsvLogger>(dir, files, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> csv_logger(const std::string& dir, FileSystem* files) {
  return detail::csv_logger(dir, files != nullptr ? *files : FileSystem::real(), detail::LogClock::real());
}

}  // namespace lockstep
