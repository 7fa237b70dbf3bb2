// The HTTP interface of `lockstep board`: what it answers, and what it refuses.
#include <httplib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "board/access.h"
#include "board/event_streams.h"
#include "board/running_board.h"
#include "board/stored_files.h"
#include "http/access.h"
#include "support/http_connection.h"
#include "support/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

class Board : public testing::Test {
 protected:
  Board() {
    runs_.add("first", 100, "0.1");
    runs_.add("second", 50, "0.2");
    board_ = std::make_unique<RunningBoard>(runs_.path());
    client_ = std::make_unique<httplib::Client>("127.0.0.1", board_->port);
    client_->set_read_timeout(30);
    client_->set_bearer_token_auth(board_->token);
  }

  json get(const std::string& path, int status = 200) {
    const httplib::Result result = client_->Get(path);
    if (!result) {
      ADD_FAILURE() << "no answer to " << path;
      return {};
    }
    EXPECT_EQ(result->status, status) << path << "\n" << result->body;
    return json::parse(result->body, nullptr, false);
  }

  std::string id_of(const std::string& name) {
    const json all = get("/api/runs");
    for (const json& run : all.at("runs"))
      if (run.at("name") == name) return run.at("id");
    return "";
  }

  BoardRuns runs_;
  std::unique_ptr<RunningBoard> board_;
  std::unique_ptr<httplib::Client> client_;
  std::thread get_in_background_;
};

TEST(BoardAccess, TokensAreRandomAndCompared) {
  const std::string token = board::new_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_NE(token, board::new_token());
  EXPECT_TRUE(http::same_token(token, token));
  EXPECT_FALSE(http::same_token(token.substr(1), token));
  EXPECT_FALSE(http::same_token("", token));
  EXPECT_TRUE(board::is_valid_token("aZ0-_."));
  for (const char* wrong : {"", "a b", "a;b", "a\r\nb", "a\xff"}) EXPECT_FALSE(board::is_valid_token(wrong));
}

TEST(BoardAccess, CookiesAndTokensAreParsed) {
  EXPECT_EQ(board::cookie_value("a=1; board=x; b=2", "board"), "x");
  EXPECT_EQ(board::cookie_value("xboard=1; board2=x", "board"), "");
  EXPECT_EQ(board::cookie_value("", "board"), "");
  EXPECT_EQ(http::bearer_token("Bearer x"), "x");
  EXPECT_EQ(http::bearer_token("Basic x"), "");
}

TEST_F(Board, ListsRunsWithTheirState) {
  const json all = get("/api/runs").at("runs");
  ASSERT_EQ(all.size(), 2u);
  const json& first = all[all[0].at("name") == "first" ? 0 : 1];
  EXPECT_EQ(first.at("step"), 100);
  EXPECT_EQ(first.at("total_steps"), 1000);
  EXPECT_EQ(first.at("title"), "mlp on 8 devices");
  EXPECT_DOUBLE_EQ(first.at("values").at("loss"), 0.02);
}

TEST_F(Board, RunsHaveSettingsAndTags) {
  const json run = get("/api/runs/" + id_of("second"));
  EXPECT_EQ(run.at("config").at("learning_rate"), "0.2");
  EXPECT_EQ(run.at("tags"), (json{"accuracy", "learning_rate", "loss"}));
  EXPECT_EQ(run.at("steps_per_epoch"), 10);
  EXPECT_EQ(run.at("complete"), true);
}

TEST_F(Board, SeriesAreDownSampledAndRestricted) {
  const std::string run = id_of("first");
  const json all = get("/api/series?run=" + run + "&tag=loss&points=10");
  EXPECT_LE(all.at("step").size(), 10u);
  EXPECT_EQ(all.at("points"), 100);
  EXPECT_EQ(all.at("max")[0], 2.0);
  const json part = get("/api/series?run=" + run + "&tag=loss&from=20&to=29");
  ASSERT_EQ(part.at("step").size(), 10u);
  EXPECT_EQ(part.at("step")[0], 20);
  EXPECT_EQ(part.at("mean")[0], 0.1);
  EXPECT_EQ(get("/api/series?run=" + run + "&tag=unknown").at("step").size(), 0u);
}

TEST_F(Board, WrongRequestsAreAnsweredClearly) {
  const std::string run = id_of("first");
  const std::string series = "/api/series?tag=loss&run=" + run;
  EXPECT_EQ(get(series + "&points=0", 400).at("error"), "points is 0; give 1 to 20000");
  EXPECT_EQ(get(series + "&points=1000000000000", 400).at("error"), "points is 1000000000000; give 1 to 20000");
  EXPECT_EQ(get(series + "&from=x", 400).at("error"), "from is \"x\"; give a whole number");
  EXPECT_EQ(get(series + "&to=99999999999999999999", 400).at("error"),
            "to is \"99999999999999999999\"; give a whole number");
  EXPECT_EQ(get("/api/series?tag=loss&run=0", 404).at("error"), "this run does not exist; it may have been deleted");
  EXPECT_EQ(get("/nix", 404).at("error"), "no answer to GET /nix");
}

TEST_F(Board, FilesOfRunsAreAnswered) {
  store_files(runs_.path() + "/first");
  const std::string run = id_of("first");
  EXPECT_EQ(get("/api/runs/" + run).at("files").size(), 4u);
  EXPECT_EQ(get("/api/evaluation?run=" + run).at("step"), 100);
  EXPECT_EQ(get("/api/mesh?run=" + run).at("devices").size(), 4u);
  EXPECT_EQ(get("/api/samples?run=" + run).at("samples").size(), 2u);
  EXPECT_EQ(get("/api/trace?run=" + run).at("steps").size(), 3u);
  const json part = get("/api/trace/slices?from=0&to=9000&width=100&first=1&run=" + run);
  EXPECT_EQ(part.at("rows")[0].at("rank"), 1);
  EXPECT_EQ(client_->Get("/api/worst.png?run=" + run)->get_header_value("Content-Type"), "image/png");
}

TEST_F(Board, WrongRequestsForFilesAreAnsweredClearly) {
  const std::string run = "run=" + id_of("second"), slices = "/api/trace/slices?" + run + "&from=0&to=9";
  EXPECT_EQ(get("/api/evaluation?" + run, 400).at("error"),
            "the run has no evaluation/report.json; `lockstep eval RUN` writes it");
  EXPECT_EQ(get(slices, 400).at("error"), "the run has no trace/rank_0.json; `lockstep train --trace` writes it");
  EXPECT_EQ(get(slices + "&width=0", 400).at("error"), "width is 0; give 1 to 20000");
  EXPECT_EQ(get(slices + "&first=-1", 400).at("error"), "first is -1; give the index of a rank");
  EXPECT_EQ(get("/api/trace/slices?from=9&to=9&" + run, 400).at("error"),
            "from is not below to; give two times in microseconds");
  for (const char* path : {"/api/evaluation", "/api/worst.png", "/api/mesh", "/api/samples", "/api/trace"})
    EXPECT_EQ(get(path + std::string("?run=..%2ffirst"), 404).at("error"),
              "this run does not exist; it may have been deleted");
}

TEST_F(Board, PathsAreNotIds) {
  for (const char* path :
       {"/api/runs/../../../etc/passwd", "/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "/api/runs/first", "//etc/passwd", "/page/index.html"})
    get(path, 404);
  get("/api/series?tag=loss&run=..%2ffirst", 404);
}

TEST_F(Board, RequestsWithoutTokenAreRefused) {
  httplib::Client other("127.0.0.1", board_->port);
  for (const char* path : {"/", "/?token=wrong", "/app.js", "/api/runs", "/events", "/api/jobs"}) {
    const httplib::Result result = other.Get(path);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 401) << path;
    expect_contains(result->body, "wrong or missing token");
    expect_lacks(result->body, board_->token);
  }
  const httplib::Result result = other.Post("/api/jobs/delete?name=x");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 401);
}

TEST_F(Board, TheTokenOfTheAddressBecomesACookie) {
  httplib::Client other("127.0.0.1", board_->port);
  const httplib::Result first = other.Get("/?token=" + board_->token);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->status, 303);
  EXPECT_EQ(first->get_header_value("Location"), "/");
  const std::string cookie = first->get_header_value("Set-Cookie");
  expect_contains(cookie, "HttpOnly; SameSite=Strict");
  const httplib::Result second = other.Get("/", {{"Cookie", cookie.substr(0, cookie.find(';'))}});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->status, 200);
  expect_contains(second->get_header_value("Content-Security-Policy"), "default-src 'none'");
}

TEST_F(Board, ChangesNeedTheHeaderOfThePage) {
  const httplib::Result without = client_->Post("/api/jobs/delete?namespace=default&name=x");
  ASSERT_TRUE(without);
  EXPECT_EQ(without->status, 403);
  const httplib::Result with =
      client_->Post("/api/jobs/delete?namespace=default&name=x", {{"X-Lockstep", "board"}}, "", "text/plain");
  ASSERT_TRUE(with);
  EXPECT_EQ(with->status, 400);  // this job does not exist
}

TEST_F(Board, LargeBodiesAreRefused) {
  const httplib::Result result =
      client_->Post("/api/jobs/delete", {{"X-Lockstep", "board"}}, std::string(1 << 20, 'x'), "text/plain");
  EXPECT_TRUE(!result || result->status == 413);
  get("/api/runs");
}

TEST_F(Board, EventsNameWhatHasChanged) {
  const std::string run = id_of("first");
  std::string seen;
  bool appended = false;
  client_->Get("/events?runs=" + run, [&](const char* data, size_t size) {
    seen.append(data, size);
    if (!appended && seen.find("\n\n") != std::string::npos) {
      seen.clear();
      appended = true;
      get_in_background_ = std::thread([&, run] {
        httplib::Client other("127.0.0.1", board_->port);
        other.set_bearer_token_auth(board_->token);
        other.Get("/api/series?tag=loss&run=" + run);
        runs_.add_steps("first", 101, 101);
      });
    }
    return seen.find(run) == std::string::npos;
  });
  get_in_background_.join();
  expect_contains(seen, "event: changed\ndata: [");
  EXPECT_TRUE(comes_true([&] { return get("/api/series?tag=loss&run=" + run).at("last") == 101; }));
}

TEST_F(Board, RunsWithManyMetricsAreListed) {
  std::string scalars;
  for (int i = 0; i < 60'000; ++i) scalars += fmt::format(",\"tag{}\":{}", i, i);
  runs_.add("wide", 0);
  runs_.append("wide", "{\"kind\":\"step\",\"step\":7,\"time\":1800000007,\"loss\":1.5" + scalars + "}\n");
  const auto is_listed = [&] {
    const std::string id = id_of("wide");
    return !id.empty() && get("/api/runs/" + id).at("values").contains("loss");
  };
  ASSERT_TRUE(comes_true(is_listed, std::chrono::minutes(1), std::chrono::milliseconds(50)));
  const json run = get("/api/runs/" + id_of("wide"));
  EXPECT_EQ(run.at("step"), 7);
  EXPECT_EQ(run.at("values").at("loss"), 1.5);
  EXPECT_EQ(run.at("tags").size(), 20'000u);
  EXPECT_EQ(run.at("ignored_tags"), 20'000);  // at least: names are counted up to the limit
}

TEST_F(Board, DeletedRunsDisappear) {
  const std::string run = id_of("first");
  get("/api/series?tag=loss&run=" + run);
  std::filesystem::remove_all(runs_.path() + "/first");
  EXPECT_TRUE(comes_true([&] { return client_->Get("/api/series?tag=loss&run=" + run)->status == 404; },
                         std::chrono::minutes(1), std::chrono::milliseconds(50)));
  EXPECT_EQ(get("/api/runs").at("runs").size(), 1u);
}

TEST_F(Board, LargeFilesAreAnsweredWhileTheyAreRead) {
  std::string text;
  for (int64_t step = 1; step <= 100'000; ++step) text += BoardRuns::line(step);
  runs_.add("large", 0);
  for (int i = 0; i < 10; ++i) runs_.append("large", text);  // 100 MB; steps repeat, as after restarts
  ASSERT_TRUE(
      comes_true([&] { return !id_of("large").empty(); }, std::chrono::minutes(1), std::chrono::milliseconds(50)));
  const std::string run = id_of("large");
  EXPECT_EQ(get("/api/runs/" + run).at("complete"), false);
  EXPECT_TRUE(comes_true([&] { return get("/api/runs/" + run).at("complete") == true; }, std::chrono::minutes(2),
                         std::chrono::milliseconds(50)));
  const json series = get("/api/series?tag=loss&points=500&run=" + run);
  EXPECT_LE(series.at("step").size(), 500u);
  EXPECT_EQ(series.at("last"), 100'000);
}

TEST(BoardHosts, WithoutTokenOtherHostNamesAreRefused) {
  const BoardRuns runs;
  const RunningBoard board(runs.path(), {"--no-token"});
  EXPECT_EQ(board.token, "");
  httplib::Client client("127.0.0.1", board.port);
  EXPECT_EQ(client.Get("/api/runs")->status, 200);
  EXPECT_EQ(client.Get("/api/runs", {{"Host", "evil.example"}})->status, 421);
  EXPECT_EQ(client.Get("/api/runs", {{"Host", "LOCALHOST"}})->status, 200);
}

TEST_F(Board, HealthNeedsNoToken) {
  httplib::Client other("127.0.0.1", board_->port);
  const httplib::Result result = other.Get("/health");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->body, "{\"status\":\"ok\"}\n");
}

TEST_F(Board, PagesThatAreOpenHoldNoThread) {
  std::vector<std::unique_ptr<HttpConnection>> pages;
  const std::string request =
      "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + board_->token + "\r\n\r\n";
  for (size_t i = 0; i < board::EventStreams::kMost; ++i) {
    pages.push_back(std::make_unique<HttpConnection>(board_->port));
    EXPECT_TRUE(pages.back()->send(request));
    expect_contains(pages.back()->read_until("event: changed"), "text/event-stream");
  }
  get("/api/runs");
  HttpConnection more(board_->port);
  EXPECT_TRUE(more.send(request));
  expect_contains(more.read_until("}\n"), "{\"error\":\"32 pages are open already; close one\"}");
  pages.clear();
  EXPECT_TRUE(comes_true([&] {
    HttpConnection again(board_->port);
    return again.send(request) && again.read_until("\n\n").find("event: changed") != std::string::npos;
  }));
}

TEST(BoardCommand, WrongFlagsAreUsageErrors) {
  expect_usage_error({"board", "--token", "a", "--no-token"},
                     "board: --token and --no-token contradict each other; give one of them");
  expect_usage_error({"board", "--token", "a b"},
                     "board: --token: use 1 to 256 letters, digits, \"-\", \"_\" and \".\"");
  expect_usage_error(
      {"board", "--no-token", "--host", "0.0.0.0"},
      "board: --no-token lets every machine that reaches 0.0.0.0 delete jobs; use a token, or --host 127.0.0.1");
}

TEST(BoardCommand, PortsInUseAreNamed) {
  const BoardRuns runs;
  const RunningBoard board(runs.path());
  const ProcessResult second = run_lockstep({"board", "--runs", runs.path(), "--port", std::to_string(board.port)});
  EXPECT_EQ(second.exit_code, 1);
  expect_contains(
      second.output,
      fmt::format("board: cannot listen on 127.0.0.1:{}: Address already in use; choose another --port or --host",
                  board.port));
}

}  // namespace
}  // namespace lockstep
