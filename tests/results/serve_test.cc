// `lockstep serve`: requests, batches, limits, tokens and the end of the server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#ifdef LOCKSTEP_WITH_HTTPLIB

#include <httplib.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "results/picture_run.h"
#include "support/http_connection.h"
#include "support/process_memory.h"
#include "support/prometheus.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

using nlohmann::json;

// A running server. The destructor stops it by SIGTERM.
class Server {
 public:
  explicit Server(const std::string& run, const Words& flags = {})
      : out_(dir_.path() + "/out"),
        program_({"sh", "-c", command(run, flags)}),
        port_(read_port()),
        client_("127.0.0.1", port_) {
    client_.set_read_timeout(60);
  }
  ~Server() { stop(); }

  // Returns the exit code of the program.
  int stop() {
    if (!stopped_) {
      program_.send(SIGTERM);
      code_ = program_.wait().exit_code;
      stopped_ = true;
    }
    return code_;
  }
  int port() const { return port_; }
  pid_t pid() const { return program_.pid(); }
  httplib::Client& client() { return client_; }
  std::string output() const {
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(out_);
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::string command(const std::string& run, const Words& flags) const {
    std::string out = fmt::format("exec {} serve {} --port 0", program_path(), run);
    for (const std::string& flag : flags) out += " " + flag;
    return out + " > " + out_;
  }
  // The port that the program prints when it listens.
  int read_port() const {
    for (int i = 0; i < 60'000; ++i) {
      const std::string text = FileSystem::real().exists(out_) ? output() : "";
      const size_t at = text.rfind(':');
      if (text.ends_with('\n') && at != text.npos) return std::stoi(text.substr(at + 1));
      ::poll(nullptr, 0, 1);
    }
    ADD_FAILURE() << "the server does not listen";
    return 0;
  }

  const TempDir dir_;
  const std::string out_;
  RunningProgram program_;
  const int port_;
  httplib::Client client_;
  bool stopped_ = false;
  int code_ = 0;
};

std::string png_body(const std::string& kind) {
  const std::vector<uint8_t> png = detail::to_png(picture(kind, 3));
  return {png.begin(), png.end()};
}

// A black RGB image, small as a file.
std::string png_of_zeros(int64_t rows, int64_t cols) {
  const std::vector<uint8_t> png =
      detail::to_png({.rows = rows,
                      .cols = cols,
                      .channels = 3,
                      .pixels = std::vector<uint8_t>(static_cast<size_t>(3 * rows * cols))});
  return {png.begin(), png.end()};
}

json rows(const std::string& kind) {
  const detail::DecodedImage image = picture(kind, 3);
  json out;
  for (int64_t row = 0; row < image.rows; ++row)
    out.push_back(
        std::vector<int>(image.pixels.begin() + row * image.cols, image.pixels.begin() + (row + 1) * image.cols));
  return out;
}

TEST(Serve, AnswersImagesAndArrays) {
  Server server(picture_run());
  EXPECT_TRUE(server.output().starts_with("serving " + picture_run() + " (model mlp, step 60) on http://127.0.0.1:"));
  const auto image = server.client().Post("/predict?top=2", png_body("striped"), "image/png");
  ASSERT_TRUE(image);
  EXPECT_EQ(image->status, 200) << image->body;
  const json first = json::parse(image->body)["predictions"];
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["class"], "striped");
  EXPECT_EQ(first[0]["top"].size(), 2u);
  const auto arrays = server.client().Post("/predict", json{rows("dark"), rows("light")}.dump(), "application/json");
  ASSERT_TRUE(arrays);
  const json both = json::parse(arrays->body)["predictions"];
  ASSERT_EQ(both.size(), 2u) << arrays->body;
  EXPECT_EQ(both[0]["class"], "dark");
  EXPECT_EQ(both[1]["class"], "light");
  EXPECT_EQ(server.stop(), 0);
}

TEST(Serve, RequestsAtOnceGetTheirOwnAnswers) {
  Server server(picture_run());
  const std::vector<std::string> kinds = {"dark", "light", "striped"};
  std::vector<std::string> answers(24);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < answers.size(); ++i)
    clients.emplace_back([&, i] {
      httplib::Client client("127.0.0.1", server.port());
      client.set_read_timeout(60);
      const auto result = client.Post("/predict", png_body(kinds[i % 3]), "image/png");
      answers[i] = result ? result->body : "no answer";
    });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(json::parse(answers[i], nullptr, false)["predictions"][0]["class"], kinds[i % 3]) << answers[i];
  const auto metrics = server.client().Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_EQ(PrometheusText(metrics->body).value("lockstep_predictions_total"), 24);
  EXPECT_NE(metrics->body.find("lockstep_requests_total{path=\"/predict\",status=\"200\"} 24\n"), std::string::npos);
}

TEST(Serve, WrongRequestsAreErrors) {
  Server server(picture_run(), {"--max-body", "1"});
  const auto expect_error = [&](const httplib::Result& result, int status, const std::string& message) {
    ASSERT_TRUE(result) << message;
    EXPECT_EQ(result->status, status) << result->body;
    EXPECT_EQ(json::parse(result->body, nullptr, false)["error"], message);
  };
  httplib::Client& client = server.client();
  expect_error(client.Post("/predict", "[1, 2, 3]", "application/json"), 400,
               "the body has 3 numbers; an example has 64: send arrays of complete examples, or one PNG or JPEG image");
  expect_error(client.Post("/predict", "[\"x\"]", "application/json"), 400,
               "the body has \"x\" where a number is expected");
  std::string pixels;
  for (int i = 0; i < 63; ++i) pixels += "0, ";
  for (const char* pixel : {"1e308", "-1", "256"})
    EXPECT_EQ(client.Post("/predict", "[" + pixels + pixel + "]", "application/json")->status, 400) << pixel;
  expect_error(client.Post("/predict", "[" + pixels + "1e308]", "application/json"), 400,
               "the body has 1e+308 where a number from 0 to 255 is expected");
  expect_error(client.Post("/predict", "[{}]", "application/json"), 400,
               "the body has an object where a number is expected");
  std::string examples = "[" + pixels + "0";
  for (int i = 0; i < 1024; ++i) examples += ", " + pixels + "0";
  expect_error(client.Post("/predict", examples + "]", "application/json"), 413,
               "the body has 1025 examples; at most 1024 are allowed: send several requests");
  const auto image = client.Post("/predict", png_of_zeros(5000, 5000), "image/png");
  expect_error(image, 413, "the image has 5000 x 5000 pixels; at most 16777216 are allowed: reduce it");
  expect_error(client.Post("/predict?top=0", "[1]", "application/json"), 400,
               "top is \"0\"; give a whole number from 1 to 2147483647");
  expect_error(client.Get("/nothing"), 404, "no answer to GET /nothing; see lockstep serve --help");
  expect_error(client.Post("/generate", "{}", "application/json"), 404,
               "no answer to POST /generate; see lockstep serve --help");
  const auto damaged = client.Post("/predict", png_body("dark").substr(0, 50), "image/png");
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->status, 400);
  const auto large = client.Post("/predict", std::string(2 << 20, ' '), "application/json");
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
}

// They are decoded one after the other, and the health check does not wait for them.
TEST(Serve, LargeImagesTakeLittleMemoryTogether) {
  Server server(picture_run());
  const std::string image = png_of_zeros(4000, 4000);
  ASSERT_EQ(server.client().Post("/predict", png_body("dark"), "image/png")->status, 200);
  const int64_t quiet = resident_bytes(server.pid());
  std::vector<std::thread> clients;
  std::vector<int> statuses(8);
  for (int& status : statuses)
    clients.emplace_back([&] {
      httplib::Client client("127.0.0.1", server.port());
      client.set_read_timeout(60);
      const auto result = client.Post("/predict", image, "image/png");
      status = result ? result->status : 0;
    });
  EXPECT_EQ(server.client().Get("/health")->status, 200);
  for (std::thread& each : clients) each.join();
  EXPECT_EQ(statuses, std::vector<int>(8, 200));
  if (!kSanitized) {                                                           // sanitizers keep freed memory
    EXPECT_LT(peak_resident_bytes(server.pid()) - quiet, int64_t{200} << 20);  // one of them has 48 MB
  }
}

TEST(Serve, OtherHostNamesAreRefused) {
  Server server(picture_run());
  EXPECT_EQ(server.client().Get("/health", {{"Host", "evil.example"}})->status, 421);
  EXPECT_EQ(server.client().Get("/health", {{"Host", "LOCALHOST:1"}})->status, 200);
}

TEST(Serve, TokenIsRequired) {
  const TempDir dir;
  write_text(dir.path() + "/token", "secret\n");
  Server server(picture_run(), {"--api-token-file", dir.path() + "/token"});
  httplib::Client& client = server.client();
  EXPECT_EQ(client.Post("/predict", png_body("dark"), "image/png")->status, 401);
  EXPECT_EQ(client.Get("/metrics")->status, 401);
  const auto health = client.Get("/health");
  EXPECT_EQ(health->status, 200);
  EXPECT_EQ(json::parse(health->body)["status"], "ok");
  client.set_bearer_token_auth("wrong");
  EXPECT_EQ(client.Post("/predict", png_body("dark"), "image/png")->status, 401);
  client.set_bearer_token_auth("secret");
  EXPECT_EQ(client.Post("/predict", png_body("dark"), "image/png")->status, 200);
}

TEST(Serve, OtherMachinesNeedAToken) {
  const TempDir dir;
  expect_usage_error({"serve", picture_run(), "--host", "0.0.0.0"},
                     "serve: other machines can reach 0.0.0.0; give --api-token-file FILE with the token that clients "
                     "must send");
  write_text(dir.path() + "/token", "\n");
  expect_usage_error({"serve", picture_run(), "--api-token-file", dir.path() + "/token"},
                     "serve: " + dir.path() + "/token has no token; write one, such as of `openssl rand -hex 32`");
}

TEST(Serve, UsedPortIsAnError) {
  Server server(picture_run());
  const ProcessResult second = run_lockstep({"serve", picture_run(), "--port", std::to_string(server.port())});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_EQ(
      second.output,
      fmt::format("lockstep: serve: cannot listen on 127.0.0.1:{}: Address already in use; choose another --port or "
                  "--host\n",
                  server.port()));
}

// Trains a small language model of characters; returns its run.
std::string text_run(const TempDir& dir) {
  std::string text;
  for (int i = 0; i < 1500; ++i) text += fmt::format("{} times {} is {}.\n", i % 31, i % 17, (i % 31) * (i % 17));
  write_text(dir.path() + "/text.txt", text);
  const std::string run = dir.path() + "/run";
  const ProcessResult trained = run_lockstep({"train",
                                              "--model",
                                              "gpt",
                                              "--dataset",
                                              "text:" + dir.path() + "/text.txt",
                                              "--size",
                                              "char-small",
                                              "--layers",
                                              "2",
                                              "--heads",
                                              "2",
                                              "--width",
                                              "16",
                                              "--context",
                                              "24",
                                              "--steps",
                                              "3",
                                              "--checkpoint-dir",
                                              run,
                                              "--quiet"});
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  return run;
}

TEST(Serve, TextIsGeneratedAsByGenerate) {
  const TempDir dir;
  const std::string run = text_run(dir);
  const RunningProgram::Result wanted = RunningProgram({program_path(), "generate", run, "--prompt", "3 times",
                                                        "--tokens", "20", "--seed", "5", "--quiet"})
                                            .wait();
  Server server(run);
  const auto result =
      server.client().Post("/generate", R"({"prompt": "3 times", "tokens": 20, "seed": 5})", "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->body + "\n", wanted.out);
  for (const char* wrong : {R"({"tokens": 0})", R"({"prompt": "\u0000abc"})", R"({"prompt": 5})", "[]", "{"}) {
    const auto refused = server.client().Post("/generate", wrong, "application/json");
    ASSERT_TRUE(refused) << wrong;
    EXPECT_EQ(refused->status, 400) << wrong << refused->body;
    EXPECT_TRUE(json::parse(refused->body).contains("error"));
  }
  const auto large = server.client().Post("/generate", std::string(2 << 20, ' '), "application/json");
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
}

// Clients that left are forgotten; the others wait in a bounded queue, and the health check does not.
TEST(Serve, TextsThatWaitAreBoundedAndHoldNothingElseUp) {
  const TempDir dir;
  Server server(text_run(dir));
  const std::string body = R"({"prompt": "3 times", "tokens": 4096})";
  const std::string request =
      fmt::format("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  std::vector<std::unique_ptr<HttpConnection>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<HttpConnection>(server.port()));
    EXPECT_TRUE(clients.back()->send(request));
  }
  EXPECT_EQ(server.client().Get("/health")->status, 200);
  EXPECT_EQ(server.client().Get("/metrics")->status, 200);
  const std::string count = "lockstep_requests_total{path=\"/generate\",status=\"503\"} ";
  EXPECT_TRUE(comes_true([&] { return server.client().Get("/metrics")->body.find(count) != std::string::npos; }));
  std::string refused;
  for (const auto& client : clients)
    if (!refused.starts_with("HTTP/1.1 503 ") && client->is_readable(0)) refused = client->read_until("}");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
  EXPECT_NE(refused.find("Retry-After: "), refused.npos);
  EXPECT_NE(refused.find("16 texts are waiting; try again later"), refused.npos);
  clients.clear();
  // Their texts are dropped as soon as the current one notices that its client left; until then 503 may follow.
  EXPECT_TRUE(comes_true([&] {
    const auto result = server.client().Post("/generate", R"({"prompt": "3", "tokens": 2})", "application/json");
    return result && result->status == 200;
  }));
}

}  // namespace
}  // namespace lockstep

#endif
