#include "servers/attacked_servers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/file.h"
#include "base/text_bytes.h"
#include "support/program.h"

namespace lockstep {
namespace {

constexpr const char* kToken = "0123456789abcdef";

std::string request(const std::string& line, const std::string& more = "", const std::string& body = "") {
  std::string out = line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more;
  if (!body.empty()) out += fmt::format("Content-Length: {}\r\n", body.size());
  return out + "\r\n" + body;
}

// A program that prints its address.
class Program {
 public:
  explicit Program(const std::string& command)
      : out_(dir_.path() + "/out"),
        program_({"sh", "-c", fmt::format("exec {} {} > {} 2>&1", program_path(), command, out_)}) {}

  int port() {
    std::smatch found;
    std::string text;
    const std::regex address("http://127\\.0\\.0\\.1:([0-9]+)");
    const bool printed = comes_true([&] {
      text = FileSystem::real().exists(out_) ? read_user_file(out_, 1 << 20) : "";
      return std::regex_search(text, address) || program_.ended();
    });
    if (printed && std::regex_search(text, found, address)) return std::stoi(found[1]);
    ADD_FAILURE() << "the server does not listen:\n" << text;
    return 0;
  }
  pid_t pid() const { return program_.pid(); }

 private:
  const TempDir dir_;
  const std::string out_;
  RunningProgram program_;
};

void train(const std::string& run, const std::string& folder) {
  std::string text;
  for (int i = 0; i < 1500; ++i) text += fmt::format("{} times {} is {}.\n", i % 31, i % 17, (i % 31) * (i % 17));
  FileSystem::real().append(folder + "/text.txt", text_bytes(text));
  const ProcessResult result =
      run_lockstep({"train",   "--model",    "gpt",          "--dataset", "text:" + folder + "/text.txt",
                    "--size",  "char-small", "--layers",     "2",         "--heads",
                    "2",       "--width",    "64",           "--context", "256",
                    "--steps", "3",          "--batch-size", "8",         "--checkpoint-dir",
                    run,       "--quiet"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

class Served final : public AttackedServer {
 public:
  explicit Served(bool token) {
    train(dir_.path() + "/run", dir_.path());
    std::string command = "serve " + dir_.path() + "/run --port 0";
    if (token) {
      FileSystem::real().append(dir_.path() + "/token", text_bytes(kToken));
      command += " --api-token-file " + dir_.path() + "/token";
    }
    program_ = std::make_unique<Program>(command);
    const std::string header = token ? fmt::format("Authorization: Bearer {}\r\n", kToken) : "";
    const auto generate = [&](int tokens) {
      return request("POST /generate", header, fmt::format("{{\"prompt\": \"3 times\", \"tokens\": {}}}", tokens));
    };
    target_ = {.port = program_->port(),
               .process = program_->pid(),
               .health = "/health",
               .honest = generate(4),
               .upload = "POST /generate",
               .work = generate(4096)};
  }
  AttackTarget target() const override { return target_; }

 private:
  const TempDir dir_;
  std::unique_ptr<Program> program_;
  AttackTarget target_;
};

class Board final : public AttackedServer {
 public:
  Board() {
    for (int i = 0; i < 20; ++i) {
      const std::string folder = fmt::format("{}/run{}/log", dir_.path(), i);
      FileSystem::real().make_dirs(folder);
      std::string text = "{\"kind\":\"start\",\"step\":0,\"time\":1800000000,\"title\":\"mlp\",\"total_steps\":2000}\n";
      for (int step = 1; step <= 1000; ++step)
        text += fmt::format("{{\"kind\":\"step\",\"step\":{},\"time\":1800000001,\"loss\":{}}}\n", step, 2.0 / step);
      FileSystem::real().append(folder + "/metrics.jsonl", text_bytes(text));
    }
    program_ = std::make_unique<Program>(fmt::format("board --runs {} --token {}", dir_.path(), kToken));
    const std::string header = fmt::format("Authorization: Bearer {}\r\n", kToken);
    target_ = {.port = program_->port(),
               .process = program_->pid(),
               .health = "/health",
               .honest = request("GET /api/runs", header),
               .upload = "POST /api/jobs/delete",
               .work = request("GET /api/runs", header)};
  }
  AttackTarget target() const override { return target_; }

 private:
  const TempDir dir_;
  std::unique_ptr<Program> program_;
  AttackTarget target_;
};

class Training final : public AttackedServer {
 public:
  Training() {
    program_ = std::make_unique<Program>(
        "train --model mlp --dataset synthetic --steps 100000000 --batch-size 32 --no-save --metrics-port auto");
    target_ = {.port = program_->port(),
               .process = program_->pid(),
               .health = "/healthz",
               .honest = request("GET /metrics"),
               .upload = "POST /metrics",
               .work = request("GET /metrics")};
  }
  AttackTarget target() const override { return target_; }

 private:
  std::unique_ptr<Program> program_;
  AttackTarget target_;
};

}  // namespace

std::unique_ptr<AttackedServer> start_attacked(const std::string& server) {
  if (server == "serve" || server == "serve-token") return std::make_unique<Served>(server == "serve-token");
  if (server == "board") return std::make_unique<Board>();
  if (server == "metrics") return std::make_unique<Training>();
  ADD_FAILURE() << "unknown server " << server;
  return nullptr;
}

}  // namespace lockstep
