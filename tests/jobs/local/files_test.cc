// Parts of the local runner: logs, locks, and the environment of replicas.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "jobs/local/jobs.h"
#include "jobs/local/log_reader.h"
#include "jobs/local/pod_log.h"
#include "jobs/local/replica.h"
#include "support/listener.h"

namespace lockstep {
namespace {

std::string read_all(LogReader& reader) {
  std::string out;
  reader.read([&](std::string_view text) {
    out += text;
    return true;
  });
  return out;
}
std::string read_all(const std::string& path, std::optional<int64_t> tail = {}) {
  LogReader reader(path, tail);
  return read_all(reader);
}

// "0000001\n": a thousand of them are 8000 bytes.
std::string numbered(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i) out += fmt::format("{:07}\n", i);
  return out;
}

TEST(PodLog, KeepsTheNewestLinesAndCountsDroppedBytes) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  PodLog log(FileSystem::real(), path, 4096);
  log.write(numbered(0, 100));
  EXPECT_EQ(read_all(path), numbered(0, 100));
  for (int i = 100; i < 2000; i += 100) log.write(numbered(i, i + 100));
  const std::string text = read_all(path);
  const size_t first_line = text.find('\n') + 1;
  const std::string kept = text.substr(first_line);
  EXPECT_TRUE(numbered(0, 2000).ends_with(kept));
  EXPECT_GE(kept.size(), 4096u);
  EXPECT_LE(kept.size(), 8192u);
  EXPECT_EQ(text.substr(0, first_line),
            fmt::format("lockstep: {} bytes before this line were dropped: the log was longer than "
                        "LOCKSTEP_LOG_LIMIT\n",
                        16000 - kept.size()));
  // A second PodLog appends to the existing files.
  PodLog(FileSystem::real(), path, 4096).write("the end\n");
  EXPECT_TRUE(read_all(path).ends_with(numbered(1999, 2000) + "the end\n"));
}

TEST(PodLog, CountsLinesThatDoNotFitOnTheDisk) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  FaultyFiles files;
  PodLog log(files, path, 1 << 20);
  log.write("first\n");
  files.fail("append", ENOSPC);
  log.write("12345\n12345\n");  // half of it is written
  log.write("more\n");
  files.fail("append", 0);
  log.write("last\n");
  const std::vector<std::string> lines = lines_of(read_all(path));
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(lines[0], "first");
  EXPECT_EQ(lines[1], "12345");
  EXPECT_TRUE(lines[2].starts_with("lockstep: 1 lines (6 bytes)"));  // a truncated note; the next one counts again
  EXPECT_TRUE(lines[3].starts_with("lockstep: 2 lines (11 bytes) are missing here: append to " + path +
                                   ": No space left on device"));
  EXPECT_EQ(lines.back(), "last");
  files.fail("append", ENOSPC);
  log.write("never\n");
  files.fail("append", 0);
  log.finish();
  EXPECT_TRUE(lines_of(read_all(path)).back().starts_with("lockstep: 1 lines (")) << read_all(path);
}

TEST(PodLog, CountsMissingLinesOnlyOnce) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  FaultyFiles files;
  PodLog log(files, path, 1 << 20);
  files.fail("append", ENOSPC);
  log.write("never\n");         // "nev" is written
  log.write(numbered(0, 100));  // the note is written, and less than half of these
  files.fail("append", 0);
  log.finish();
  const std::string text = read_all(path);
  const size_t from = text.find('\n', text.find("missing here")) + 1, to = text.rfind("\nlockstep: ");
  EXPECT_TRUE(text.starts_with("nev\nlockstep: 1 lines (3 bytes) are missing here: ")) << text;
  ASSERT_LT(from, to) << text;
  const std::string kept = text.substr(from, to - from);
  EXPECT_TRUE(numbered(0, 100).starts_with(kept)) << kept;
  EXPECT_TRUE(contains(text.substr(to), fmt::format("({} bytes) are missing", 800 - kept.size()))) << text.substr(to);
}

TEST(LogReader, FollowsARotatedLog) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  LogReader reader(path, {});
  EXPECT_EQ(read_all(reader), "");
  PodLog log(FileSystem::real(), path, 4096);
  std::string text;
  for (int i = 0; i < 3000; i += 100) {
    log.write(numbered(i, i + 100));
    text += read_all(reader);
  }
  EXPECT_EQ(text, numbered(0, 3000));
  // A reader that is too slow gets a note about dropped lines.
  for (int i = 3000; i < 6000; i += 100) log.write(numbered(i, i + 100));
  const std::string rest = read_all(reader);
  EXPECT_TRUE(rest.starts_with("lockstep: ")) << rest.substr(0, 100);
  EXPECT_TRUE(rest.ends_with(numbered(5900, 6000)));
}

TEST(LogReader, FindsTheOutputSinceATime) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  int64_t now = 1000;
  PodLog log(FileSystem::real(), path, 4096, [&] { return now; });
  const auto since = [&](int64_t time, std::optional<int64_t> tail = {}) {
    LogReader reader(path, tail, time);
    return read_all(reader);
  };
  EXPECT_EQ(since(0), "");
  for (int i = 0; i < 300; i += 100, now += 10) log.write(numbered(i, i + 100));
  EXPECT_EQ(since(0), numbered(0, 300));
  EXPECT_EQ(since(1000), numbered(0, 300));
  EXPECT_EQ(since(1001), numbered(100, 300));
  EXPECT_EQ(since(1021), "");
  EXPECT_EQ(since(1001, 5), numbered(295, 300));
  EXPECT_EQ(since(1020, 150), numbered(200, 300));
  for (int i = 300; i < 700; i += 100, now += 10) log.write(numbered(i, i + 100));  // 500 lines fit into a file
  EXPECT_EQ(since(1020), numbered(200, 700)) << "a part is in the older file";
  EXPECT_EQ(since(1060), numbered(600, 700));
  EXPECT_EQ(since(1020, 350), numbered(350, 700));

  LogReader following(path, {}, 2000);
  EXPECT_EQ(read_all(following), "");
  log.write("new\n");
  EXPECT_EQ(read_all(following), "new\n");
}

TEST(LogReader, FindsTheLastLines) {
  const TempDir dir;
  const std::string path = dir.path() + "/log";
  PodLog log(FileSystem::real(), path, 4096);
  for (int i = 0; i < 1000; i += 100) log.write(numbered(i, i + 100));
  EXPECT_EQ(read_all(path, 0), "");
  EXPECT_EQ(read_all(path, 1), numbered(999, 1000));
  EXPECT_EQ(read_all(path, 350), numbered(650, 1000));  // some are in the older file
  EXPECT_TRUE(read_all(path, 5000).ends_with(numbered(600, 1000)));
  EXPECT_EQ(read_all(dir.path() + "/none", 3), "");
  FileSystem::real().write(path, {});
  std::filesystem::remove(path + ".1");
  EXPECT_EQ(read_all(path, 3), "");
  PodLog(FileSystem::real(), path, 4096).write("a\nb");
  EXPECT_EQ(read_all(path, 1), "b");
  EXPECT_EQ(read_all(path, 2), "a\nb");
}

TEST(FileLock, NamesItsHolderAndIsReleasedWhenThatDies) {
  const TempDir dir;
  const std::string path = dir.path() + "/lock";
  EXPECT_FALSE(lock_holder(path));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::try_acquire(path);
    [[maybe_unused]] const ssize_t n = ::write(ends[1], lock ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const auto holder = lock_holder(path);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->pid, child);
  EXPECT_FALSE(FileLock::try_acquire(path));
  holder->send(SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(lock_holder(path));
  EXPECT_TRUE(FileLock::try_acquire(path));
  EXPECT_THROWS(FileLock::try_acquire(dir.path() + "/no/lock"), IoError,
                "open " + dir.path() + "/no/lock: No such file");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Replica, DoesNotInheritSecretsOrVariablesOfAnotherJob) {
  const detail::Environment environment = {{"PATH", "/bin"},
                                           {"LC_ALL", "C"},
                                           {"LOCKSTEP_TOKEN", "secret"},
                                           {"LOCKSTEP_TOKEN_FILE", "/secret"},
                                           {"LOCKSTEP_VERBOSE", "1"},
                                           {"LOCKSTEP_COORDINATOR", "x:1"},
                                           {"JAX_PROCESS_ID", "3"},
                                           {"JAX_PLATFORMS", "cpu"},
                                           {"XLA_FLAGS", "--a"},
                                           {"CUDA_VISIBLE_DEVICES", "0"},
                                           {"AWS_SECRET_ACCESS_KEY", "x"},
                                           {"XDG_API_KEY", "x"},
                                           {"SLURM_JOB_ID", "7"},
                                           {"EDITOR", "vi"}};
  const std::map<std::string, std::string> wanted = {{"PATH", "/bin"},          {"LC_ALL", "C"},
                                                     {"LOCKSTEP_VERBOSE", "1"}, {"JAX_PLATFORMS", "cpu"},
                                                     {"XLA_FLAGS", "--a"},      {"CUDA_VISIBLE_DEVICES", "0"}};
  EXPECT_EQ(inherited_variables(environment), wanted);
}

LocalJob local_job(const Json& manifest) {
  return {.job = parse_manifests(manifest.dump(), "job.json").jobs.at(0),
          .folder = "/here",
          .program = "/bin/lockstep",
          .environment = {{"PATH", "/bin"}},
          .events = {},
          .deleting = false,
          .reported_attempt = 0,
          .reported_phases = {}};
}

TEST(Replica, RunsLockstepByDefault) {
  Json manifest = shell_job("a", 1, "");
  const auto argv = [&] { return replica_spec(local_job(manifest), 0, "/attempt", PodFolder("/pod"), 7000, {}).argv; };
  using Words = std::vector<std::string>;
  container_of(manifest).erase("command");
  EXPECT_EQ(argv(), (Words{"/bin/lockstep", "train"}));
  container_of(manifest)["args"] = Json::array({"devices"});
  EXPECT_EQ(argv(), (Words{"/bin/lockstep", "devices"}));
  container_of(manifest)["command"] = Json::array({"lockstep"});
  EXPECT_EQ(argv(), (Words{"/bin/lockstep", "devices"}));
  container_of(manifest)["command"] = Json::array({"python", "lockstep"});
  EXPECT_EQ(argv(), (Words{"python", "lockstep", "devices"}));
}

TEST(Replica, OperatorVariablesOverrideTheManifestAndTheTokenIsAFile) {
  Json manifest = shell_job("a", 2, "");
  container_of(manifest)["env"] = Json::array(
      {{{"name", "PROCESS_ID"}, {"value", "9"}}, {{"name", "A"}, {"value", "x"}}, {{"name", "B"}, {"value", "$(A)y"}}});
  container_of(manifest)["workingDir"] = "there";
  const ReplicaSpec spec = replica_spec(local_job(manifest), 1, "/attempt", PodFolder("/pod"), 7000, {1});
  const std::vector<std::string> wanted = {"A=x",
                                           "B=xy",
                                           "COORDINATOR_ADDRESS=127.0.0.1",
                                           "COORDINATOR_PORT=7000",
                                           "LOCKSTEP_JOB=job-:0",
                                           "LOCKSTEP_TOKEN_FILE=/attempt/token",
                                           "NUM_PROCESSES=2",
                                           "PATH=/bin",
                                           "PROCESS_ID=1",
                                           "PYTHONUNBUFFERED=1",
                                           "LOCKSTEP_POD_FOLDER=/pod"};
  EXPECT_EQ(spec.environment, wanted);
  EXPECT_EQ(spec.folder, "/here/there");
  EXPECT_EQ(spec.grace, std::chrono::seconds(5));
  manifest["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"].erase("terminationGracePeriodSeconds");
  EXPECT_EQ(termination_grace(local_job(manifest).job), 30);
}

TEST(Replica, DoesNotChooseTakenPorts) {
  const Listener listener;
  EXPECT_NE(choose_port(listener.port(), {}), listener.port());
  const int free = unused_port();
  EXPECT_EQ(choose_port(free, {}), free);
  EXPECT_NE(choose_port(free, {free}), free);
}

TEST(StateDir, FollowsTheEnvironment) {
  EXPECT_EQ(StateDir::default_path({{"LOCKSTEP_STATE_DIR", "/a"}, {"XDG_STATE_HOME", "/b"}}), "/a");
  EXPECT_EQ(StateDir::default_path({{"XDG_STATE_HOME", "/b"}, {"HOME", "/c"}}), "/b/lockstep");
  EXPECT_EQ(StateDir::default_path({{"HOME", "/c"}}), "/c/.local/state/lockstep");
  EXPECT_THROWS(local_job_from_json(Json::object()), Error, "read a job: ");
}

}  // namespace
}  // namespace lockstep
