// `lockstep top`: what it reads, what it shows, its keys, and the program in a terminal.
#include <gtest/gtest.h>

#include <sstream>

#include "base/file.h"
#include "base/os/host_name.h"
#include "cli/top_view.h"
#include "cli/training.h"
#include "support/terminal.h"
#include "support/text_file.h"

namespace lockstep::cli {
namespace {

using Kind = TopRow::Kind;
using Mode = TopState::Mode;

constexpr TerminalStyle kUnicode{.redraws = true, .unicode = true};

TopRow running_run() {
  return {.kind = Kind::run,
          .name = "2026-11-19-mlp-1",
          .state = "running",
          .what = "mlp",
          .step = 584,
          .total_steps = 1407,
          .loss = 0.1291,
          .losses = {4, 3, 2, 1},
          .metric = "test_accuracy 0.9709",
          .rate = 14986,
          .rate_unit = "examples",
          .seconds_left = 8,
          .memory = int64_t{300} << 20,
          .process = 4711,
          .updated = 200,
          .facts = {{"folder", "runs/2026-11-19-mlp-1"}, {"grad_norm", "0.5"}},
          .log = {"step 469  test_loss 0.1234", "step 500  alarm: bad"}};
}

TopState two_runs_and_a_job() {
  TopState state{.machine = {.load = 1.5, .cpus = 2, .memory_used = 1 << 30, .memory_total = int64_t{4} << 30},
                 .clock = "14:03:12"};
  state.rows = {
      running_run(),
      {.kind = Kind::run,
       .name = "old",
       .state = "complete",
       .what = "cnn",
       .step = 10,
       .total_steps = 10,
       .loss = 0.05,
       .updated = 100,
       .facts = {{"folder", "runs/old"}}},
      {.kind = Kind::job,
       .name = "mnist",
       .state = "Running",
       .what = "2/2 replicas",
       .memory = 1 << 20,
       .updated = 150,
       .facts = {{"namespace", "default"}}},
      {.kind = Kind::replica, .name = "mnist-worker-0", .state = "Running", .facts = {{"namespace", "default"}}},
      {.kind = Kind::replica, .name = "mnist-worker-1", .state = "Error", .facts = {{"namespace", "default"}}}};
  return state;
}

std::string screen_of(const TopState& state, size_t columns, size_t rows, const TerminalStyle& style = kUnicode) {
  std::string out;
  for (std::string line : render_top(state, columns, rows, style)) {
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  return out;
}

void press_all(TopState& state, std::string_view bytes) {
  for (const TopInput& input : parse_keys(bytes)) EXPECT_EQ(press(state, input), TopAction::none);
}

TEST(TopScreen, ListsRunsAndJobsWithTheMachine) {
  EXPECT_EQ(
      screen_of(two_runs_and_a_job(), 132, 12),
      "lockstep top  14:03:12  2 runs, 1 job, 2 running\n"
      "CPU ▕███████▌  ▏ load 1.5 of 2   memory ▕██▌       ▏ 1.0 GiB of 4.0 GiB\n"
      "\n"
      "  NAME                      STATE               STEP  DONE             LOSS  LOSSES                    RATE    "
      "LEFT      MEMORY\n"
      "> 2026-11-19-mlp-1          running         584/1407  ▕███▎    ▏     0.1291  █▆▃▁          15.0k examples/s    "
      "  8s   300.0 MiB\n"
      "  mnist                     Running                                                                            "
      "         1.0 MiB\n"
      "    mnist-worker-0          Running\n"
      "    mnist-worker-1          Error\n"
      "  old                       complete           10/10  ▕████████▏       0.05\n"
      "\n"
      "\n"
      "enter: details  /: filter  s: sort (newest)  d: stop  ?: help  q: quit\n");
}

TEST(TopScreen, FitsEverySize) {
  TopState state = two_runs_and_a_job();
  state.machine.gpus = {{.name = "NVIDIA H200", .used = 1 << 30, .total = int64_t{139} << 30, .busy = 87}};
  for (const Mode mode : {Mode::list, Mode::filter, Mode::details, Mode::confirm, Mode::help}) {
    state.mode = mode;
    for (size_t columns = 0; columns < 210; columns += 23)
      for (size_t rows = 0; rows < 30; rows += 3) {
        const std::vector<std::string> lines = render_top(state, columns, rows, {true, true, true});
        EXPECT_EQ(lines.size(), rows);
        for (const std::string& line : lines) EXPECT_LE(display_width(line), columns);
      }
  }
  state.mode = Mode::list;
  EXPECT_NE(screen_of(state, 120, 12)
                .find("GPU 0 ▕████████▋ ▏  87%   memory ▕          ▏ 1.0 GiB of 139.0 GiB   NVIDIA H200\n"),
            std::string::npos)
      << screen_of(state, 120, 12);
  EXPECT_NE(screen_of(state, 60, 12).find("  NAME                      STATE               STEP    LEFT\n"),
            std::string::npos)
      << screen_of(state, 60, 12);
}

TEST(TopScreen, SelectedRowIsAlwaysVisible) {
  TopState state;
  for (int i = 0; i < 50; ++i)
    state.rows.push_back({.kind = Kind::run, .name = fmt::format("run-{:02}", i), .state = "complete"});
  state.sort = TopSort::name;
  press_all(state, "\033[F");
  EXPECT_NE(screen_of(state, 80, 10).find("> run-49"), std::string::npos);
  press_all(state, "\033[5~");
  EXPECT_NE(screen_of(state, 80, 10).find("> run-39"), std::string::npos);
}

TEST(TopScreen, WithoutRowsItSaysHowToStartOne) {
  EXPECT_NE(screen_of({}, 80, 10).find("no runs and no jobs yet; start one with `lockstep train`"), std::string::npos);
}

TEST(TopScreen, DetailsHaveTheLastMetricsAndTheLog) {
  TopState state = two_runs_and_a_job();
  press_all(state, "\r");
  const std::string screen = screen_of(state, 80, 24);
  for (const char* part : {"2026-11-19-mlp-1  running  mlp\n", "step 584/1407  ▕███▎    ▏  15.0k examples/s  8s left\n",
                           "  grad_norm              0.5\n", "\nstep 469  test_loss 0.1234\nstep 500  alarm: bad\n"})
    EXPECT_NE(screen.find(part), std::string::npos) << part << "in\n" << screen;
  press_all(state, "\033");
  EXPECT_EQ(state.mode, Mode::list);
}

TEST(TopScreen, TextFromFilesIsEscaped) {
  TopState state;
  state.rows = {{.kind = Kind::run, .name = "a\033[31mb", .state = "c\033[2Jd", .what = "\033]0;x"}};
  for (const Mode mode : {Mode::list, Mode::details}) {
    state.mode = mode;
    EXPECT_EQ(screen_of(state, 200, 10, {}).find('\033'), std::string::npos);
  }
}

TEST(TopKeys, MoveTheSelection) {
  TopState state = two_runs_and_a_job();
  EXPECT_EQ(selected_row(state)->name, "2026-11-19-mlp-1");
  press_all(state, "\033[Bj");
  EXPECT_EQ(selected_row(state)->name, "mnist-worker-0");
  press_all(state, "k\033[A\033[A");
  EXPECT_EQ(selected_row(state)->name, "2026-11-19-mlp-1");
  press_all(state, "\033[4~");
  EXPECT_EQ(selected_row(state)->name, "old");
  // The selection is of a run, not of a line.
  press_all(state, "s");
  EXPECT_EQ(state.sort, TopSort::name);
  EXPECT_EQ(selected_row(state)->name, "old");
  state.rows.erase(state.rows.begin() + 1);
  EXPECT_EQ(selected_row(state)->name, "2026-11-19-mlp-1");
}

TEST(TopKeys, FilterKeepsTheJobOfAReplica) {
  TopState state = two_runs_and_a_job();
  press_all(state, "/WORKER-1x\x7f");
  EXPECT_EQ(state.filter, "WORKER-1");
  std::vector<std::string> names;
  for (const TopRow* row : visible_rows(state)) names.push_back(row->name);
  EXPECT_EQ(names, (std::vector<std::string>{"mnist", "mnist-worker-1"}));
  press_all(state, "\r");
  EXPECT_EQ(state.mode, Mode::list);
  press_all(state, "/zzz\r");
  EXPECT_EQ(selected_row(state), nullptr);
  press_all(state, "\033[Bdj");  // nothing to select and to stop
  press_all(state, "\033");
  EXPECT_EQ(state.filter, "");
  EXPECT_EQ(visible_rows(state).size(), 5u);
}

TEST(TopKeys, StopAsks) {
  TopState state = two_runs_and_a_job();
  press_all(state, "d");
  EXPECT_EQ(state.mode, Mode::confirm);
  EXPECT_NE(screen_of(state, 80, 12).find("stop 2026-11-19-mlp-1? y: yes, any other key: no\n"), std::string::npos);
  press_all(state, "n");
  EXPECT_EQ(state.mode, Mode::list);
  press_all(state, "x");
  EXPECT_EQ(press(state, {TopKey::character, 'y'}), TopAction::stop);
  press_all(state, "jd");
  EXPECT_NE(screen_of(state, 80, 12).find("suspend mnist? "), std::string::npos);
  press_all(state, "nj");
  press_all(state, "d");
  EXPECT_EQ(state.message, "a replica is not stopped alone; select its job");
  press_all(state, "\033[F");
  press_all(state, "d");
  EXPECT_EQ(state.message, "old is complete: it has no process on this host to stop");
  EXPECT_EQ(state.mode, Mode::list);
}

TEST(TopKeys, QuitAndHelp) {
  TopState state = two_runs_and_a_job();
  EXPECT_EQ(press(state, {TopKey::character, 'q'}), TopAction::quit);
  EXPECT_EQ(press(state, {TopKey::interrupt, 0}), TopAction::quit);
  press_all(state, "?");
  EXPECT_NE(screen_of(state, 80, 14).find("d, x             stop: a run saves"), std::string::npos);
  press_all(state, "q");  // any key
  EXPECT_EQ(state.mode, Mode::list);
}

TEST(TopKeys, UnknownSequencesAreIgnored) {
  EXPECT_TRUE(parse_keys("\033[15~\033[1;5C\033OP\x01").empty());
  ASSERT_EQ(parse_keys("\033[15~q").size(), 1u);
  ASSERT_EQ(parse_keys("\033").size(), 1u);
  EXPECT_EQ(parse_keys("\033")[0].key, TopKey::escape);
  EXPECT_TRUE(parse_keys("\033[").empty());
}

TEST(TopTable, HasOneLineForEachRow) {
  const std::string table = top_table(two_runs_and_a_job());
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "NAME               STATE      STEP       LOSS     METRIC                 RATE               LEFT   MEMORY "
            "     MODEL");
  std::getline(lines, line);
  EXPECT_EQ(line,
            "2026-11-19-mlp-1   running    584/1407   0.1291   test_accuracy 0.9709   15.0k examples/s   8s     300.0 "
            "MiB   mlp");
}

// A folder with run.json and metrics.jsonl.
void write_run(const std::string& folder, const std::string& record, const std::string& metrics) {
  FileSystem::real().make_dirs(folder + "/log");
  const auto write = [&](const std::string& path, const std::string& text) {
    FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
  };
  if (!record.empty()) write(folder + "/run.json", record);
  if (!metrics.empty()) write(folder + "/log/metrics.jsonl", metrics);
}

const std::string kMetrics =
    R"({"kind":"start","step":0,"time":100,"title":"mlp on 8 devices","total_steps":40,"steps_per_epoch":20})"
    "\n"
    R"({"kind":"step","step":1,"time":101,"loss":2.5,"accuracy":0.1,"examples_per_second":0})"
    "\n"
    R"({"kind":"step","step":11,"time":106,"loss":1.5,"accuracy":0.4,"examples_per_second":250})"
    "\n"
    R"({"kind":"evaluation","step":20,"time":110,"test_loss":0.5,"test_accuracy":0.75})"
    "\n"
    R"({"kind":"message","step":20,"time":110,"alarm":true,"text":"bad"})"
    "\n";

TEST(TopRows, ReadRunsFromTheirFiles) {
  const TempDir dir;
  const std::string record = fmt::format(
      R"({{"state":"running","task":"mlp","pid":{},"host":"{}","step":19,"total_steps":40,"updated":109,"dataset":"mnist"}})",
      ::getpid(), own_host_name());
  write_run(dir.path() + "/a", record, kMetrics);
  const TopRow row = read_run_row(dir.path() + "/a", ProcessTable(), own_host_name(), 111);
  EXPECT_EQ(row.name, "a");
  EXPECT_EQ(row.state, "running");
  EXPECT_EQ(row.what, "mlp");
  EXPECT_EQ(row.step, 20);
  EXPECT_EQ(row.total_steps, 40);
  EXPECT_EQ(row.loss, 1.5);
  EXPECT_EQ(row.losses, (std::vector<double>{2.5, 1.5}));
  EXPECT_EQ(row.metric, "test_accuracy 0.7500");
  EXPECT_EQ(row.rate, 250);
  EXPECT_EQ(row.rate_unit, "examples");
  EXPECT_EQ(row.seconds_left, 10);  // 20 steps at 2 per second
  EXPECT_GT(row.process, 0);
  EXPECT_GT(row.memory, 1 << 20);
  EXPECT_EQ(row.log,
            (std::vector<std::string>{"step 20  test_accuracy 0.7500  test_loss 0.5000", "step 20  alarm: bad"}));
}

TEST(TopRows, ProcessThatIsGoneIsLost) {
  const TempDir dir;
  const auto record = [](const std::string& host) {
    return fmt::format(R"({{"state":"running","pid":2000000000,"host":"{}"}})", host);
  };
  write_run(dir.path() + "/a", record(own_host_name()), "");
  write_run(dir.path() + "/b", record("elsewhere"), "");
  EXPECT_EQ(read_run_row(dir.path() + "/a", ProcessTable(), own_host_name(), 0).state, "lost");
  EXPECT_EQ(read_run_row(dir.path() + "/b", ProcessTable(), own_host_name(), 0).state, "running");
}

TEST(TopRows, RunWithoutARecordIsKnownByItsMetrics) {
  const TempDir dir;
  write_run(dir.path() + "/a", "", kMetrics);
  const auto state_at = [&](double now) { return read_run_row(dir.path() + "/a", ProcessTable(), "", now).state; };
  EXPECT_EQ(state_at(111), "running");
  EXPECT_EQ(state_at(1000), "silent");
  write_run(dir.path() + "/b", "", kMetrics + R"({"kind":"end","step":40,"time":120})" + "\n");
  const TopRow ended = read_run_row(dir.path() + "/b", ProcessTable(), "", 1000);
  EXPECT_EQ(ended.state, "complete");
  EXPECT_EQ(ended.seconds_left, -1);
}

TEST(TopRows, DamagedFilesAreNoErrors) {
  const TempDir dir;
  const std::string damaged[] = {"",
                                 "{",
                                 "[]",
                                 "{}",
                                 R"({"state":3,"pid":"x","step":1e300,"total_steps":-1,"host":null})",
                                 "\xff\xfe",
                                 std::string(3, '\0')};
  int n = 0;
  for (const std::string& record : damaged)
    for (const std::string& metrics : damaged) {
      const std::string folder = dir.path() + "/" + std::to_string(n++);
      write_run(folder, record, metrics + "\n" + kMetrics.substr(0, 300));
      TopState state;
      state.rows = {read_run_row(folder, ProcessTable(), "h", 111)};
      EXPECT_FALSE(screen_of(state, 200, 20).empty());
      EXPECT_FALSE(top_table(state).empty());
    }
}

TEST(TopRows, FolderIsARunOrContainsRuns) {
  const TempDir dir;
  write_run(dir.path() + "/runs/a", "{}", "");
  write_run(dir.path() + "/runs/b", "", kMetrics);
  FileSystem::real().make_dirs(dir.path() + "/runs/other");
  const ProcessTable processes;
  EXPECT_EQ(read_run_rows({dir.path() + "/runs"}, processes, 0).size(), 2u);
  EXPECT_EQ(read_run_rows({dir.path() + "/runs/a", dir.path() + "/runs/b"}, processes, 0).size(), 2u);
  EXPECT_TRUE(read_run_rows({dir.path() + "/missing"}, processes, 0).empty());
}

TEST(ProcessTables, AddTheMemoryOfChildren) {
  const TempDir dir;
  const auto add = [&](int id, int parent, const std::string& command, int pages) {
    FileSystem::real().make_dirs(fmt::format("{}/{}", dir.path(), id));
    std::string text = fmt::format("{} ({}) S {}", id, command, parent);
    for (int i = 5; i < 24; ++i) text += " 0";
    text += fmt::format(" {} 0 0\n", pages);
    FileSystem::real().write(fmt::format("{}/{}/stat", dir.path(), id), std::vector<uint8_t>(text.begin(), text.end()));
  };
  add(10, 1, "lockstep", 5);
  add(11, 10, "a) S 1 (b", 7);
  add(12, 11, "sh", 11);
  add(20, 1, "bash", 100);
  const ProcessTable table(dir.path());
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  EXPECT_EQ(table.memory_of(10), 23 * page);
  EXPECT_EQ(table.memory_of(12), 11 * page);
  EXPECT_EQ(table.memory_of(99), -1);
  EXPECT_EQ(table.launcher_of(11), 10);
  EXPECT_EQ(table.launcher_of(12), 12);
  EXPECT_EQ(table.launcher_of(20), 20);
}

// The screen of the program, with its keys, until it quits.
TEST(Top, ShowsRunsOnATerminal) {
  const TempDir dir;
  write_run(dir.path() + "/runs/first", "", kMetrics);
  write_run(dir.path() + "/runs/second", "", kMetrics);
  TerminalProgram top({program_path(), "top", dir.path() + "/runs", "--state-dir", dir.path() + "/state"}, 132);
  ASSERT_TRUE(top.shows("  second ")) << top.screen().text();
  EXPECT_TRUE(top.screen().on_other_screen());
  EXPECT_TRUE(top.shows("LOSSES")) << top.screen().text();
  top.resize(50);
  ASSERT_TRUE(top.shows([](const Screen& screen) { return screen.text().find("LOSSES") == std::string::npos; }));
  top.type("/sec\r");
  ASSERT_TRUE(top.shows([](const Screen& screen) { return screen.text().find("first") == std::string::npos; }));
  top.type("\r");
  ASSERT_TRUE(top.shows("alarm: bad")) << top.screen().text();
  top.type("q");
  EXPECT_EQ(top.wait(), 0);
  EXPECT_FALSE(top.screen().on_other_screen());
  EXPECT_TRUE(top.output().ends_with("\033[?25h\033[?1049l")) << "the cursor is hidden";
}

TEST(Top, SignalsRestoreTheTerminal) {
  const TempDir dir;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    TerminalProgram top({program_path(), "top", dir.path(), "--state-dir", dir.path() + "/state"}, 80);
    ASSERT_TRUE(top.shows("no runs and no jobs yet"));
    top.send(signal);
    EXPECT_EQ(top.wait(), 128 + signal);
    EXPECT_FALSE(top.screen().on_other_screen());
  }
}

TEST(TopGpus, AreShown) {
  const std::vector<GpuLoad> gpus = gpu_loads();
  if (gpus.empty()) GTEST_SKIP() << "no GPU, or no NVML";
  EXPECT_GT(gpus[0].total, gpus[0].used);
  EXPECT_LE(gpus[0].busy, 100);
  const TempDir dir;
  TerminalProgram top({program_path(), "top", dir.path(), "--state-dir", dir.path() + "/state"}, 120);
  EXPECT_TRUE(top.shows("GPU 0 ▕")) << top.screen().text();
  EXPECT_TRUE(top.shows(gpus[0].name)) << top.screen().text();
}

TEST(Top, OnceIsATable) {
  const TempDir dir;
  write_run(dir.path() + "/runs/first", "", kMetrics);
  const ProcessResult result =
      run_lockstep({"top", "--once", dir.path() + "/runs", "--state-dir", dir.path() + "/state"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.output.starts_with("NAME    STATE ")) << result.output;
  EXPECT_NE(result.output.find("first   silent "), std::string::npos) << result.output;
  EXPECT_EQ(run_lockstep({"top", "--once", dir.path() + "/missing"}).exit_code, 1);
}

}  // namespace
}  // namespace lockstep::cli
