#include <fmt/chrono.h>
#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/logging.h"

namespace lockstep {
namespace detail {
namespace {

// A JSON string with quotes. Invalid UTF-8 becomes the replacement character.
std::string json_quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The step of a line; none for a line that was truncated by a crash or has another format.
std::optional<double> step_of(std::string_view line) {
  try {
    const auto object = parse_json<nlohmann::json>(line, "a line", {.repeated_keys = true});
    if (!object.is_object()) return std::nullopt;
    const auto step = object.find("step");
    return step != object.end() && step->is_number() ? std::optional(step->get<double>()) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string without_later_steps(const std::string& old, int64_t first_step) {
  std::string kept;
  for (size_t at = 0, end; (end = old.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line = std::string_view(old).substr(at, end - at);
    if (const std::optional<double> step = step_of(line); !step || *step > static_cast<double>(first_step)) continue;
    kept.append(line).push_back('\n');
  }
  return kept;
}

constexpr size_t kStepsInMemory = 4096;

class JsonLinesLogger final : public Logger {
 public:
  JsonLinesLogger(const std::string& dir, FileSystem& files, LogClock clock)
      : file_(dir + "/metrics.jsonl", files, std::move(clock)) {}
  ~JsonLinesLogger() override { format_steps(); }

  void begin(const RunInfo& info) override {
    format_steps();  // of an earlier run with the same logger
    if (info.first_step > 0)
      file_.open([&](const std::string& old) { return without_later_steps(old, info.first_step); });
    else
      file_.open();
    open_line("start", info.first_step);
    const auto seconds = static_cast<std::time_t>(file_.unix_seconds());
    add(R"(,"date":"{:%Y-%m-%dT%H:%M:%SZ}","title":{},"total_steps":{},"steps_per_epoch":{},"config":{{)",
        fmt::gmtime(seconds), json_quoted(info.title), info.total_steps, info.steps_per_epoch);
    const char* comma = "";
    for (const auto& [key, value] : info.config)
      add("{}{}:{}", std::exchange(comma, ","), json_quoted(key), json_quoted(value));
    add("}}");
    close_line();
    file_.flush();
  }

  void step(int64_t step, const Scalars& scalars) override {
    const auto same_name = [](const auto& scalar, const std::string& name) { return scalar.first == name; };
    if (!std::ranges::equal(scalars, names_, same_name)) {
      format_steps();
      names_.clear();
      for (const auto& [name, value] : scalars) names_.push_back(name);
    }
    steps_.push_back({step, file_.unix_seconds()});
    for (const auto& [name, value] : scalars) values_.push_back(value);
    if (steps_.size() < kStepsInMemory && !file_.due()) return;
    format_steps();
    file_.flush();
  }

  void evaluation(int64_t step, const Scalars& scalars) override {
    open_line("evaluation", step);
    add_scalars(scalars);
    close_line();
    file_.flush();
  }

  void message(int64_t step, const std::string& text, bool alarm) override {
    open_line("message", step);
    add(R"(,"alarm":{},"text":{})", alarm, json_quoted(text));
    close_line();
    file_.flush();
  }

  void end(int64_t step, const Scalars& metrics) override {
    open_line("end", step);
    add_scalars(metrics);
    close_line();
    file_.flush();
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(fmt::appender(line_), format, std::forward<Args>(args)...);
  }

  // Formats the steps in memory. Formatting each at once would take several times as long, because the step has evicted
  // the formatter's code and tables from the caches.
  void format_steps() {
    std::vector<std::string> keys;
    for (const std::string& name : names_) keys.push_back("," + key_of(name) + ":");
    auto value = values_.begin();
    for (const auto& [step, seconds] : steps_) {
      add(R"({{"kind":"step","step":{},"time":{:.3f})", step, seconds);
      for (const std::string& key : keys) add_scalar(key, *value++);
      close_line();
    }
    steps_.clear();
    values_.clear();
  }

  void open_line(const char* kind, int64_t step) {
    format_steps();
    add(R"({{"kind":"{}","step":{},"time":{:.3f})", kind, step, file_.unix_seconds());
  }

  void close_line() {
    add("}}\n");
    file_.buffer().append(line_.data(), line_.size());
    line_.clear();
  }

  void add_scalars(const Scalars& scalars) {
    for (const auto& [name, value] : scalars) add_scalar("," + key_of(name) + ":", value);
  }

  void add_scalar(const std::string& key, double value) {
    line_.append(key);
    if (std::isfinite(value))
      fmt::format_to(fmt::appender(line_), FMT_COMPILE("{}"), value);
    else
      add("null");  // JSON has neither nan nor inf
  }

  // The quoted name. Avoids the names of the fixed fields of a line.
  static std::string key_of(const std::string& name) {
    const bool taken = name == "kind" || name == "step" || name == "time";
    return plain(name) ? fmt::format("\"{}{}\"", taken ? "scalar_" : "", name) : json_quoted(name);
  }

  // Whether the name needs no escapes in JSON.
  static bool plain(const std::string& name) {
    for (const char c : name)
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/'))
        return false;
    return true;
  }

  LogFile file_;
  fmt::memory_buffer line_;  // the current line
  // Steps that are not formatted yet: their numbers and times, and the values of these names for each.
  std::vector<std::pair<int64_t, double>> steps_;
  std::vector<std::string> names_;
  std::vector<double> values_;
};

}  // namespace

std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem& files, LogClock clock) {
  return std::make_shared<JsonLinesLogger>(dir, files, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> json_lines_logger(const std::string& dir, FileSystem* files) {
  return detail::json_lines_logger(dir, files != nullptr ? *files : FileSystem::real(), detail::LogClock::real());
}

}  // namespace lockstep
