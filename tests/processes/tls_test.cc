// Connections between the processes of a launched job are encrypted unless --no-tls is given.
#include <gtest/gtest.h>

#include "cluster/sockets.h"
#include "processes/launched.h"
#include "support/listener.h"

#ifdef LOCKSTEP_WITH_GRPC

namespace lockstep {
namespace {

struct Launched {
  RunningProgram::Result result;
  std::string bytes, token;
};

// Runs `lockstep allreduce` in two processes. Process 1 reaches the coordinator through a recording proxy.
Launched launch_recorded(const Words& flags) {
  const int port = unused_port();
  TcpRelay wire(port);
  const TempDir dir;
  const std::string script = fmt::format(
      "if test $LOCKSTEP_PROCESS_ID = 1; then export LOCKSTEP_COORDINATOR=127.0.0.1:{}; fi; "
      "echo $LOCKSTEP_TOKEN > {}/token_$LOCKSTEP_PROCESS_ID; exec {} allreduce",
      wire.port(), dir.path(), program_path());
  Launched out;
  out.result = launch(Words{"-n", "2", "--port", std::to_string(port)} + flags, {"/bin/sh", "-c", script});
  out.bytes = wire.recorded();
  out.token = read_text(dir.path() + "/token_0").substr(0, 64);
  return out;
}

TEST(LaunchTls, IsOnByDefault) {
  const Launched job = launch_recorded({});
  EXPECT_EQ(job.result.exit_code, 0) << job.result.err;
  EXPECT_EQ(job.token.size(), 64u);
  EXPECT_TRUE(contains(job.bytes, "CONNECT lockstep/tls/"));
  for (const std::string& readable : {job.token, std::string("PRI * HTTP/2.0"), std::string("lockstep-secret")})
    EXPECT_FALSE(contains(job.bytes, readable)) << readable;
  EXPECT_FALSE(contains(job.result.err, "tls: ")) << job.result.err;
}

TEST(LaunchTls, FlagDisablesItAndIsLogged) {
  const Launched job = launch_recorded({"--no-tls"});
  EXPECT_EQ(job.result.exit_code, 0) << job.result.err;
  EXPECT_TRUE(contains(job.bytes, "PRI * HTTP/2.0"));
  EXPECT_FALSE(contains(job.bytes, job.token));
  EXPECT_TRUE(contains(job.result.err, "tls: off; the control plane is not encrypted")) << job.result.err;
}

TEST(LaunchTls, VariableIsOnOrOff) {
  const RunningProgram::Result result =
      RunningProgram({"env", "LOCKSTEP_TLS=maybe", program_path(), "launch", "-n", "2", "--", "devices"}).wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "lockstep: environment: LOCKSTEP_TLS is \"maybe\"; set it to on or off, or unset it\n");
}

}  // namespace
}  // namespace lockstep

#endif
