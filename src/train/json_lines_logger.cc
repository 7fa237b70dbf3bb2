#include <fmt/chrono.h>
#include <fmt/compile.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

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

class JsonLinesLogger final : public Logger {
 public:
  JsonLinesLogger(const std::string& dir, FileSystem& files, LogClock clock)
      : file_(dir + "/metrics.jsonl", files, std::move(clock)) {}

  void begin(const RunInfo& info) override {
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
    open_line("step", step);
    add_scalars(scalars);
    close_line();
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

  void open_line(const char* kind, int64_t step) {
    add(R"({{"kind":"{}","step":{},"time":{:.3f})", kind, step, file_.unix_seconds());
  }

  void close_line() {
    add("}}\n");
    file_.buffer().append(line_.data(), line_.size());
    line_.clear();
    file_.added();
  }

  // Called at every step, so formats are compiled.
  void add_scalars(const Scalars& scalars) {
    const fmt::appender out(line_);
    for (const auto& [name, value] : scalars) {
      // Avoid the names of the fixed fields of a line.
      const bool taken = name == "kind" || name == "step" || name == "time";
      if (plain(name))
        fmt::format_to(out, FMT_COMPILE(",\"{}{}\":"), taken ? "scalar_" : "", name);
      else
        add(",{}:", json_quoted(name));
      if (std::isfinite(value))
        fmt::format_to(out, FMT_COMPILE("{}"), value);
      else
        add("null");  // JSON has neither nan nor inf
    }
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
