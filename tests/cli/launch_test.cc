// lockstep launch with shells as the processes of a job.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/file.h"
#include "cli/launched_shells.h"
#include "jobs/child.h"
#include "lane/memory.h"
#include "support/program.h"
#include "support/text_file.h"
#include "support/variable.h"

namespace lockstep {
namespace {

using shells::last_line;
using shells::launch_words;

RunningProgram::Result launch(const Words& flags, const std::string& script) {
  return RunningProgram(launch_words(flags, script)).wait();
}

std::multiset<std::string> sorted_lines_of(const std::string& text) {
  std::istringstream in(text);
  std::multiset<std::string> out;
  for (std::string line; std::getline(in, line);) out.insert(line);
  return out;
}
using Lines = std::multiset<std::string>;

TEST(Launch, EveryProcessGetsItsRank) {
  const auto result =
      launch({"-n", "3", "--devices", "8", "--cpu-lanes=2", "--collectives", "gloo", "--heartbeat-timeout", "2.5",
              "--collective-timeout", "7"},
             "echo $LOCKSTEP_PROCESS_ID of $LOCKSTEP_NUM_PROCESSES $LOCKSTEP_NUM_CPU_DEVICES $LOCKSTEP_CPU_LANES "
             "$LOCKSTEP_COLLECTIVES $LOCKSTEP_HEARTBEAT_TIMEOUT $LOCKSTEP_COLLECTIVE_TIMEOUT ${#LOCKSTEP_TOKEN}");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(sorted_lines_of(result.out),
            (Lines{"[0] 0 of 3 8 2 gloo 2.5 7 64", "[1] 1 of 3 8 2 gloo 2.5 7 64", "[2] 2 of 3 8 2 gloo 2.5 7 64"}));
  EXPECT_EQ(result.err, "");
}

TEST(Launch, AllProcessesShareCoordinatorAndToken) {
  const auto result = launch({"-n", "2"}, "echo $LOCKSTEP_COORDINATOR $LOCKSTEP_TOKEN");
  const Lines lines = sorted_lines_of(result.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines.begin()->substr(4), lines.rbegin()->substr(4));
  EXPECT_TRUE(lines.begin()->starts_with("[0] 127.0.0.1:"));
  const auto again = launch({"-n", "1"}, "echo $LOCKSTEP_COORDINATOR $LOCKSTEP_TOKEN");
  EXPECT_NE(again.out.substr(again.out.rfind(' ')), lines.begin()->substr(lines.begin()->rfind(' ')) + "\n");
}

TEST(Launch, VariablesOfOtherLaunchersAreIgnored) {
  const ScopedVariable ompi("OMPI_COMM_WORLD_SIZE", "7"), rank("OMPI_COMM_WORLD_RANK", "x"),
      jax("JAX_COORDINATOR_ADDRESS", "nowhere:1"), bind("JAX_COORDINATOR_BIND_ADDRESS", "1.2.3.4:5"),
      port("LOCKSTEP_COORDINATOR_PORT", "9"), slurm("SLURM_JOB_ID", "3"), id("LOCKSTEP_PROCESS_ID", "5"),
      file("LOCKSTEP_TOKEN_FILE", "/no/such");
  const RunningProgram::Result result =
      RunningProgram({program_path(), "launch", "-n", "2", "--", "doctor", "--json"}).wait();
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '{') > 2, true);
  EXPECT_TRUE(contains(result.out, "[0]     \"method\": \"explicit\"")) << result.out;
  EXPECT_TRUE(contains(result.out, "[1]     \"method\": \"explicit\""));
  EXPECT_TRUE(contains(result.out, "[1]     \"process_id\": 1"));
  EXPECT_FALSE(contains(result.out, "1.2.3.4"));
}

TEST(Launch, CoresAreDividedUnlessPinningIsOff) {
  const std::string script = "sed -n 's/Cpus_allowed_list:\\t//p' /proc/self/status";
  const auto all = launch({"-n", "1"}, script);
  const Lines pinned = sorted_lines_of(launch({"-n", "2"}, script).out),
              free = sorted_lines_of(launch({"-n", "2", "--no-pin"}, script).out);
  ASSERT_EQ(pinned.size(), 2u);
  ASSERT_EQ(free.size(), 2u);
  EXPECT_EQ(free.begin()->substr(4), free.rbegin()->substr(4));
  EXPECT_EQ(free.begin()->substr(4) + "\n", all.out.substr(4));
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const Lines shared = sorted_lines_of(launch({"-n", std::to_string(cores + 1)}, script).out);
  EXPECT_EQ(shared.size(), static_cast<size_t>(cores + 1));
  EXPECT_EQ(shared.begin()->substr(4) + "\n", all.out.substr(4));
  if (all.out.find_first_of(",-") != std::string::npos) {  // several cores
    EXPECT_NE(pinned.begin()->substr(4), pinned.rbegin()->substr(4));
  }
}

TEST(Launch, ProcessesThatAreNotPinnedComputeOnAllCores) {
  const std::string script = "echo $LOCKSTEP_CPU_THREADS";
  const std::string all = std::to_string(available_cpus());
  EXPECT_EQ(sorted_lines_of(launch({"-n", "2", "--no-pin"}, script).out), (Lines{"[0] " + all, "[1] " + all}));
  EXPECT_EQ(sorted_lines_of(launch({"-n", "2", "--no-pin", "--cpu-threads", "3"}, script).out),
            (Lines{"[0] 3", "[1] 3"}));
  EXPECT_EQ(sorted_lines_of(launch({"-n", "2"}, script).out), (Lines{"[0] ", "[1] "}));
}

TEST(Launch, OutputKeepsItsStreamAndItsBytes) {
  const TempDir dir;
  const auto result = launch({"-n", "2", "--logs", dir.path() + "/logs"},
                             "printf 'a\\377\\001b\\nno newline'; printf 'error' >&2; exec >&- 2>&-; exit 0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(sorted_lines_of(result.out), (Lines{"[0] a\xff\x01"
                                                "b",
                                                "[0] no newline",
                                                "[1] a\xff\x01"
                                                "b",
                                                "[1] no newline"}));
  EXPECT_EQ(sorted_lines_of(result.err), (Lines{"[0] error", "[1] error"}));
  for (const char* name : {"/logs/rank_0.log", "/logs/rank_1.log"})
    EXPECT_EQ(sorted_lines_of(read_text(dir.path() + name)), (Lines{"a\xff\x01"
                                                                    "b",
                                                                    "error", "no newline"}));
}

TEST(Launch, FullDiskEndsOnlyTheLog) {
  const TempDir dir;
  // As on a full disk: no file may grow. The output goes through a pipe.
  const Words limited = {"bash", "-c", "set -o pipefail; (ulimit -f 0; exec \"$0\" \"$@\" 2>&1) | cat"};
  const auto result =
      RunningProgram(limited + launch_words({"-n", "1", "--logs", dir.path()}, "echo a; echo b")).wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(contains(result.out, "[0] a\n") && contains(result.out, "[0] b\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "lockstep launch: the log of process 0 ends here: write ")) << result.out;
  EXPECT_EQ(sorted_lines_of(result.out).size(), 3u) << result.out;
  EXPECT_EQ(launch({"-n", "1", "--logs", "/dev/null/x"}, "echo a").exit_code, 1);
  const std::string target = dir.path() + "/target", log = dir.path() + "/rank_0.log";
  FileSystem::real().remove(log);
  ASSERT_EQ(::symlink(target.c_str(), log.c_str()), 0);
  EXPECT_EQ(launch({"-n", "1", "--logs", dir.path()}, "echo a").exit_code, 1) << "logs are not written through links";
  EXPECT_FALSE(FileSystem::real().exists(target));
}

TEST(Launch, LargeOutputIsNeitherLostNorInterleaved) {
  const TempDir dir;
  const auto result = launch({"-n", "3", "--logs", dir.path()},
                             "awk -v id=$LOCKSTEP_PROCESS_ID 'BEGIN { for (i = 0; i < 100000; ++i) "
                             "print id, i, \"0123456789012345678901234567890123456789\" }'; "
                             "head -c 200000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream in(result.out);
  int next[3] = {0, 0, 0};
  size_t xs = 0;
  for (std::string line; std::getline(in, line);) {
    ASSERT_GT(line.size(), 4u);
    const int process = line[1] - '0';
    ASSERT_TRUE(process >= 0 && process < 3) << line;
    if (line.find('x') != line.npos) {
      ASSERT_EQ(line.find_first_not_of("x", line.find(' ') + 1), line.npos);
      xs += line.size() - line.find(' ') - 1;
      continue;
    }
    ASSERT_EQ(line, "[" + std::to_string(process) + "] " + std::to_string(process) + " " +
                        std::to_string(next[process]++) + " 0123456789012345678901234567890123456789");
  }
  EXPECT_EQ(xs, 600000u);
  for (const int each : next) EXPECT_EQ(each, 100000);
  const std::string log = read_text(dir.path() + "/rank_2.log");
  EXPECT_TRUE(log.ends_with("\n" + std::string(200000, 'x') + "\n"));
}

TEST(Launch, QuietRanksShowOnlyProcess0) {
  const auto result = launch({"-n", "3", "--quiet-ranks"}, "echo $LOCKSTEP_PROCESS_ID");
  EXPECT_EQ(result.out, "[0] 0\n");
}

TEST(Launch, FirstCauseIsPrintedLast) {
  // The other processes notice and stop. The one that failed has printed much output.
  const auto result = launch({"-n", "3", "--quiet-ranks"},
                             "if [ $LOCKSTEP_PROCESS_ID = 1 ]; then for i in $(seq 30); do echo line $i; done; kill -s "
                             "KILL $$; fi; exit 75");
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_TRUE(contains(result.err, "lockstep launch: the last lines of process 1:\n[1] line 11\n")) << result.err;
  EXPECT_TRUE(contains(result.err, "[1] line 30\nlockstep launch: process 1 was killed by SIGKILL (out of memory?"))
      << result.err;
  EXPECT_TRUE(contains(last_line(result.err), "; the others stopped because of it; --max-restarts N restarts"))
      << result.err;
}

TEST(Launch, PrintedLinesAreNotRepeated) {
  const auto result = launch({"-n", "2"}, "[ $LOCKSTEP_PROCESS_ID = 1 ] && echo the reason >&2 && exit 4; exit 75");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err.find("the reason"), result.err.rfind("the reason")) << result.err;
}

TEST(Launch, OutputThatCannotBeWrittenIsAFailure) {
  const auto run = [](const std::string& script) {
    return RunningProgram(
               {"/bin/sh", "-c", "\"$0\" launch -n 1 -- /bin/sh -c '" + script + "' > /dev/full", program_path()})
        .wait();
  };
  const auto full = run("echo x");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err, "lockstep launch: cannot write the output: No space left on device; it is incomplete\n");
  EXPECT_EQ(run("true").exit_code, 0);
  EXPECT_EQ(run("echo x; exit 5").exit_code, 5);
}

TEST(Launch, ExitCodesAreThoseOfTheFirstCause) {
  EXPECT_EQ(launch({"-n", "2"}, "exit 3").exit_code, 3);
  EXPECT_EQ(launch({"-n", "2"}, "[ $LOCKSTEP_PROCESS_ID = 0 ] && exit 75; exit 2").exit_code, 2);
  EXPECT_EQ(launch({"-n", "2"}, "exit 75").exit_code, 75);
  EXPECT_EQ(launch({"-n", "1"}, "kill -s SEGV $$").exit_code, 139);
}

TEST(Launch, OthersGetSigtermAndThenSigkill) {
  const TempDir dir;
  // One process fails once the other has installed its trap.
  const auto run = [&](const std::string& trap, const std::string& then) {
    const std::string ready = "'" + dir.path() + "/ready'";
    const auto result = launch({"-n", "2", "--grace", "0.2"}, "if [ $LOCKSTEP_PROCESS_ID = 1 ]; then until [ -e " +
                                                                  ready + " ]; do sleep 0.01; done; exit 4; fi; " +
                                                                  trap + "; touch " + ready + "; " + then);
    std::filesystem::remove(dir.path() + "/ready");
    return result;
  };
  const auto stopped = run("trap 'echo stopping; exit 0' TERM", "sleep 600 & wait");
  EXPECT_EQ(stopped.exit_code, 4);
  EXPECT_EQ(stopped.out, "[0] stopping\n");
  const auto killed = run("trap '' TERM", "while :; do sleep 600; done");
  EXPECT_EQ(killed.exit_code, 4);
  EXPECT_TRUE(contains(killed.err, "process 1 ended with exit code 4 after")) << killed.err;
  EXPECT_TRUE(contains(killed.err, "; the other one stopped because of it")) << killed.err;
}

TEST(Launch, SignalsReachAllProcesses) {
  RunningProgram program(
      launch_words({"-n", "2"},
                   "trap 'echo usr1 >&2' USR1; trap 'echo usr2 >&2' USR2; trap 'echo int >&2; exit 130' "
                   "INT; echo ready >&2; while :; do sleep 600 & wait $!; done"));
  ASSERT_TRUE(program.says("[0] ready") && program.says("[1] ready"));
  program.send(SIGUSR1);
  ASSERT_TRUE(program.says("[0] usr1") && program.says("[1] usr1"));
  program.send(SIGUSR2);
  ASSERT_TRUE(program.says("[0] usr2") && program.says("[1] usr2"));
  program.send(SIGINT);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_TRUE(contains(result.err, "[0] int\n") && contains(result.err, "[1] int\n")) << result.err;
  EXPECT_EQ(last_line(result.err), "lockstep launch: stopped by SIGINT");
}

TEST(Launch, StopAfterASignalSucceedsIfAllProcessesDo) {
  RunningProgram program(
      launch_words({"-n", "2"}, "trap 'exit 0' TERM; echo ready >&2; while :; do sleep 600 & wait $!; done"));
  ASSERT_TRUE(program.says("[0] ready") && program.says("[1] ready"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 0);
}

TEST(Launch, FailureWhileStoppingIsReported) {
  RunningProgram program(launch_words(
      {"-n", "2"},
      "trap 'exit $((LOCKSTEP_PROCESS_ID * 9))' TERM; echo ready >&2; while :; do sleep 600 & wait $!; done"));
  ASSERT_TRUE(program.says("[0] ready") && program.says("[1] ready"));
  program.send(SIGTERM);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_TRUE(contains(result.err, "stopped by SIGTERM; meanwhile process 1 ended with exit code 9")) << result.err;
}

TEST(Launch, SecondInterruptAndTimeoutKill) {
  const std::string stubborn = "trap 'echo no >&2' INT TERM; echo ready >&2; while :; do sleep 600 & wait $!; done";
  RunningProgram program(launch_words({"-n", "2"}, stubborn));
  ASSERT_TRUE(program.says("[0] ready") && program.says("[1] ready"));
  program.send(SIGINT);
  ASSERT_TRUE(program.says("[0] no") && program.says("[1] no"));
  program.send(SIGINT);
  const auto killed = program.wait();
  EXPECT_EQ(killed.exit_code, 130);
  EXPECT_EQ(last_line(killed.err),
            "lockstep launch: stopped by SIGINT; the second signal killed the processes without saving");

  RunningProgram slow(launch_words({"-n", "2", "--stop-timeout", "0.1"}, stubborn));
  ASSERT_TRUE(slow.says("[0] ready") && slow.says("[1] ready"));
  slow.send(SIGTERM);
  EXPECT_EQ(slow.wait().exit_code, 143);
}

TEST(Launch, ProcessesEndWhenTheLauncherIsKilled) {
  RunningProgram program(launch_words({"-n", "2"}, "echo pid $$ ready >&2; exec sleep 600"));
  ASSERT_TRUE(program.says("[0] pid"));
  ASSERT_TRUE(program.says("[1] pid"));
  std::vector<pid_t> children;
  for (const std::string& line : sorted_lines_of(program.err())) children.push_back(std::stoi(line.substr(8)));
  program.send(SIGKILL);
  program.wait();
  for (const pid_t child : children) EXPECT_TRUE(is_gone_soon(child));
}

TEST(Launch, RestartsAfterACrash) {
  const TempDir dir;
  // Crashes twice. The third start needs both processes.
  const auto result =
      launch({"-n", "2", "--max-restarts", "5", "--restart-delay", "0.01", "--logs", dir.path()},
             "cd '" + dir.path() +
                 "'; echo $LOCKSTEP_TOKEN >> token_$LOCKSTEP_PROCESS_ID; n=$(wc -l < token_$LOCKSTEP_PROCESS_ID); "
                 "echo attempt $n; [ $n = 3 ] && exit 0; [ $LOCKSTEP_PROCESS_ID = 1 ] && kill -s KILL $$; exit 75");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "lockstep launch: restart 1 of 5 in 0.01 s\n")) << result.err;
  EXPECT_TRUE(contains(result.err, "lockstep launch: restart 2 of 5 in 0.02 s\n")) << result.err;
  EXPECT_FALSE(contains(result.err, "restart 3"));
  EXPECT_TRUE(contains(result.err, "process 1 was killed by SIGKILL")) << result.err;
  EXPECT_EQ(sorted_lines_of(read_text(dir.path() + "/token_0")).size(), 3u);
  EXPECT_EQ(read_text(dir.path() + "/token_0"), read_text(dir.path() + "/token_1"));
  EXPECT_NE(read_text(dir.path() + "/token_0").substr(0, 64), read_text(dir.path() + "/token_0").substr(65, 64));
  EXPECT_EQ(read_text(dir.path() + "/rank_0.log"),
            "attempt 1\n--- restart 1 of 5 ---\nattempt 2\n--- restart 2 of 5 ---\nattempt 3\n");
}

TEST(Launch, GivesUpAfterTheLastRestart) {
  const auto result = launch({"-n", "2", "--max-restarts", "1", "--restart-delay", "0"}, "kill -s ABRT $$");
  EXPECT_EQ(result.exit_code, 134);
  EXPECT_EQ(last_line(result.err), "lockstep launch: giving up after 1 restart");
}

TEST(Launch, DoesNotRestartAfterAnError) {
  for (const char* code : {"1", "2", "3"}) {
    const auto result = launch({"-n", "2", "--max-restarts", "3"}, std::string("exit ") + code);
    EXPECT_EQ(result.exit_code, std::stoi(code));
    EXPECT_FALSE(contains(result.err, "restart")) << result.err;
  }
}

TEST(Launch, CanBeStoppedBeforeARestart) {
  RunningProgram program(launch_words({"-n", "1", "--max-restarts", "3", "--restart-delay", "600"}, "exit 75"));
  ASSERT_TRUE(program.says("restart 1 of 3 in 600 s"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

TEST(Launch, RestartMessageTellsHowTrainingContinues) {
  const TempDir dir;
  RunningProgram program({program_path(), "launch", "-n", "1", "--max-restarts", "1", "--restart-delay", "600", "--",
                          "train", "--dataset", "synthetic", "--checkpoint-dir", dir.path(), "--steps", "1000000"});
  ASSERT_TRUE(program.says("step"));
  const std::string list =
      "/proc/" + std::to_string(program.pid()) + "/task/" + std::to_string(program.pid()) + "/children";
  pid_t child = 0;
  std::ifstream(list) >> child;
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  ASSERT_TRUE(program.says("restart 1 of 1 in 600 s; training resumes from the last checkpoint\n")) << program.err();
  program.send(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 130);
}

// An ssh that runs the command on this host.
std::string fake_ssh(const TempDir& dir) {
  const std::string path = dir.path() + "/ssh";
  const std::string text =
      "#!/bin/sh\necho \"$@\" >> '" + dir.path() + "/calls'\nshift 2\nhost=$1\nshift\nFROM=$host exec sh -c \"$*\"\n";
  FileSystem::real().write(path, std::vector<uint8_t>(text.begin(), text.end()));
  ::chmod(path.c_str(), 0755);
  return path + " -p 22";
}

TEST(Launch, OtherHostsAreReachedThroughSsh) {
  const TempDir dir;
  const auto result =
      launch({"--hosts", "far:2,localhost,b", "--ssh", fake_ssh(dir), "--devices", "3"},
             "echo ${FROM:-here} $LOCKSTEP_PROCESS_ID of $LOCKSTEP_NUM_PROCESSES ${LOCKSTEP_COORDINATOR%:*} "
             "$LOCKSTEP_NUM_CPU_DEVICES ${#LOCKSTEP_TOKEN} \"it's\"; echo $LOCKSTEP_TOKEN > '" +
                 dir.path() + "'/token_$LOCKSTEP_PROCESS_ID; exit 0");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out), (Lines{"[0] far 0 of 4 far 3 64 it's", "[1] far 1 of 4 far 3 64 it's",
                                                "[2] here 2 of 4 far 3 64 it's", "[3] b 3 of 4 far 3 64 it's"}));
  const std::string token = read_text(dir.path() + "/token_0"), calls = read_text(dir.path() + "/calls");
  EXPECT_EQ(token, read_text(dir.path() + "/token_2"));
  EXPECT_FALSE(contains(calls, token.substr(0, 64)));
  EXPECT_TRUE(contains(calls, "-p 22 far exec sh -c")) << calls;
}

TEST(Launch, HostsAreReadFromAFile) {
  const TempDir dir;
  const std::string text = "localhost slots=2\n", file = dir.path() + "/hosts";
  FileSystem::real().write(file, std::vector<uint8_t>(text.begin(), text.end()));
  EXPECT_EQ(sorted_lines_of(launch({"--hosts", "@" + file}, "echo x").out), (Lines{"[0] x", "[1] x"}));
}

TEST(Launch, SignalsAndLossesReachOtherHosts) {
  const TempDir dir;
  const std::string waiting = "echo pid $$ ready >&2; while :; do sleep 600 & wait $!; done";
  RunningProgram program(
      launch_words({"--hosts", "a,b", "--ssh", fake_ssh(dir)}, "trap 'echo int >&2; exit 130' INT; " + waiting));
  ASSERT_TRUE(program.says("[0] pid") && program.says("[1] pid"));
  program.send(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 130);

  const auto killed =
      launch({"--hosts", "a,b", "--ssh", fake_ssh(dir)}, "[ $LOCKSTEP_PROCESS_ID = 1 ] && kill -s KILL $$; exit 75");
  EXPECT_EQ(killed.exit_code, 137);
  // A failure of ssh itself is transient.
  const auto away =
      launch({"--hosts", "a,b", "--max-restarts", "1", "--restart-delay", "0", "--ssh", fake_ssh(dir)}, "exit 255");
  EXPECT_EQ(away.exit_code, 75);
  EXPECT_TRUE(contains(away.err, "restart 1 of 1")) << away.err;
}

TEST(Launch, UsedPortIsReplacedByAnother) {
  const TempDir dir;
  const std::string go = dir.path() + "/go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  RunningProgram program(launch_words(
      {"-n", "2"},
      "cd '" + dir.path() +
          "'; mkdir first_$LOCKSTEP_PROCESS_ID 2>/dev/null || { echo again at ${LOCKSTEP_COORDINATOR#*:}; exit 0; }; "
          "[ $LOCKSTEP_PROCESS_ID = 1 ] && exit 75; echo port ${LOCKSTEP_COORDINATOR#*:}. >&2; read x < go; exit 1"));
  ASSERT_TRUE(program.says("."));
  // This process takes the port before process 0 does, which then fails.
  const std::string err = program.err(),
                    port = err.substr(err.find("port ") + 5, err.find('.') - err.find("port ") - 5);
  const Descriptor taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<uint16_t>(std::stoi(port)));
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  std::ofstream(go) << "go\n";
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "lockstep launch: pid " + std::to_string(::getpid()) + " (")) << result.err;
  EXPECT_TRUE(contains(result.err, " has taken the port of 127.0.0.1:" + port + "; restarting with another port\n"))
      << result.err;
  EXPECT_EQ(sorted_lines_of(result.out).size(), 2u);
  EXPECT_FALSE(contains(result.out, "again at " + port + "\n")) << result.out;
}

// Reads from the terminal of a child's standard error, up to a text or to the end.
std::string read_terminal(Child& child, const std::string& until = "") {
  std::string out;
  char bytes[4096];
  for (;;) {
    if (!until.empty() && contains(out, until)) return out;
    pollfd ready = {child.err().get(), POLLIN, 0};
    if (::poll(&ready, 1, 60'000) == 0) return out + "(nothing more came)";
    const ssize_t n = ::read(child.err().get(), bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return out;
    if (n > 0) out.append(bytes, static_cast<size_t>(n));
  }
}

TEST(Launch, Process0MayRedrawLinesOnATerminal) {
  const TempDir dir;
  for (const char* name : {"/drawn", "/seen"}) ASSERT_EQ(::mkfifo((dir.path() + name).c_str(), 0600), 0);
  const std::string script =
      "cd $D; if [ $LOCKSTEP_PROCESS_ID = 0 ]; then test -t 2 && stty size <&2 >&2; printf '\\rbar 1\\033[K' >&2; "
      "echo > drawn; read x < seen; printf '\\r\\033[Kdone\\n' >&2; "
      "else test -t 2 && echo wrong >&2; read x < drawn; echo other >&2; fi";
  ChildSpec spec{.argv = launch_words({"-n", "2", "--logs", dir.path()}, script),
                 .environment = {"PATH=/usr/bin:/bin", "TERM=xterm", "D=" + dir.path()},
                 .terminal_columns = 100};
  Child child(spec);
  std::string text = read_terminal(child, "other");
  std::ofstream(dir.path() + "/seen") << "\n";
  text += read_terminal(child);
  EXPECT_TRUE(contains(text, "\033[36m[0]\033[0m 24 96\n")) << text;  // the prefix takes four columns
  EXPECT_TRUE(
      contains(text, "\r\033[36m[0]\033[0m bar 1\033[J\r\r\033[J\033[33m[1]\033[0m other\n\033[36m[0]\033[0m bar 1"))
      << text;
  EXPECT_TRUE(contains(text, "\r\033[J\033[36m[0]\033[0m done\n")) << text;
  EXPECT_FALSE(contains(text, "wrong"));
  EXPECT_EQ(read_text(dir.path() + "/rank_0.log"), "24 96\ndone\n");

  spec.environment.push_back("NO_COLOR=1");
  spec.argv = launch_words({"-n", "2"}, "echo x >&2");
  Child plain(spec);
  const std::string colorless = read_terminal(plain);
  EXPECT_TRUE(contains(colorless, "[0] x\n") && contains(colorless, "[1] x\n")) << colorless;
  EXPECT_FALSE(contains(colorless, "\033[3")) << colorless;
}

TEST(Launch, JobContinuesWithoutAReader) {
  const TempDir dir;
  const ProcessResult result =
      run_process({"bash", "-c",
                   "set -o pipefail; '" + program_path() + "' launch -n 2 -- /bin/sh -c 'seq 100000; echo x >> " +
                       dir.path() + "/done' | head -n 1"},
                  std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(read_text(dir.path() + "/done"), "x\nx\n");
}

TEST(Launch, ProgramsAreFoundOnThePath) {
  const auto result =
      RunningProgram({program_path(), "launch", "-n", "1", "--program", "printf", "--", "%s|", "--", "[a,b]", ""})
          .wait();
  EXPECT_EQ(result.out, "[0] --|[a,b]||\n");
}

}  // namespace
}  // namespace lockstep
