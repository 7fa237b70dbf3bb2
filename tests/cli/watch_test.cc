// `lockstep train --metrics-port` and `--trace`, alone and in a job of two processes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cli/training.h"
#include "support/http_connection.h"
#include "support/listener.h"
#include "support/prometheus.h"

namespace lockstep {
namespace {

using nlohmann::json;

json events_at(const std::string& path) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
  return json::parse(std::string(bytes.begin(), bytes.end())).at("traceEvents");
}

// `lockstep launch` of two processes that train.
Words launch_command(const Words& flags) {
  Words command = train_command(flags);
  command.erase(command.begin());
  return Words{program_path(), "launch", "-n", "2", "--"} + command;
}

// What a process of a job serves, when it has made a step.
std::string metrics_after_a_step(int port, const RunningProgram& program) {
  std::string text;
  EXPECT_TRUE(comes_true([&] {
    if (program.ended()) return true;
    if (HttpConnection client(port, true); client.is_connected()) text = client.get("/metrics");
    return text.find("\nlockstep_loss{") != text.npos;
  }));
  return text.substr(std::min(text.find("\r\n\r\n") + 4, text.size()));
}

TEST(TrainMetrics, AreServedByEveryProcessWhileItTrains) {
  const TempDir dir;
  int port = unused_port();
  while (unused_port() != port + 1) port = unused_port();
  RunningProgram job(
      launch_command({"--steps", "1000000", "--metrics-port", std::to_string(port), "--run-dir",
                      dir.path() + "/the-run", "--eval-every", "1000000", "--checkpoint-every", "1000000"}));
  for (const int rank : {0, 1}) {
    const PrometheusText read(metrics_after_a_step(port + rank, job));
    EXPECT_GE(read.value("lockstep_step"), 1);
    EXPECT_EQ(read.value("lockstep_total_steps"), 1'000'000);
    EXPECT_EQ(read.value("lockstep_world_size"), 2);
    EXPECT_EQ(
        read.labels("lockstep_loss"),
        (std::vector<PrometheusText::Labels>{{{"rank", std::to_string(rank)}, {"run", "the-run"}, {"model", "mlp"}}}));
  }
  job.send(SIGTERM);
  job.wait();
}

TEST(TrainMetrics, AFreePortIsPrinted) {
  const RunningProgram::Result result = train({"--steps", "2", "--metrics-port", "auto", "--no-save"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(
      std::regex_search(result.err, std::regex("lockstep: metrics are served at http://127.0.0.1:[0-9]+/metrics\n")))
      << result.err;
}

TEST(TrainMetrics, APortInUseEndsTheRunBeforeItStarts) {
  const TempDir dir;
  const Listener listener;
  const RunningProgram::Result result =
      train({"--steps", "2", "--metrics-port", std::to_string(listener.port()), "--run-dir", dir.path() + "/run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, fmt::format("lockstep: train: cannot listen on 127.0.0.1:{}: Address already in use; choose "
                                    "another --metrics-port or --metrics-host\n",
                                    listener.port()));
  EXPECT_FALSE(FileSystem::real().exists(dir.path() + "/run"));
}

TEST(TrainMetrics, WrongSettingsAreUsageErrors) {
  for (const char* port : {"x", "65536", "-1"})
    expect_usage_error({"train", "--metrics-port", port},
                       fmt::format("train: metrics_port: \"{}\" is not a port; give a number from 1 to 65535, auto for "
                                   "a free one, or 0 for none",
                                   port));
  expect_usage_error({"train", "--metrics-host", "0.0.0.0"},
                     "train: metrics_host: no metrics are served; give --metrics-port, too");
  for (const char* steps : {"5", "5..", "..5", "0..5", "6..5", "1..x"})
    expect_usage_error(
        {"train", "--trace", "t.json", "--trace-steps", steps},
        fmt::format("train: trace_steps: \"{}\" is not FIRST..LAST; give two step numbers from 1 on, such "
                    "as 10..20",
                    steps));
  expect_usage_error({"train", "--trace-steps", "1..5"},
                     "train: trace_steps: there is no trace; give --trace FILE, too");
}

TEST(TrainTrace, OfAJobHasAllRanks) {
  const TempDir dir;
  const std::string file = dir.path() + "/new/trace.json";
  RunningProgram job(
      launch_command({"--steps", "6", "--trace", file, "--trace-steps", "3..4", "--run-dir", dir.path() + "/run"}));
  const RunningProgram::Result result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_contains(result.out + result.err, "the trace is in " + file + "; open it at https://ui.perfetto.dev");
  std::set<std::pair<int, std::string>> seen;
  int64_t steps = 0;
  for (const json& event : events_at(file)) {
    if (event["ph"] != "X") continue;
    seen.emplace(event["pid"], event["cat"]);
    steps += event["cat"] == "step" ? 1 : 0;
  }
  for (const int rank : {0, 1}) {
    for (const char* category : {"step", "data", "dispatch", "compute", "collective"})
      EXPECT_TRUE(seen.contains({rank, category})) << rank << " " << category;
    EXPECT_FALSE(events_at(fmt::format("{}/run/trace/rank_{}.json", dir.path(), rank)).empty());
  }
  EXPECT_EQ(steps, 4);
}

TEST(TrainTrace, AFileThatCannotBeWrittenEndsTheRunBeforeItStarts) {
  const TempDir dir;
  FileSystem::real().write(dir.path() + "/file", {});
  const RunningProgram::Result result =
      train({"--steps", "2", "--trace", dir.path() + "/file/t.json", "--run-dir", dir.path() + "/run"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_contains(result.err, dir.path() + "/file");
  EXPECT_FALSE(FileSystem::real().exists(dir.path() + "/run"));
}

// A run that is continued with its settings is not traced again.
TEST(TrainTrace, IsNotASettingOfTheRun) {
  const TempDir dir;
  const std::string file = dir.path() + "/trace.json", run = dir.path() + "/run";
  ASSERT_EQ(train({"--steps", "3", "--trace", file, "--trace-steps", "1..2", "--run-dir", run}).exit_code, 0);
  const std::vector<uint8_t> config = FileSystem::real().read_file(run + "/config.yaml");
  expect_lacks(std::string(config.begin(), config.end()), "trace.json");
}

}  // namespace
}  // namespace lockstep
