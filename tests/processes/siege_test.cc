// A job that another user attacks from the start computes the same result as an undisturbed job. `siege.sh`
// does the same for hours.
#include "processes/launched.h"
#include "support/listener.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

Words stranger_words(const Words& flags) {
  const Words program = {std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_stranger"};
  const Words another_user = {"setpriv", "--reuid", "65534", "--clear-groups"};
  return (::getuid() == 0 ? another_user : Words{}) + program + Words{"--uid", std::to_string(::getuid())} + flags;
}

// A few steps of a job over TCP.
Words job_words(const std::string& dir) {
  return train_words({"--model", "mlp", "--steps", "5", "--quiet", "--checkpoint-dir", dir});
}

// The number of log lines of that process about the attacker.
auto refusals_of(const std::string& text, int process) {
  const std::string line = fmt::format("[{}] lockstep: refused a connection from 127.0.0.1 ", process);
  return std::ranges::count_if(lines_of(text), [&](const std::string& one) { return one.starts_with(line); });
}

TEST(Siege, AttackOnDataPortsChangesNothing) {
  const TempDir dir;
  const int port = unused_port();
  const Words flags = {"-n", "3", "--collectives", "tcp", "--port", std::to_string(port)};
  ASSERT_EQ(launch(flags, job_words(dir.path() + "/quiet")).exit_code, 0);
  for (const char* const modes : {"preamble,ones", "touch,idle,garbage,preamble,ones,forged,half,slow"}) {
    SCOPED_TRACE(modes);
    const std::string attacked = dir.path() + "/" + modes;
    RunningProgram stranger(stranger_words({"--seconds", "60", "--except", std::to_string(port), "--modes", modes}));
    const RunningProgram::Result result = launch(flags, job_words(attacked));
    stranger.send(SIGTERM);
    const RunningProgram::Result attack = stranger.wait();
    EXPECT_EQ(attack.exit_code, 0) << attack.err;
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (int p = 0; p < 3; ++p)  // the ports are open only briefly, so an attack may miss them
      EXPECT_LE(refusals_of(result.err, p), 1) << result.err;
    expect_lacks(result.err, "lost");
    expect_same_weights(attacked, dir.path() + "/quiet");
  }
}

// The connections that the attack made in a mode.
long made_in(const std::string& out, const std::string& mode) {
  for (const std::string& line : lines_of(out))
    if (line.starts_with(mode + " ")) return std::atol(line.c_str() + mode.size());
  ADD_FAILURE() << "no attack in mode " << mode << ":\n" << out;
  return -1;
}

// The processes of one host share memory and report to their launcher, and other users find nothing to connect to.
TEST(Siege, AttackOnWhatAHostSharesChangesNothing) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can attack as another user";
  const TempDir dir;
  const Words quiet = job_words(dir.path() + "/quiet");
  ASSERT_EQ(launch({"-n", "3"}, quiet).exit_code, 0);
  for (const int processes : {2, 3}) {
    const std::string attacked = fmt::format("{}/{}", dir.path(), processes);
    const Words flags = {"-n", std::to_string(processes)};
    RunningProgram stranger(stranger_words({"--seconds", "100", "--modes", "sockets,files,memory"}));
    ASSERT_TRUE(comes_true([&] { return contains(stranger.err(), "attacking"); }));
    const RunningProgram::Result result = launch(flags, job_words(attacked));
    stranger.send(SIGTERM);
    const RunningProgram::Result attack = stranger.wait();
    EXPECT_EQ(attack.exit_code, 0) << attack.err;
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_lacks(result.err, "TCP");  // instead of shared memory
    EXPECT_EQ(made_in(attack.out, "sockets"), 0) << attack.out;
    EXPECT_EQ(made_in(attack.out, "memory"), 0) << attack.out;
    if (processes == 3) expect_same_weights(attacked, dir.path() + "/quiet");
  }
}

}  // namespace
}  // namespace lockstep

#endif
