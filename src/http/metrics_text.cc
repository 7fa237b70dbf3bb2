#include "http/metrics_text.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::http {
namespace {

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (c == '"' && quotes)) out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void MetricsText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, type);
}

void MetricsText::add(double value, const Labels& labels, std::string_view suffix) {
  std::string all;
  const auto append = [&](const Labels& list) {
    for (const auto& [name, text] : list)
      all += fmt::format("{}{}=\"{}\"", all.empty() ? "" : ",", name, escaped(text, true));
  };
  append(labels_);
  append(labels);
  text_ += name_;
  text_ += suffix;
  if (!all.empty()) text_ += "{" + all + "}";
  text_ += " " + number(value) + "\n";
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  begin(name, "gauge", help);
  add(value);
}

void MetricsText::counter(std::string_view name, std::string_view help, double value) {
  begin(name, "counter", help);
  add(value);
}

std::string metric_name(std::string_view name) {
  std::string out;
  for (const char c : name) out += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? c : '_';
  return out;
}

}  // namespace lockstep::http
