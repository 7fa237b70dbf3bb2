// A strict reader of the text format of Prometheus, version 0.0.4, for tests of what programs export.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class PrometheusText {
 public:
  // Adds a test failure for each violation of the format.
  explicit PrometheusText(std::string_view text) {
    if (!text.empty() && !text.ends_with('\n')) fail("the last line has no end", text);
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (line.starts_with("# HELP ") || line.starts_with("# TYPE "))
        read_comment(line);
      else if (!line.empty() && !line.starts_with('#'))
        read_sample(line);
    }
    for (const auto& [name, type] : types_)
      if (type == "histogram") check_histogram(name);
  }

  using Labels = std::map<std::string, std::string>;
  bool has(const std::string& name) const { return types_.contains(name); }
  std::string type(const std::string& name) const { return types_.contains(name) ? types_.at(name) : ""; }
  // The only sample with this name; NaN and a test failure if there is none, or several.
  double value(const std::string& name) const {
    const auto found = samples_.equal_range(name);
    if (std::distance(found.first, found.second) != 1) {
      ADD_FAILURE() << std::distance(found.first, found.second) << " samples of " << name;
      return std::numeric_limits<double>::quiet_NaN();
    }
    return found.first->second.second;
  }
  // The labels of all samples with this name.
  std::vector<Labels> labels(const std::string& name) const {
    std::vector<Labels> out;
    for (auto [at, end] = samples_.equal_range(name); at != end; ++at) out.push_back(at->second.first);
    return out;
  }

 private:
  static void fail(const char* what, std::string_view line) { ADD_FAILURE() << what << ": " << line; }

  static size_t name_size(std::string_view text, bool colon) {
    size_t i = 0;
    while (i < text.size() &&
           (std::isalpha(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_' || (colon && text[i] == ':') ||
            (i > 0 && std::isdigit(static_cast<unsigned char>(text[i])) != 0)))
      ++i;
    return i;
  }

  void read_comment(std::string_view line) {
    std::string_view rest = line.substr(7);
    const std::string name(rest.substr(0, name_size(rest, true)));
    rest.remove_prefix(name.size());
    if (name.empty() || (!rest.empty() && rest[0] != ' ')) return fail("no name of a metric", line);
    if (!rest.empty()) rest.remove_prefix(1);
    if (line.starts_with("# HELP ")) {
      if (!helped_.insert(name).second) fail("a second HELP", line);
      for (size_t i = 0; i < rest.size(); ++i)
        if (rest[i] == '\\' && (++i == rest.size() || (rest[i] != '\\' && rest[i] != 'n'))) fail("wrong escape", line);
      return;
    }
    static const std::set<std::string_view> kTypes = {"counter", "gauge", "histogram", "summary", "untyped"};
    if (!kTypes.contains(rest)) fail("unknown type", line);
    if (!types_.emplace(name, rest).second) fail("a second TYPE", line);
    current_ = name;
  }

  static bool read_value(std::string_view text, double& out) {
    if (text == "+Inf" || text == "-Inf" || text == "NaN") {
      out = text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                          : (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
      return true;
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && std::isfinite(out);
  }

  // NAME="VALUE" and what follows.
  bool read_label(std::string_view& rest, Labels& labels) {
    const std::string name(rest.substr(0, name_size(rest, false)));
    rest.remove_prefix(name.size());
    if (name.empty() || !rest.starts_with("=\"")) return false;
    rest.remove_prefix(2);
    std::string value;
    for (; !rest.empty() && rest[0] != '"'; rest.remove_prefix(1)) {
      if (rest[0] != '\\') {
        value += rest[0];
        continue;
      }
      rest.remove_prefix(1);
      if (rest.empty() || (rest[0] != '\\' && rest[0] != '"' && rest[0] != 'n')) return false;
      value += rest[0] == 'n' ? '\n' : rest[0];
    }
    if (rest.empty() || !labels.emplace(name, value).second) return false;
    rest.remove_prefix(1);
    return true;
  }

  void read_sample(std::string_view line) {
    std::string_view rest = line;
    const std::string name(rest.substr(0, name_size(rest, true)));
    rest.remove_prefix(name.size());
    if (name.empty()) return fail("no name of a metric", line);
    Labels labels;
    if (rest.starts_with('{')) {
      rest.remove_prefix(1);
      while (!rest.starts_with('}')) {
        if (!read_label(rest, labels)) return fail("wrong label", line);
        if (rest.starts_with(',')) rest.remove_prefix(1);
      }
      rest.remove_prefix(1);
    }
    double value = 0;
    if (!rest.starts_with(' ') || !read_value(rest.substr(1), value)) return fail("no value", line);
    if (name != current_ && !is_part_of_current(name)) fail("a sample outside of its metric, or without TYPE", line);
    if (!unique_.emplace(name, labels).second) fail("a sample is given twice", line);
    samples_.emplace(name, std::pair(std::move(labels), value));
  }

  bool is_part_of_current(const std::string& name) const {
    const std::string type = types_.contains(current_) ? types_.at(current_) : "";
    for (const char* suffix : {"_sum", "_count", "_bucket"})
      if (name == current_ + suffix)
        return type == "histogram" || (type == "summary" && std::string_view(suffix) != "_bucket");
    return false;
  }

  // Buckets are cumulative, and the last one has all observations. For histograms with one set of labels.
  void check_histogram(const std::string& name) const {
    std::map<double, double> buckets;
    for (auto [at, end] = samples_.equal_range(name + "_bucket"); at != end; ++at) {
      double bound = 0;
      const auto le = at->second.first.find("le");
      if (le == at->second.first.end() || !read_value(le->second, bound)) return fail("a bucket without le", name);
      buckets[bound] = at->second.second;
    }
    double before = 0;
    for (const auto& [bound, count] : buckets) {
      if (count < before) fail("buckets are not cumulative", name);
      before = count;
    }
    if (buckets.empty() || !std::isinf(buckets.rbegin()->first)) fail("no bucket le=\"+Inf\"", name);
    EXPECT_EQ(before, value(name + "_count")) << name;
    EXPECT_GE(value(name + "_sum"), 0) << name;
  }

  std::map<std::string, std::string> types_;
  std::set<std::string> helped_;
  std::string current_;  // the metric whose samples follow
  std::multimap<std::string, std::pair<Labels, double>> samples_;
  std::set<std::pair<std::string, Labels>> unique_;
};

}  // namespace lockstep
