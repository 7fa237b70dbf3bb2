#include "cluster/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/check.h"
#include "base/printable.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMaxHosts = 65536, kLongestName = 255;

class Expander {
 public:
  Expander(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  std::vector<std::string> run() {
    for (;;) {
      const std::vector<std::string> names = entry();
      check_count(out_.size() + names.size());
      out_.insert(out_.end(), names.begin(), names.end());
      if (at_ == text_.size()) return out_;
      ++at_;  // the comma
    }
  }

 private:
  [[noreturn]] void fail(std::string_view fact) const {
    throw_error("initialize: {} is \"{}\": {}; write a host list like n[001-003,7],login1", source_, printable(text_),
                fact);
  }

  void check_count(size_t count) const {
    if (count > kMaxHosts) fail(fmt::format("that is more than {} hosts", kMaxHosts));
  }

  // Called before names grow: this and check_count() bound the memory.
  void check_length(size_t length) const {
    if (length > kLongestName) fail(fmt::format("a name has more than {} characters", kLongestName));
  }

  // Parses up to the next comma outside of brackets: text and brackets in turn.
  std::vector<std::string> entry() {
    std::vector<std::string> names = {""};
    size_t longest = 0;  // of them
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',') {
      const char c = text_[at_++];
      if (c == ']') fail("it has an unmatched closing bracket");
      if (c == ' ' || c == '\t' || c == '\n') fail("it contains a space");
      if (c != '[') {
        const size_t first = at_ - 1;
        at_ = std::min(text_.find_first_of(",[] \t\n", at_), text_.size());
        check_length(longest += at_ - first);
        for (std::string& name : names) name += text_.substr(first, at_ - first);
        continue;
      }
      const std::vector<std::string> numbers = bracket();
      check_count(names.size() * numbers.size());
      size_t digits = 0;
      for (const std::string& number : numbers) digits = std::max(digits, number.size());
      check_length(longest += digits);
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& number : numbers) longer.push_back(name + number);
      names = std::move(longer);
    }
    if (at_ == begin) fail("a name is missing");
    return names;
  }

  // `001-003,7]`
  std::vector<std::string> bracket() {
    const size_t end = text_.find(']', at_);
    if (end == text_.npos) fail("a bracket is not closed");
    std::vector<std::string> out;
    for (;;) {
      const size_t stop = std::min(text_.find(',', at_), end);
      add_range(text_.substr(at_, stop - at_), out);
      at_ = stop + 1;
      if (stop == end) return out;
    }
  }

  // `7` or `001-003`
  void add_range(std::string_view range, std::vector<std::string>& out) const {
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const uint64_t low = number(first, range);
    const uint64_t high = dash == range.npos ? low : number(range.substr(dash + 1), range);
    if (high < low) fail(fmt::format("the range {} runs backwards", range));
    check_count(out.size() + (high - low < kMaxHosts ? high - low + 1 : kMaxHosts + 1));
    for (uint64_t i = low; i <= high; ++i) out.push_back(fmt::format("{:0{}}", i, first.size()));
  }

  uint64_t number(std::string_view digits, std::string_view range) const {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // At most 18 digits, which fit 64 bits, so that the loop over a range ends.
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() > 18)
      fail(fmt::format("\"{}\" is not a number or a range of numbers", range));
    return value;
  }

  const std::string_view text_, source_;
  size_t at_ = 0;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text, std::string_view source) {
  return Expander(text, source).run();
}

}  // namespace lockstep::detail
