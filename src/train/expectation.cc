#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/alarms.h"

namespace lockstep {

Expectation parse_expectation(const std::string& text) {
  const auto bad = [&](std::string_view why) {
    throw_error("expect: \"{}\" {}; write a metric, a comparison and a number, such as 'test_accuracy>=0.97'", text,
                why);
  };
  const size_t at = text.find_first_of("<>=");
  if (at == std::string::npos) bad("has no comparison (>=, >, <=, <, ==)");
  size_t after = at + 1;
  if (after < text.size() && text[after] == '=') ++after;
  Expectation out{.metric = text.substr(0, at), .comparison = text.substr(at, after - at)};
  const auto trim = [](std::string s) {
    const size_t begin = s.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : s.substr(begin, s.find_last_not_of(' ') - begin + 1);
  };
  out.metric = trim(out.metric);
  const std::string number = trim(text.substr(after));
  if (out.comparison == "=") bad("uses =, which is not a comparison; for equality use ==");
  if (out.metric.empty()) bad("has no metric");
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.value);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(out.value))
    bad("does not end in a finite number");
  return out;
}

bool is_met(const Expectation& expectation, const std::vector<std::pair<std::string, double>>& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) {
    names.push_back(name);
    if (name != expectation.metric) continue;
    if (expectation.comparison == ">=") return value >= expectation.value;
    if (expectation.comparison == ">") return value > expectation.value;
    if (expectation.comparison == "<=") return value <= expectation.value;
    if (expectation.comparison == "<") return value < expectation.value;
    return value == expectation.value;
  }
  if (names.empty()) throw_error("expect: unknown metric \"{}\"; the run has no metrics", expectation.metric);
  const std::string nearest = suggestion(expectation.metric, names);
  throw_error("expect: unknown metric \"{}\"; the metrics are {}{}{}", expectation.metric, fmt::join(names, ", "),
              nearest.empty() ? "" : ";", nearest);
}

std::string to_string(const Expectation& e) { return fmt::format("{}{}{}", e.metric, e.comparison, e.value); }

}  // namespace lockstep
