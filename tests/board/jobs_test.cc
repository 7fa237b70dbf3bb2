// The jobs of a board: over HTTP, and with the buttons of the page.
#include "jobs/local/jobs.h"
#include "board/browser.h"
#include "board/running_board.h"

namespace lockstep {
namespace {

class BoardJobs : public LocalJobs {
 protected:
  BoardJobs() {
    apply(shell_job("sleeper", 2, "echo hello; exec sleep 600"));
    expect_state("sleeper", "Running");
    board_ = std::make_unique<RunningBoard>(runs_.path(), Words{"--state-dir", state_});
  }

  httplib::Result get_path(const std::string& path) {
    httplib::Client client("127.0.0.1", board_->port);
    client.set_bearer_token_auth(board_->token);
    return client.Get(path);
  }
  int post(const std::string& action, const std::string& name) {
    httplib::Client client("127.0.0.1", board_->port);
    client.set_bearer_token_auth(board_->token);
    client.set_read_timeout(60);
    const httplib::Result result = client.Post("/api/jobs/" + action + "?namespace=default&name=" + name,
                                               {{"X-Lockstep", "board"}}, "", "text/plain");
    return result ? result->status : 0;
  }

  BoardRuns runs_;
  std::unique_ptr<RunningBoard> board_;
};

TEST_F(BoardJobs, AreListedWithReplicasAndLogs) {
  const nlohmann::json jobs = nlohmann::json::parse(get_path("/api/jobs")->body).at("jobs");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].at("name"), "sleeper");
  EXPECT_EQ(jobs[0].at("state"), "Running");
  EXPECT_EQ(jobs[0].at("replicas").size(), 2u);
  const std::string log = "/api/jobs/log?namespace=default&name=sleeper&replica=";
  EXPECT_TRUE(soon([&] { return get_path(log + "1")->body == "hello\n"; }));
  EXPECT_EQ(get_path(log + "2")->status, 400);
  expect_contains(get_path(log + "2")->body, "sleeper has no replica 2; give a number from 0 to 1");
}

TEST_F(BoardJobs, AreSuspendedResumedAndDeleted) {
  EXPECT_EQ(post("suspend", "sleeper"), 200);
  expect_state("sleeper", "Suspended");
  EXPECT_EQ(post("resume", "sleeper"), 200);
  expect_state("sleeper", "Running");
  EXPECT_EQ(post("delete", "sleeper"), 200);
  EXPECT_TRUE(runner().list("").empty());
  EXPECT_EQ(post("delete", "sleeper"), 400);
  EXPECT_EQ(post("erase", "sleeper"), 404);
}

TEST_F(BoardJobs, ButtonsAskBeforeTheyChangeAJob) {
  if (!Browser::is_installed()) GTEST_SKIP() << "no browser: install chromium and chromium-driver";
  Browser browser;
  browser.open(board_->url);
  ASSERT_TRUE(browser.becomes_true("document.getElementById('status').textContent === 'live'"));
  browser.value("document.getElementById('show-jobs').click()");
  ASSERT_TRUE(browser.becomes_true("document.querySelector('[aria-label=\"Suspend sleeper\"]')"));
  browser.value("document.querySelector('[aria-label=\"Log of sleeper-worker-0\"]').click()");
  EXPECT_TRUE(browser.becomes_true("document.getElementById('job-log-text').textContent === 'hello\\n'"));
  const std::string suspend = "document.querySelector('[aria-label=\"Suspend sleeper\"]').click()";
  browser.value(suspend);
  ASSERT_TRUE(browser.becomes_true("document.getElementById('confirm').open"));
  browser.value("document.querySelector('#confirm button[value=no]').click()");
  ASSERT_TRUE(browser.becomes_true("!document.getElementById('confirm').open"));
  EXPECT_EQ(state_of("sleeper"), "Running");
  browser.value(suspend);
  ASSERT_TRUE(browser.becomes_true("document.getElementById('confirm').open"));
  browser.value("document.getElementById('confirm-yes').click()");
  EXPECT_TRUE(browser.becomes_true("document.querySelector('[aria-label=\"Resume sleeper\"]')"));
  expect_state("sleeper", "Suspended");
}

}  // namespace
}  // namespace lockstep
