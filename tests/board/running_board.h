// A running `lockstep board`, and metrics files to show on it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "base/file.h"
#include "base/text_bytes.h"
#include "support/program.h"

namespace lockstep {

// A folder of runs.
class BoardRuns {
 public:
  const std::string& path() const { return dir_.path(); }
  std::string file(const std::string& run) const { return path() + "/" + run + "/log/metrics.jsonl"; }

  // Starts the metrics of a run with `steps` steps of falling loss.
  void add(const std::string& run, int64_t steps, const std::string& rate = "0.1") {
    FileSystem::real().make_dirs(path() + "/" + run + "/log");
    std::string text = fmt::format(
        "{{\"kind\":\"start\",\"step\":0,\"time\":{},\"title\":\"mlp on 8 devices\",\"total_steps\":{},"
        "\"steps_per_epoch\":10,\"config\":{{\"model\":\"mlp\",\"learning_rate\":\"{}\"}}}}\n",
        kTime, 10 * steps, rate);
    for (int64_t step = 1; step <= steps; ++step) text += line(step);
    append(run, text);
  }
  void append(const std::string& run, const std::string& text) {
    FileSystem::real().append(file(run), text_bytes(text));
  }
  void add_steps(const std::string& run, int64_t first, int64_t last) {
    std::string text;
    for (int64_t step = first; step <= last; ++step) text += line(step);
    append(run, text);
  }

  static std::string line(int64_t step) {
    return fmt::format(
        "{{\"kind\":\"step\",\"step\":{},\"time\":{},\"loss\":{},\"accuracy\":{},\"learning_rate\":0.1}}\n", step,
        kTime + step, 2.0 / static_cast<double>(step), 1 - 1.0 / static_cast<double>(step));
  }

 private:
  static constexpr int64_t kTime = 1'800'000'000;
  TempDir dir_;
};

// The program, until the object is destroyed.
class RunningBoard {
 public:
  explicit RunningBoard(const std::string& runs, const Words& flags = {})
      : output_(dir_.path() + "/out"),
        program_(Words{"/bin/sh", "-c", "exec \"$0\" \"$@\" >" + output_, program_path(), "board", "--runs", runs} +
                 flags) {
    const bool ready = comes_true([&] { return program_.ended() || output().find("Ctrl-C") != std::string::npos; });
    std::smatch match;
    const std::string text = output();
    if (!ready || !std::regex_search(text, match, std::regex("http://[^:]*:([0-9]+)/(\\?token=(\\S+))?"))) {
      ADD_FAILURE() << "the board did not start:\n" << text << program_.err();
      return;
    }
    url = match[0];
    port = std::stoi(match[1]);
    token = match[3];
  }

  std::string output() const {
    return FileSystem::real().exists(output_) ? read_user_file(output_, int64_t{1} << 20) : "";
  }

  std::string url, token;
  int port = 0;

 private:
  TempDir dir_;
  std::string output_;
  RunningProgram program_;
};

}  // namespace lockstep
