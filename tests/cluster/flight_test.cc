// Flight records: their content, when they are written, and that damaged ones are refused.
#include "cluster/flight.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <filesystem>
#include <future>
#include <limits>
#include <optional>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "cluster/blame.h"
#include "cluster/flight_dumper.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using RecordOutcome = FlightRecord::Outcome;

std::shared_ptr<FlightRecorder> some_operations() {
  auto recorder = std::make_shared<FlightRecorder>(2, 2);
  recorder->set_step(5);
  for (const auto& lane : recorder->lanes()) {
    FlightGroup& group = lane->add_group("world", {0, 1, 2, 3});
    lane->end(lane->begin(group, {.kind = Operation::Kind::all_reduce, .count = 10}, true), true);
    lane->begin(group, {}, true);
  }
  return recorder;
}

std::string text_of(const std::string& path) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path);
  return {bytes.begin(), bytes.end()};
}

TEST(FlightFolder, IsTheVariableOrAFolderOfTheJob) {
  const TempDir dir;
  const ScopedVariable temporary("TMPDIR", dir.path());
  EXPECT_EQ(latest_flight_folder(), "");
  EXPECT_EQ(flight_folder("here", "3f9a0c21"), "here");
  for (const std::optional<std::string>& nothing : {std::optional<std::string>(), std::optional<std::string>("")})
    EXPECT_EQ(flight_folder(nothing, "3f9a0c21"), dir.path() + "/lockstep-flight-3f9a0c21");
  FileSystem& files = FileSystem::real();
  files.make_dirs(dir.path() + "/something");
  for (const char* const job : {"1", "2"}) files.make_dirs(flight_folder("", job));
  // Ordered by modification time, not by name.
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(flight_folder("", "2"), now - std::chrono::hours(1));
  EXPECT_EQ(latest_flight_folder(), flight_folder("", "1"));
}

TEST(FlightDump, JsonRoundTrips) {
  const int64_t before =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const FlightDump dump = take_dump(*some_operations(), {"3f9a0c21", 1, 2}, "a \"bad\" thing");
  EXPECT_EQ(flight_file_name(dump), "lockstep_flight_3f9a0c21_1.json");
  EXPECT_TRUE(is_flight_file_name(flight_file_name(dump)));
  EXPECT_FALSE(is_flight_file_name("lockstep_flight_3f9a0c21_1.json.tmp"));
  const FlightDump back = flight_dump_from(to_json(dump), "x");
  EXPECT_EQ(to_json(back), to_json(dump));
  EXPECT_EQ(back.reason, "a \"bad\" thing");
  EXPECT_EQ(back.step, 5);
  ASSERT_EQ(back.groups.size(), 2u);
  EXPECT_EQ(back.groups[1].lane, 3);
  EXPECT_EQ(back.groups[1].next, 3);
  ASSERT_EQ(back.records.size(), 4u);
  const FlightDump::Record& first = back.records[2];
  EXPECT_EQ(first.group, 1);
  EXPECT_EQ(first.operation, "all_reduce");
  EXPECT_EQ(first.dtype, "f32");
  EXPECT_EQ(first.bytes, 40);
  EXPECT_EQ(first.outcome, RecordOutcome::done);
  // Times are of the wall clock, with a tolerance for clock adjustments.
  constexpr int64_t kMinute = 60'000'000'000;
  EXPECT_LT(std::abs(first.began - before), kMinute);
  EXPECT_GE(first.ended, first.began);
  EXPECT_EQ(back.records[3].ended, 0);
}

TEST(FlightDump, DamagedDumpsAreRefused) {
  const std::string whole = to_json(take_dump(*some_operations(), {"3f9a0c21", 1, 2}, "SIGUSR2"));
  const auto with = [&](const std::string& old, const std::string& replacement) {
    std::string text = whole;
    text.replace(text.find(old), old.size(), replacement);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), whole.substr(0, whole.size() / 2),
        with("\"process\":1", "\"process\":7"), with("\"group\":0", "\"group\":9"), with("under way", "lost"),
        with("\"lanes\":[0,1,2,3]", "\"lanes\":[0,1,2,4]"), with("\"lane\":2", "\"lane\":0"),
        with("\"lanes\":[0,1,2,3]", "\"lanes\":[0,1,3]"), std::string("root:x:0:0:root:/root:/bin/sh\n"),
        with("\"processes\":2", "\"processes\":2147483647"), with("\"step\":", "\"step\":0.5,\"s\":"),
        with("\"process\":1", "\"process\":4294967297"), with("\"began_ns\":", "\"began_ns\":-5,\"s\":"),
        with("\"pid\":", "\"pid\":1e99,\"p\":"),
        with("\"host\":", "\"h\":" + std::string(100'000, '[') + std::string(100'000, ']') + ",\"host\":")})
    EXPECT_THROWS(flight_dump_from(text, "dump.json"), Error, "blame: dump.json is not a flight record: ");
  EXPECT_THROWS(flight_dump_from(with("flight 1", "flight 2"), "dump.json"), Error,
                "blame: dump.json is not a flight record: its format is \"lockstep flight 2\", but this "
                "version reads \"lockstep flight 1\"; omit it");
}

TEST(FlightDumper, FirstFailureIsWrittenOnceAndKept) {
  const TempDir dir;
  const std::string folder = dir.path() + "/new";
  std::vector<std::string> lines;
  FlightDumper dumper(some_operations(), {.origin = {"3f9a0c21", 1, 2}, .folder = folder, .log = [&](const auto& line) {
                                            lines.push_back(line);
                                          }});
  dumper.write("SIGUSR2");
  const std::string path = folder + "/lockstep_flight_3f9a0c21_1.json";
  EXPECT_EQ(flight_dump_from(text_of(path), path).reason, "SIGUSR2");
  constexpr auto kTimeout = std::chrono::seconds(60);
  dumper.dump_failure("first", kTimeout);
  dumper.dump_failure("second", kTimeout);
  dumper.write("SIGUSR2");
  EXPECT_EQ(flight_dump_from(text_of(path), path).reason, "first");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "flight record of process 1 written to " + path + " (last 4 collectives); run `lockstep blame " +
                          folder + "` to find the slow or missing process");
}

TEST(FlightDumper, FailuresBeforeTheFirstCollectiveAreNotAnnounced) {
  const TempDir dir;
  std::vector<std::string> lines;
  FlightDumper dumper(
      std::make_shared<FlightRecorder>(2, 2),
      {.origin = {"3f9a0c21", 1, 2}, .folder = dir.path(), .log = [&](const auto& line) { lines.push_back(line); }});
  dumper.dump_failure("wrong settings", std::chrono::seconds(60));
  const std::string path = dir.path() + "/lockstep_flight_3f9a0c21_1.json";
  EXPECT_EQ(flight_dump_from(text_of(path), path).reason, "wrong settings");
  EXPECT_TRUE(lines.empty());
}

// A disk whose writes block until they are released.
class SlowFiles final : public FaultyFiles {
 public:
  void rename(const std::string& from, const std::string& to) override {
    begun.set_value();
    go.get_future().wait();
    FaultyFiles::rename(from, to);
  }
  std::promise<void> begun, go;
};

TEST(FlightDumper, LaterCallersWaitForTheDump) {
  const TempDir dir;
  SlowFiles files;
  FlightDumper dumper(some_operations(), {.origin = {"3f9a0c21", 1, 2}, .folder = dir.path(), .files = &files});
  const auto fail = [&](const char* reason) {
    return std::async(std::launch::async, [&dumper, reason] { dumper.dump_failure(reason, std::chrono::seconds(60)); });
  };
  const auto first = fail("first");
  files.begun.get_future().wait();
  const auto second = fail("second");
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  files.go.set_value();
  second.wait();
  EXPECT_TRUE(files.exists(dir.path() + "/lockstep_flight_3f9a0c21_1.json"));
}

TEST(FlightDumper, FullDiskIsLoggedOnly) {
  const TempDir dir;
  FaultyFiles files;
  files.fail("rename", ENOSPC);
  std::vector<std::string> lines;
  {
    FlightDumper dumper(some_operations(), {.origin = {"3f9a0c21", 1, 2},
                                            .folder = dir.path(),
                                            .log = [&](const auto& line) { lines.push_back(line); },
                                            .files = &files});
    dumper.dump_failure("first", std::chrono::seconds(60));
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("the flight record of process 1 could not be written: ", 0), 0u) << lines[0];
}

TEST(FlightDumper, WritesOnSignal) {
  const TempDir dir;
  std::atomic<int> written{0};
  {
    FlightDumper dumper(some_operations(),
                        {.origin = {"3f9a0c21", 1, 2}, .folder = dir.path(), .log = [&](const auto&) { ++written; }});
    ASSERT_TRUE(dumper.handle_signal());
    FlightDumper another(some_operations(), {});
    EXPECT_FALSE(another.handle_signal());
    for (int times = 1; times <= 2; ++times) {
      ::kill(::getpid(), SIGUSR2);
      for (int i = 0; i < 60'000 && written < times; ++i) ::poll(nullptr, 0, 1);
      ASSERT_EQ(written, times);
    }
  }
  struct sigaction after = {};
  ::sigaction(SIGUSR2, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
}

TEST(FlightDumper, DoesNotReplaceAHandlerOfTheProgram) {
  struct sigaction own = {}, before = {}, after = {};
  own.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR2, &own, &before);
  {
    FlightDumper dumper(some_operations(), {});
    EXPECT_FALSE(dumper.handle_signal());
  }
  ::sigaction(SIGUSR2, &before, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

TEST(BlameReport, TimesFarApartDoNotOverflow) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max(), kFirst = std::numeric_limits<int64_t>::min();
  std::vector<FlightDump> dumps;
  for (int process = 0; process < 2; ++process) {
    FlightDump dump = take_dump(*some_operations(), {"3f9a0c21", process, 2}, "x");
    dump.clock = std::to_string(process);
    dump.time = process == 0 ? kLast : kFirst;
    for (FlightDump::Group& group : dump.groups) group.lane = 2 * process + group.lane % 2;
    for (FlightDump::Record& record : dump.records) {
      record.began = record.waited = process == 0 ? kLast : kFirst;
      if (record.outcome == RecordOutcome::done) record.ended = process == 0 ? kLast : kFirst;
    }
    dumps.push_back(dump);
  }
  const BlameReport found = blame(dumps);
  EXPECT_EQ(found.compared, 2);
  EXPECT_EQ(found.processes[1].offset, kLast);
}

}  // namespace
}  // namespace lockstep
