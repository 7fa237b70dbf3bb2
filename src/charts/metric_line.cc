#include "charts/metric_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/json.h"
#include "base/printable.h"

namespace lockstep::charts {
namespace {

using Kind = MetricLine::Kind;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr JsonLimits kLineLimits = {
    .bytes = kMaxLineBytes, .values = 1'000'000, .keys = 500'000, .key_bytes = 4096, .repeated_keys = true};

void clear(MetricLine& line) {
  line.scalars.clear();
  line.names.clear();
  line.config.clear();
  line.title.clear();
  line.date.clear();
  line.text.clear();
  line.alarm = false;
  line.total_steps = line.steps_per_epoch = 0;
}

std::optional<Kind> kind_of(std::string_view name) {
  if (name == "step") return Kind::step;
  if (name == "evaluation") return Kind::evaluation;
  if (name == "end") return Kind::end;
  if (name == "start") return Kind::start;
  if (name == "message") return Kind::message;
  return std::nullopt;
}

bool has_scalars(Kind kind) { return kind == Kind::step || kind == Kind::evaluation || kind == Kind::end; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads an object of strings without escapes, numbers and null, without building a value: most lines are such objects.
class NumbersScanner {
 public:
  explicit NumbersScanner(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {}

  // Returns false if the line has anything else; it may still be valid.
  bool read(MetricLine& out) {
    bool has_kind = false, has_step = false, has_time = false;
    if (!skip('{')) return false;
    do {
      std::string_view key;
      if (!string(key) || !skip(':')) return false;
      if (key == "kind") {
        std::string_view name;
        if (!string(name)) return false;
        const std::optional<Kind> kind = kind_of(name);
        if (!kind || !has_scalars(*kind)) return false;
        out.kind = *kind;
        has_kind = true;
      } else {
        double value = 0;
        const bool is_field = key == "step" || key == "time";
        if (is_field ? !number(value) : !number_or_null(value)) return false;
        if (key == "step") {
          if (!(value >= 0 && value <= static_cast<double>(kMaxStep)) || value != std::floor(value)) return false;
          out.step = static_cast<int64_t>(value);
          has_step = true;
        } else if (key == "time") {
          out.time = value;
          has_time = true;
        } else {
          out.scalars.emplace_back(key, value);
        }
      }
    } while (skip(','));
    return skip('}') && at_ == end_ && has_kind && has_step && has_time;
  }

 private:
  bool skip(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool string(std::string_view& out) {
    if (!skip('"')) return false;
    const char* begin = at_;
    for (bool ascii = true; at_ != end_; ++at_) {
      const auto c = static_cast<unsigned char>(*at_);
      if (c == '\\' || c < ' ') return false;
      ascii &= c < 0x80;
      if (c != '"') continue;
      out = {begin, static_cast<size_t>(at_ - begin)};
      ++at_;
      return out.size() <= kLineLimits.key_bytes && (ascii || is_utf8(out));
    }
    return false;
  }

  bool number_or_null(double& out) {
    if (end_ - at_ >= 4 && std::string_view(at_, 4) == "null") {
      at_ += 4;
      out = kNan;
      return true;
    }
    return number(out);
  }

  bool digits() {
    const char* begin = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != begin;
  }

  // A number by the grammar of JSON. std::from_chars() alone would accept more.
  bool number(double& out) {
    const char* begin = at_;
    skip('-');
    if (!skip('0') && !digits()) return false;
    if (skip('.') && !digits()) return false;
    if (skip('e') || skip('E')) {
      if (!skip('+')) skip('-');
      if (!digits()) return false;
    }
    const auto [stop, error] = std::from_chars(begin, at_, out);
    return error == std::errc() && stop == at_;
  }

  const char *at_, *end_;
};

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The integer at a key; 0 if there is none from 0 to kMaxStep.
int64_t count_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<double>();
  return value >= 0 && value <= static_cast<double>(kMaxStep) ? found->get<int64_t>() : 0;
}

void read_start(const json& object, MetricLine& out) {
  out.title = text_at(object, "title");
  out.date = text_at(object, "date");
  out.total_steps = count_at(object, "total_steps");
  out.steps_per_epoch = count_at(object, "steps_per_epoch");
  const auto config = object.find("config");
  if (config == object.end() || !config->is_object()) return;
  for (const auto& [key, value] : config->items())
    out.config.emplace_back(key, value.is_string() ? value.get<std::string>() : printable_json(value));
}

void read_scalars(const json& object, MetricLine& out) {
  out.names.reserve(object.size());  // the views stay valid
  for (const auto& [key, value] : object.items()) {
    if (key == "kind" || key == "step" || key == "time") continue;
    if (!value.is_number() && !value.is_null()) continue;
    out.names.push_back(key);
    out.scalars.emplace_back(out.names.back(), value.is_null() ? kNan : value.get<double>());
  }
}

bool read_object(const json& object, MetricLine& out) {
  if (!object.is_object()) return false;
  const std::optional<Kind> kind = kind_of(text_at(object, "kind"));
  const auto step = object.find("step"), time = object.find("time");
  if (!kind || step == object.end() || !step->is_number() || time == object.end() || !time->is_number()) return false;
  const auto number = step->get<double>();
  if (!(number >= 0 && number <= static_cast<double>(kMaxStep)) || number != std::floor(number)) return false;
  out.kind = *kind;
  out.step = static_cast<int64_t>(number);
  out.time = time->get<double>();
  if (*kind == Kind::start) {
    read_start(object, out);
  } else if (*kind == Kind::message) {
    const auto alarm = object.find("alarm");
    out.alarm = alarm != object.end() && alarm->is_boolean() && alarm->get<bool>();
    out.text = text_at(object, "text");
  } else {
    read_scalars(object, out);
  }
  return true;
}

}  // namespace

bool parse_metric_line_as_json(std::string_view line, MetricLine& out) {
  clear(out);
  try {
    return read_object(parse_json<json>(line, "a line", kLineLimits), out);
  } catch (const Error&) {
    return false;
  }
}

bool parse_metric_line(std::string_view line, MetricLine& out) {
  clear(out);
  return (line.size() <= kMaxLineBytes && NumbersScanner(line).read(out)) || parse_metric_line_as_json(line, out);
}

}  // namespace lockstep::charts
