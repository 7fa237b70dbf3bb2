// Two simulated hosts: two network namespaces that a virtual cable connects.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/program.h"

namespace lockstep {

class Cable : public testing::Test {
 protected:
  void SetUp() override {
    if (run("command -v ip").exit_code != 0) GTEST_SKIP() << "there is no program `ip`; install the package iproute2";
    made_ = true;
    const auto result =
        run("set -e; ip netns add $0a; ip netns add $0b; ip -n $0a link add cable type veth peer name cable netns $0b; "
            "ip -n $0a addr add 10.99.7.1/24 dev cable; ip -n $0b addr add 10.99.7.2/24 dev cable; "
            "for n in a b; do ip -n $0$n link set lo up; ip -n $0$n link set cable up; done");
    if (result.exit_code != 0)
      GTEST_SKIP() << "no networks can be made here, which takes root with CAP_NET_ADMIN and CAP_SYS_ADMIN: "
                   << result.err;
  }
  void TearDown() override {
    if (made_) run("ip netns del $0a; ip netns del $0b");
  }

  // Runs a shell command; $0 is the prefix of the names of both namespaces.
  RunningProgram::Result run(const std::string& command) const {
    return RunningProgram({"/bin/sh", "-c", command, name_}).wait();
  }
  // The words that start a program on host "a" or "b".
  std::vector<std::string> on(const std::string& host) const {
    return {"ip", "netns", "exec", name_ + host, "env", "LOCKSTEP_TEST_HOST=" + host};
  }
  static constexpr const char* kCoordinator = "10.99.7.1:7711";  // on a

 private:
  const std::string name_ = "lockstep" + std::to_string(::getpid());
  bool made_ = false;
};

}  // namespace lockstep
