#include "data/tables/csv_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kCsvPart = 1 << 20;

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Parses up to 15 digits with a decimal point. Both the digits and the power of ten are then exact doubles, so that one
// division rounds correctly. Returns false for other numbers, which take the general way.
bool parse_short_number(const char* at, const char* end, double& value) {
  const bool negative = at != end && *at == '-';
  if (negative) ++at;
  if (end - at > 16 || at == end) return false;
  uint64_t digits = 0;
  int count = 0, fraction = 0;
  for (; at != end && is_digit(*at); ++at, ++count) digits = 10 * digits + static_cast<uint64_t>(*at - '0');
  if (at != end && *at == '.') {
    for (++at; at != end && is_digit(*at); ++at, ++count, ++fraction)
      digits = 10 * digits + static_cast<uint64_t>(*at - '0');
  }
  if (at != end || count == 0 || count > 15) return false;
  value = static_cast<double>(digits) / kPowersOfTen[fraction];
  if (negative) value = -value;
  return true;
}

}  // namespace

bool parse_csv_number(std::string_view cell, double& value) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  if (!cell.empty() && cell.front() == '+') {
    cell.remove_prefix(1);
    if (cell.empty() || !(is_digit(cell.front()) || cell.front() == '.')) return false;
  }
  const char *at = cell.data(), *end = at + cell.size();
  if (parse_short_number(at, end, value)) return true;
  const size_t first = cell.starts_with('-') ? 1 : 0;
  if (cell.size() <= first || !(is_digit(cell[first]) || cell[first] == '.')) return false;
  const auto [stop, error] = std::from_chars(at, end, value);
  return error == std::errc() && stop == end;
}

CsvReader::CsvReader(const std::string& path, char separator, FileSystem& files)
    : path_(path),
      file_(files.open(path)),
      separator_(separator),
      part_(static_cast<size_t>(std::min(kCsvPart, files.size(path) + 1))) {
  if (!refill()) throw_error("read {}: the file is empty; give a table with a line for each example", path_);
  const std::string_view start(at_, static_cast<size_t>(end_ - at_));
  if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff"))
    throw_error("read {}: the text is UTF-16; save it as UTF-8", path_);
  if (start.starts_with("\xef\xbb\xbf")) at_ += 3;
}

bool CsvReader::refill() {
  if (ended_) return false;
  const size_t rest = static_cast<size_t>(end_ - at_);
  if (static_cast<int64_t>(rest) > kMaxCsvRecord)
    throw_error("read {}: line {} begins a record of more than {} MiB; is a quote not closed?", path_, line_,
                kMaxCsvRecord >> 20);
  std::vector<char> next(std::min(std::max(part_, 2 * rest), static_cast<size_t>(kMaxCsvRecord) + part_));
  if (rest > 0) std::memcpy(next.data(), at_, rest);
  const size_t got = file_->read(offset_, {reinterpret_cast<uint8_t*>(next.data()) + rest, next.size() - rest});
  offset_ += static_cast<int64_t>(got);
  ended_ = got < next.size() - rest;
  buffer_ = std::move(next);
  at_ = buffer_.data();
  end_ = at_ + rest + got;
  return got > 0;
}

const char* CsvReader::scan_plain(const char* from) const {
  const char separator = separator_, *const end = end_;
  for (; from != end; ++from)
    if (*from == separator || *from == '\n') return from;
  return ended_ ? end : nullptr;
}

const char* CsvReader::scan_quoted(const char* from, std::string_view& cell) {
  bool doubled = false;
  const char* at = from + 1;
  for (;; ++at) {
    if (at == end_) {
      if (ended_)
        throw_error("read {}: a quote on line {} is not closed; add the closing quote", path_, line_ + newlines_);
      return nullptr;
    }
    if (*at == '\n') ++newlines_;
    if (*at != '"') continue;
    if (at + 1 == end_ && !ended_) return nullptr;
    if (at + 1 == end_ || at[1] != '"') break;
    doubled = true;
    ++at;
  }
  cell = {from + 1, static_cast<size_t>(at - from - 1)};
  if (doubled) {
    std::string& text = unescaped_.emplace_back();
    for (size_t i = 0; i < cell.size(); ++i) {
      text += cell[i];
      if (cell[i] == '"') ++i;
    }
    cell = text;
  }
  ++at;
  if (at != end_ && *at == '\r') {
    if (at + 1 == end_ && !ended_) return nullptr;
    if (at + 1 == end_ || at[1] == '\n') ++at;
  }
  if (at == end_) return ended_ ? at : nullptr;
  if (*at != separator_ && *at != '\n')
    throw_error("read {}: line {} has text after a closing quote; double a quote inside of a quoted cell", path_,
                line_ + newlines_);
  return at;
}

CsvReader::Scan CsvReader::scan(std::vector<std::string_view>& cells) {
  cells.clear();
  unescaped_.clear();
  newlines_ = 0;
  for (const char* at = at_;;) {
    std::string_view cell;
    const char* stop;
    if (at != end_ && *at == '"') {
      stop = scan_quoted(at, cell);
      if (!stop) return Scan::more;
    } else {
      stop = scan_plain(at);
      if (!stop) return Scan::more;
      cell = {at, static_cast<size_t>(stop - at)};
      if ((stop == end_ || *stop == '\n') && cell.ends_with('\r')) cell.remove_suffix(1);
    }
    cells.push_back(cell);
    if (stop != end_ && *stop == separator_) {
      at = stop + 1;
      continue;
    }
    const bool empty = cells.size() == 1 && cell.empty() && *at_ != '"';
    record_line_ = line_;
    line_ += newlines_ + 1;
    at_ = stop == end_ ? end_ : stop + 1;
    return empty ? Scan::empty_line : Scan::record;
  }
}

bool CsvReader::next(std::vector<std::string_view>& cells) {
  for (;;) {
    if (at_ == end_ && !refill()) return false;
    switch (scan(cells)) {
      case Scan::record:
        return true;
      case Scan::empty_line:
        break;
      case Scan::more:
        refill();
    }
  }
}

}  // namespace lockstep::detail
