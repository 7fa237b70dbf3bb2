// A run serves its newest metrics in the text format of Prometheus.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/engine.h"
#include "support/http_connection.h"
#include "support/prometheus.h"
#include "support/text.h"

namespace lockstep {
namespace {

// The body of the answer.
std::string get(const MetricsServer& server, const std::string& path) {
  const std::string answer = HttpConnection(server.port()).get(path);
  expect_contains(answer, "HTTP/1.1 200 OK\r\n");
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

TEST(MetricsServer, ShowsWhatWasLogged) {
  const auto server = metrics_server({.labels = {{"run", "a\"b"}}});
  const PrometheusText before(get(*server, "/metrics"));
  EXPECT_EQ(before.value("lockstep_step"), 0);
  EXPECT_FALSE(before.has("lockstep_loss"));
  EXPECT_FALSE(before.has("lockstep_lane_memory_bytes"));
  server->begin({.task = "mlp", .total_steps = 50, .first_step = 5, .steps_per_epoch = 10});
  server->timing({.counted_steps = 2, .seconds = 0.3, .data_seconds = 0.1});
  server->step(7, {{"loss", 1.5}, {"accuracy", 0.5}, {"epoch", 0.7}, {"step", 3}, {"two/names", 1}, {"two_names", 2}});
  server->step(8, {{"loss", std::nan("")}, {"accuracy", 0.75}, {"epoch", 0.8}, {"step", 3}, {"two/names", 1}});
  server->evaluation(8, {{"validation_loss", 2}});
  server->evaluation(8, {{"test_loss", 3}});
  server->evaluation(8, {{"test_loss", 4}});
  server->checkpoint(8);
  server->message(8, "note", false);
  server->message(8, "alarm", true);
  const PrometheusText read(get(*server, "/metrics"));
  EXPECT_EQ(read.value("lockstep_step"), 8);
  EXPECT_EQ(read.value("lockstep_total_steps"), 50);
  EXPECT_EQ(read.value("lockstep_epoch"), 0.8);
  EXPECT_TRUE(std::isnan(read.value("lockstep_loss")));
  EXPECT_EQ(read.value("lockstep_accuracy"), 0.75);
  EXPECT_EQ(read.value("lockstep_scalar_step"), 3);  // the name is taken
  EXPECT_EQ(read.value("lockstep_two_names"), 1);
  EXPECT_EQ(read.value("lockstep_validation_loss"), 2);
  EXPECT_EQ(read.value("lockstep_test_loss"), 4);
  EXPECT_EQ(read.value("lockstep_step_duration_seconds_count"), 2);
  EXPECT_EQ(read.value("lockstep_step_duration_seconds_sum"), 0.3);
  EXPECT_EQ(read.value("lockstep_data_wait_seconds_total"), 0.1);
  EXPECT_EQ(read.value("lockstep_checkpoints_total"), 1);
  EXPECT_EQ(read.value("lockstep_checkpoint_step"), 8);
  EXPECT_EQ(read.value("lockstep_alarms_total"), 1);
  EXPECT_EQ(read.value("lockstep_world_size"), 1);
  EXPECT_EQ(read.value("lockstep_restarts"), 0);
  EXPECT_GT(read.value("lockstep_resident_memory_max_bytes"), 1e6);
  EXPECT_EQ(read.labels("lockstep_loss"),
            (std::vector<PrometheusText::Labels>{{{"run", "a\"b"}, {"rank", "0"}, {"model", "mlp"}}}));
  EXPECT_FALSE(read.labels("lockstep_lane_memory_bytes").empty());
  EXPECT_TRUE(read.labels("lockstep_build_info")[0].contains("version"));
  EXPECT_EQ(get(*server, "/healthz"), "{\"status\":\"ok\",\"step\":8}\n");
}

TEST(MetricsServer, FollowsARun) {
  const auto server = metrics_server({});
  Engine engine(find_model("mlp"), {.loggers = {server}});
  TrainState state = engine.create_state();
  Dataset data = synthetic_digits(200, 20);
  Loader loader(std::move(data.train), {.batch_size = 20});
  engine.fit(state, loader, {.steps = 6, .test = image_source(std::move(data.test))});
  const PrometheusText read(get(*server, "/metrics"));
  EXPECT_EQ(read.value("lockstep_step"), 6);
  EXPECT_EQ(read.value("lockstep_step_duration_seconds_count"), 5);  // without the first one, which compiles
  EXPECT_GT(read.value("lockstep_loss"), 0);
  EXPECT_GT(read.value("lockstep_memory"), 0);
  EXPECT_GT(read.value("lockstep_learning_rate"), 0);
  EXPECT_GT(read.value("lockstep_grad_norm"), 0);
  EXPECT_GE(read.value("lockstep_test_accuracy"), 0);
  EXPECT_FALSE(read.has("lockstep_mfu"));  // the peak of a CPU is unknown
}

TEST(MetricsServer, PortsInUseAreErrors) {
  const auto server = metrics_server({});
  try {
    metrics_server({.port = server->port()});
    ADD_FAILURE() << "the port is used twice";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        fmt::format("train: cannot listen on 127.0.0.1:{}: Address already in use; choose another --metrics-port or "
                    "--metrics-host",
                    server->port()));
  }
}

struct LastStep : Logger {
  std::map<std::string, double> values;
  void step(int64_t, const Scalars& scalars) override { values = {scalars.begin(), scalars.end()}; }
  void evaluation(int64_t, const Scalars&) override {}
};

TEST(Mfu, IsTheShareOfThePeak) {
  const auto run = [](double peak, int64_t accumulate) {
    const auto last = std::make_shared<LastStep>();
    Engine engine(find_model("mlp"), {.accumulate = accumulate, .loggers = {last}, .peak = peak});
    TrainState state = engine.create_state();
    Loader loader(synthetic_digits(200, 20).train, {.batch_size = 20});
    engine.fit(state, loader, {.steps = 4});
    return last->values;
  };
  // Three products forwards, five backwards: no gradient flows to the images. Of each example.
  const std::map<std::string, double> values = run(1e9, 1);
  ASSERT_TRUE(values.contains("mfu"));
  const double operations = values.at("mfu") * values.at("step_seconds") * 1e9;
  const double layers = 784 * 256 + 256 * 128 + 128 * 10;
  EXPECT_NEAR(operations / (2.0 * 20 * (3 * layers - 784 * 256)), 1, 1e-6);
  const std::map<std::string, double> accumulated = run(1e9, 2);
  EXPECT_NEAR(accumulated.at("mfu") * accumulated.at("step_seconds") * 1e9 / operations, 1, 1e-6);
  EXPECT_FALSE(run(0, 1).contains("mfu"));
  EXPECT_GT(values.at("memory"), 1e6);
}

}  // namespace
}  // namespace lockstep
