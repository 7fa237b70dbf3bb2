// Progress reports for Kubeflow Trainer, sent to a real HTTPS server.
#include "train/trainer_status.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/os/http.h"
#include "base/throws.h"
#include "cli/training.h"
#include "cluster/certificates.h"
#include "jobs/kubernetes/schema.h"
#include "jobs/kubernetes/tls_server.h"
#include "lockstep/error.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

bool has_curl() {
  try {
    http_post_json("https://127.0.0.1:1/", "", {});
  } catch (const IoError& error) {
    return std::string(error.what()).find("no libcurl") == std::string::npos;
  }
  return true;
}

class TrainerStatus : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // clients may disconnect
    if (!has_curl()) GTEST_SKIP() << "no libcurl";
    write("token", "first-token\n");
  }
  void write(const std::string& name, const std::string& text) {
    FileSystem::real().write(dir_.path() + "/" + name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  TlsFiles certificate() { return authority_.issue("server", "DNS:localhost,IP:127.0.0.1"); }

  // A server that stores the requests and answers with `status`.
  std::unique_ptr<TlsServer> server(int status = 200) {
    return std::make_unique<TlsServer>(certificate(), [this, status](const TlsServer::Request& request) {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      return status;
    });
  }
  detail::TrainerStatusOptions options(const TlsServer& to) {
    return {.url = to.url(),
            .ca_file = dir_.path() + "/authority.pem",
            .token_file = dir_.path() + "/token",
            .interval = std::chrono::milliseconds(0),
            .deadline = std::chrono::seconds(20)};
  }
  std::shared_ptr<Logger> logger(const detail::TrainerStatusOptions& options) {
    return detail::trainer_status_logger(options, {[] { return 1767225600.0; }, [this] { return now_.load(); }});
  }
  std::vector<TlsServer::Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  const TempDir dir_;
  Authority authority_{dir_.path(), "authority"};
  std::mutex mutex_;
  std::vector<TlsServer::Request> requests_;
  std::atomic<double> now_ = 0;
};

TEST_F(TrainerStatus, EndIsReportedWithFinalMetrics) {
  const auto to = server();
  const auto from = logger(options(*to));
  from->begin({.total_steps = 200});
  now_ = 10;
  from->step(50, {{"loss", 0.5}, {"bad", NAN}});
  from->end(200, {{"loss", 0.25}, {"test_accuracy", 0.975}});
  const auto received = requests();
  ASSERT_FALSE(received.empty());
  EXPECT_TRUE(received.back().head.starts_with("POST /status HTTP/1.1\r\n")) << received.back().head;
  EXPECT_NE(received.back().head.find("Authorization: Bearer first-token\r\n"), std::string::npos);
  EXPECT_NE(received.back().head.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(Json::parse(received.back().body),
            Json::parse(R"({"trainerStatus": {"progressPercentage": 100, "estimatedRemainingSeconds": 0,
                "metrics": [{"name": "loss", "value": "0.25"}, {"name": "test_accuracy", "value": "0.975"}],
                "lastUpdatedTime": "2026-01-01T00:00:00Z"}})"));
}

TEST_F(TrainerStatus, MessageMatchesTheTrainJobSchema) {
  const Schemas schemas(std::string(LOCKSTEP_TEST_DATA) + "/schemas/kubernetes.json");
  const auto to = server();
  const auto from = logger(options(*to));
  from->begin({.total_steps = 1000, .first_step = 100});
  Scalars many;
  for (int i = 0; i < 300; ++i) many.emplace_back("metric_" + std::to_string(i), i / 3.0);
  many.emplace_back(std::string(65, 'x'), 1);
  now_ = 30;
  from->end(400, many);
  for (const auto& request : requests()) {
    Json job = {{"apiVersion", "trainer.kubeflow.org/v1alpha1"}, {"kind", "TrainJob"}};
    job["status"] = Json::parse(request.body);
    for (const std::string& fault : schemas.faults(job)) ADD_FAILURE() << fault;
  }
  const Json last = Json::parse(requests().back().body)["trainerStatus"];
  EXPECT_EQ(last["progressPercentage"], 40);
  EXPECT_EQ(last["estimatedRemainingSeconds"], 60);  // 300 steps took 30 s, 600 remain
  EXPECT_EQ(last["metrics"].size(), 256u);
}

TEST_F(TrainerStatus, TokenIsReadForEveryMessage) {
  const auto to = server();
  const auto from = logger(options(*to));
  from->begin({.total_steps = 2});
  write("token", "second-token");
  from->end(2, {});
  EXPECT_NE(requests().back().head.find("Bearer second-token\r\n"), std::string::npos);
}

// Progress that arrives while a message is being sent replaces older progress that was not sent.
TEST_F(TrainerStatus, NewestProgressReplacesUnsentProgress) {
  std::promise<void> asked, release;
  std::atomic<int> count = 0;
  TlsServer to(certificate(), [&](const TlsServer::Request& request) {
    if (count++ == 0) {
      asked.set_value();
      release.get_future().wait_for(std::chrono::seconds(20));
    }
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    return 200;
  });
  const auto from = logger(options(to));
  from->begin({.total_steps = 1000});
  ASSERT_EQ(asked.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  for (int step = 1; step < 1000; ++step) from->step(step, {{"loss", 1.0 / step}});
  release.set_value();
  from->end(1000, {{"loss", 0}});
  const auto received = requests();
  ASSERT_GE(received.size(), 2u);
  EXPECT_LE(received.size(), 3u);  // the first, possibly step 999, and the end
  EXPECT_EQ(Json::parse(received.back().body)["trainerStatus"]["progressPercentage"], 100);
}

TEST_F(TrainerStatus, SendsAtMostOneMessagePerInterval) {
  const auto to = server();
  auto slow = options(*to);
  slow.interval = std::chrono::hours(1);
  const auto from = logger(slow);
  from->begin({.total_steps = 1000});
  for (int step = 1; step < 1000; ++step) from->step(step, {});
  from->end(1000, {});  // sent immediately
  EXPECT_LE(requests().size(), 2u);
  EXPECT_EQ(Json::parse(requests().back().body)["trainerStatus"]["progressPercentage"], 100);
}

TEST_F(TrainerStatus, RejectionIsReportedOnce) {
  const auto to = server(403);
  testing::internal::CaptureStderr();
  {
    const auto from = logger(options(*to));
    from->begin({.total_steps = 10});
    from->end(10, {});
  }
  {
    auto untrusted = options(*to);
    untrusted.ca_file.clear();  // the system does not trust this authority
    const auto from = logger(untrusted);
    from->begin({.total_steps = 10});
    from->end(10, {});
  }
  {
    auto missing = options(*to);
    missing.token_file = dir_.path() + "/none";
    const auto from = logger(missing);
    from->begin({.total_steps = 10});
    from->end(10, {});
  }
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_NE(output.find("lockstep: reporting progress to Kubeflow Trainer failed: the server responded with HTTP 403; "
                        "training continues\n"),
            std::string::npos)
      << output;
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 3) << output;
}

TEST_F(TrainerStatus, UnresponsiveServerDoesNotBlockTheEnd) {
  std::promise<void> over;
  TlsServer to(certificate(), [done = over.get_future().share()](const TlsServer::Request&) {
    done.wait_for(std::chrono::seconds(20));
    return 200;
  });
  testing::internal::CaptureStderr();
  auto hasty = options(to);
  hasty.deadline = std::chrono::milliseconds(300);
  auto from = logger(hasty);
  from->begin({.total_steps = 10});
  from->step(5, {});
  from->end(10, {});
  from.reset();
  over.set_value();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("reporting progress to Kubeflow Trainer failed: "),
            std::string::npos);
}

TEST(TrainerStatusVariables, AreReadFromTheEnvironment) {
  EXPECT_FALSE(detail::trainer_status_options({}));
  EXPECT_FALSE(detail::trainer_status_options({{"KUBEFLOW_TRAINER_SERVER_TOKEN", "/t"}}));
  const auto options = detail::trainer_status_options({{"KUBEFLOW_TRAINER_SERVER_URL", "https://x/status"},
                                                       {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "/ca"},
                                                       {"KUBEFLOW_TRAINER_SERVER_TOKEN", "/t"}});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->url, "https://x/status");
  EXPECT_EQ(options->ca_file, "/ca");
  EXPECT_EQ(options->token_file, "/t");
  EXPECT_THROWS(detail::trainer_status_options({{"KUBEFLOW_TRAINER_SERVER_URL", "http://x"}}), Error,
                "KUBEFLOW_TRAINER_SERVER_URL is \"http://x\", but must start with https://");
}

// The complete program with the environment variables of a TrainJob's pod.
TEST_F(TrainerStatus, TrainCommandReportsProgress) {
  const auto to = server();
  const auto train = [&](const std::string& url) {
    return RunningProgram({"/usr/bin/env", "KUBEFLOW_TRAINER_SERVER_URL=" + url,
                           "KUBEFLOW_TRAINER_SERVER_CA_CERT=" + dir_.path() + "/authority.pem",
                           "KUBEFLOW_TRAINER_SERVER_TOKEN=" + dir_.path() + "/token", program_path(), "train",
                           "--no-save", "--dataset", small_dataset(), "--batch-size", "50", "--steps", "4", "--quiet"})
        .wait();
  };
  const auto result = train(to->url());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_FALSE(requests().empty()) << result.err;
  const Json last = Json::parse(requests().back().body)["trainerStatus"];
  EXPECT_EQ(last["progressPercentage"], 100);
  EXPECT_EQ(last["metrics"][0]["name"], "loss");
  const auto plain = train("http://127.0.0.1:1/");  // an invalid URL does not stop training
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_NE(plain.err.find("but must start with https://"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
