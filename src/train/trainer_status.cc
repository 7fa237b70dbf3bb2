#include "train/trainer_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/os/http.h"
#include "base/print_stderr.h"
#include "base/start_thread.h"

namespace lockstep {
namespace detail {
namespace {

constexpr size_t kMaxMetrics = 256, kMaxNameLength = 64;  // limits of the TrainJob status

struct PostedProgress {
  int64_t step = 0, total = 0;
  double seconds_left = -1;  // -1: unknown
  double unix_seconds = 0;
  Scalars step_scalars = {}, test_scalars = {};
};

std::string time_of(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string body_of(const PostedProgress& progress) {
  nlohmann::ordered_json status = nlohmann::ordered_json::object();
  if (progress.total > 0) {
    const int64_t percent = 100 * progress.step / progress.total;
    status["progressPercentage"] = std::clamp<int64_t>(percent, 0, 100);
  }
  if (progress.seconds_left >= 0)
    status["estimatedRemainingSeconds"] =
        static_cast<int64_t>(std::min(std::ceil(progress.seconds_left), 2147483647.0));
  nlohmann::ordered_json metrics = nlohmann::ordered_json::array();
  for (const Scalars* scalars : {&progress.step_scalars, &progress.test_scalars})
    for (const auto& [name, value] : *scalars)
      if (std::isfinite(value) && !name.empty() && name.size() <= kMaxNameLength && metrics.size() < kMaxMetrics)
        metrics.push_back({{"name", name}, {"value", fmt::format("{:.6g}", value)}});
  if (!metrics.empty()) status["metrics"] = std::move(metrics);
  status["lastUpdatedTime"] = time_of(progress.unix_seconds);
  return nlohmann::ordered_json{{"trainerStatus", std::move(status)}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string token_of(const std::string& path) {
  if (path.empty()) return "";
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, 1 << 20);
  std::string token(bytes.begin(), bytes.end());
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  return token;
}

class TrainerStatusLogger final : public Logger {
 public:
  TrainerStatusLogger(const TrainerStatusOptions& options, LogClock clock)
      : options_(options), clock_(std::move(clock)) {}
  ~TrainerStatusLogger() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void begin(const RunInfo& info) override {
    progress_ = {.step = info.first_step, .total = info.total_steps};
    first_step_ = info.first_step;
    began_ = last_queued_ = clock_.steady_seconds();
    {
      const std::lock_guard lock(mutex_);
      ended_ = false;  // another run with the same logger
    }
    enqueue();
    if (!thread_.joinable()) thread_ = start_thread([this] { send_all(); });
  }
  void step(int64_t step, const Scalars& scalars) override {
    progress_.step = step;
    const double now = clock_.steady_seconds();
    if (now - last_queued_ < std::chrono::duration<double>(options_.interval).count()) return;
    last_queued_ = now;
    progress_.step_scalars = scalars;
    enqueue();
  }
  void evaluation(int64_t step, const Scalars& scalars) override {
    progress_.step = step;
    progress_.test_scalars = scalars;
  }
  void end(int64_t step, const Scalars& metrics) override {
    progress_.step = step;
    progress_.step_scalars = metrics;
    progress_.test_scalars = {};  // the final metrics include them
    enqueue();
    // Wait until the last message is sent, because the pod ends with the process.
    std::unique_lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, options_.deadline, [this] { return !waiting_ && !sending_; });
  }

 private:
  // Hands progress_ to the sending thread, replacing a message that was not sent yet.
  void enqueue() {
    const int64_t made = progress_.step - first_step_;
    progress_.seconds_left = made > 0 ? (clock_.steady_seconds() - began_) / static_cast<double>(made) *
                                            static_cast<double>(std::max<int64_t>(progress_.total - progress_.step, 0))
                                      : -1;
    progress_.unix_seconds = clock_.unix_seconds();
    {
      const std::lock_guard lock(mutex_);
      waiting_ = progress_;
    }
    changed_.notify_all();
  }

  void send_all() {
    std::unique_lock lock(mutex_);
    auto next = std::chrono::steady_clock::now();
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || waiting_; });
      if (!waiting_) return;
      changed_.wait_until(lock, next, [this] { return stop_ || ended_; });
      if (stop_ && !ended_) return;  // the run ended with an exception
      const PostedProgress progress = *std::exchange(waiting_, std::nullopt);
      sending_ = true;
      lock.unlock();
      send(progress);
      lock.lock();
      sending_ = false;
      next = std::chrono::steady_clock::now() + options_.interval;
      changed_.notify_all();
    }
  }

  void send(const PostedProgress& progress) {
    try {
      http_post_json(
          options_.url, body_of(progress),
          {.ca_file = options_.ca_file, .bearer = token_of(options_.token_file), .deadline = options_.deadline});
    } catch (const std::exception& error) {
      if (!std::exchange(warned_, true))
        print_stderr("lockstep: reporting progress to Kubeflow Trainer failed: {}; training continues\n", error.what());
    }
  }

  const TrainerStatusOptions options_;
  LogClock clock_;
  PostedProgress progress_;  // used only by the training thread
  int64_t first_step_ = 0;
  double began_ = 0, last_queued_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<PostedProgress> waiting_;
  bool sending_ = false, ended_ = false, stop_ = false;
  bool warned_ = false;  // used only by thread_
  std::thread thread_;
};

}  // namespace

std::optional<TrainerStatusOptions> trainer_status_options(const Environment& environment) {
  const auto variable = [&](const char* name) {
    const auto at = environment.find(name);
    return at == environment.end() ? "" : at->second;
  };
  TrainerStatusOptions options;
  options.url = variable("KUBEFLOW_TRAINER_SERVER_URL");
  if (options.url.empty()) return std::nullopt;
  if (!options.url.starts_with("https://"))
    throw_error(
        "KUBEFLOW_TRAINER_SERVER_URL is \"{}\", but must start with https:// because a token is sent to it; correct "
        "it, or unset it",
        options.url);
  options.ca_file = variable("KUBEFLOW_TRAINER_SERVER_CA_CERT");
  options.token_file = variable("KUBEFLOW_TRAINER_SERVER_TOKEN");
  return options;
}

std::shared_ptr<Logger> trainer_status_logger(const TrainerStatusOptions& options, LogClock clock) {
  return std::make_shared<TrainerStatusLogger>(options, std::move(clock));
}

}  // namespace detail

std::shared_ptr<Logger> trainer_status_logger() {
  detail::Environment environment;
  for (const char* name :
       {"KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN"})
    if (const auto value = environment_variable(name)) environment[name] = *value;
  try {
    const std::optional<detail::TrainerStatusOptions> options = detail::trainer_status_options(environment);
    return options ? detail::trainer_status_logger(*options, detail::LogClock::real()) : nullptr;
  } catch (const Error& error) {  // a warning only; the run does not depend on it
    print_stderr("lockstep: {}\n", error.what());
    return nullptr;
  }
}

}  // namespace lockstep
