// Jobs of several processes started as users do: `lockstep launch -n N -- train`, mlp1024 on MNIST from the cache.
// Times are measured when the output lines of process 0 arrive.
//
//   build/benchmarks/launch first      from the start of a job to its first finished step, with 1, 2 and 8 processes
//   build/benchmarks/launch steps      steps per second of 2 processes of 8 devices against 1 of 16, on the same cores
//
// Without an argument: both. The jobs of a table run alternately, --runs times each (5 and 3); the best time counts.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/error.h"
#include "timing.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

constexpr unsigned kMaxSeconds = 120;  // for one job

// The output lines of a job with their times in seconds after its start.
struct Lines {
  struct Line {
    double time;
    std::string text;
  };
  std::vector<Line> all;
  double end = 0;

  double time_of(const std::string& part) const {
    for (const Line& line : all)
      if (line.text.find(part) != line.text.npos) return line.time;
    throw Error(fmt::format("launch: the job did not print \"{}\"", part));
  }
};

// Runs lockstep with these arguments. A job that hangs is ended by an alarm signal.
Lines run(const Words& arguments) {
  static const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lockstep").string();
  std::vector<char*> raw{const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("launch: cannot create a pipe");
  const Clock::time_point begin = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    alarm(kMaxSeconds);
    execv(raw[0], raw.data());
    _exit(127);
  }
  close(ends[1]);
  Lines lines;
  std::string pending;
  char bytes[4096];
  for (ssize_t count; (count = read(ends[0], bytes, sizeof bytes)) > 0;) {
    const double time = seconds_since(begin);
    pending.append(bytes, static_cast<size_t>(count));
    for (size_t at; (at = pending.find('\n')) != pending.npos; pending.erase(0, at + 1))
      lines.all.push_back({time, pending.substr(0, at)});
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  lines.end = seconds_since(begin);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return lines;
  for (const Lines::Line& line : lines.all) fmt::print(stderr, "{}\n", line.text);
  throw Error(fmt::format("launch: {} {} failed", program, fmt::join(arguments, " ")));
}

// `processes` with `devices` each; a single process is started without a launcher.
Words job(int processes, int devices, const Words& settings) {
  Words words;
  if (processes > 1) words = {"launch", "-n", std::to_string(processes), "--"};
  words.insert(words.end(), {"train", "--devices", std::to_string(devices), "--model", "mlp1024", "--resume", "none"});
  words.insert(words.end(), settings.begin(), settings.end());
  return words;
}

void first_step(int runs) {
  const std::map<int, std::string> targets = {{1, ""}, {2, "1 s"}, {8, "2 s"}};  // by number of processes
  std::map<int, Lines> best;
  for (int i = 0; i < runs; ++i)
    for (const auto& [processes, target] : targets) {
      Lines lines = run(job(processes, 8, {"--steps", "1", "--log-every", "1"}));
      if (!best.contains(processes) || lines.time_of("step 1/") < best.at(processes).time_of("step 1/"))
        best[processes] = std::move(lines);
    }
  fmt::print("From the start of a job to its first finished step, best of {}\n\n", runs);
  fmt::print("| processes | process 0 connected, data loaded | parameters and plan | first step | target | end |\n");
  fmt::print("| --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [processes, target] : targets) {
    const Lines& lines = best.at(processes);
    fmt::print("| {} | {:.3f} s | {:.3f} s | {:.3f} s | {} | {:.3f} s |\n", processes, lines.time_of("model "),
               lines.time_of(" devices: "), lines.time_of("step 1/"), target, lines.end);
  }
  fmt::print("\n");
}

void steps_per_second(int runs) {
  struct Case {
    int batch, steps;
    const char* target;
  };
  fmt::print("Steps per second on the same cores, best of {}\n\n", runs);
  fmt::print(
      "| batch | 1 process of 16 devices | 2 processes of 8 | ratio | target |\n| --- | --- | --- | --- | --- |\n");
  for (const Case& c : {Case{128, 200, "0.7"}, Case{1024, 30, "0.9"}}) {
    double best[3] = {};
    for (int i = 0; i < runs; ++i)
      for (const int processes : {1, 2}) {
        const int warm = c.steps / 5, last = warm + c.steps;
        const Lines lines = run(job(processes, 16 / processes,
                                    {"--batch-size", std::to_string(c.batch), "--steps", std::to_string(last + warm),
                                     "--log-every", std::to_string(warm)}));
        const auto at = [&](int step) { return lines.time_of(fmt::format("step {}/", step)); };
        best[processes] = std::max(best[processes], c.steps / (at(last) - at(warm)));
      }
    fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {} |\n", c.batch, best[1], best[2], best[2] / best[1], c.target);
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  std::string what;
  int runs = 0;
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--runs" && i + 1 < argc)
      runs = std::stoi(argv[++i]);
    else
      what = argv[i];
  if (what.empty() || what == "first") lockstep::first_step(runs > 0 ? runs : 5);
  if (what.empty() || what == "steps") lockstep::steps_per_second(runs > 0 ? runs : 3);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
