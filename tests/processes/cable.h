// Two simulated hosts: two network namespaces that a virtual cable connects, directly or through a program that makes
// faults.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "base/os/descriptor.h"
#include "support/program.h"

namespace lockstep {

class Cable : public testing::Test {
 protected:
  void SetUp() override {
    if (run("command -v ip").exit_code != 0) GTEST_SKIP() << "there is no program `ip`; install the package iproute2";
    made_ = true;
    const auto result = run("set -e; ip netns add $0a; ip netns add $0b; " + lay_cable() +
                            "ip -n $0a addr add 10.99.7.1/24 dev cable; ip -n $0b addr add 10.99.7.2/24 dev cable; "
                            "for n in a b; do ip -n $0$n link set lo up; ip -n $0$n link set cable up; done");
    if (result.exit_code != 0)
      GTEST_SKIP() << "no networks can be made here, which takes root with CAP_NET_ADMIN and CAP_SYS_ADMIN: "
                   << result.err;
  }
  void TearDown() override {
    if (made_) run("ip netns del $0a; ip netns del $0b; ip netns del $0m 2>/dev/null");
  }
  // The commands that make an interface `cable` on both hosts.
  virtual std::string lay_cable() const { return "ip -n $0a link add cable type veth peer name cable netns $0b; "; }

  // Runs a shell command; $0 is the prefix of the names of both namespaces.
  RunningProgram::Result run(const std::string& command) const {
    return RunningProgram({"/bin/sh", "-c", command, name_}).wait();
  }
  // The words that start a program on host "a" or "b".
  std::vector<std::string> on(const std::string& host) const {
    return {"ip", "netns", "exec", name_ + host, "env", "LOCKSTEP_TEST_HOST=" + host};
  }
  static constexpr const char* kCoordinator = "10.99.7.1:7711";  // on a

  const std::string name_ = "lockstep" + std::to_string(::getpid());

 private:
  bool made_ = false;
};

// The cable leads through a third namespace, in which process_faulty_cable copies the frames.
class FaultyCable : public Cable {
 protected:
  void SetUp() override {
    Cable::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(::mkfifo(commands_.c_str(), 0600), 0);
    const std::string program = std::string(LOCKSTEP_BINARY_DIR) + "/tests/process_faulty_cable";
    const auto plain = run("for n in a b; do ip netns exec $0$n " + program + " plain cable || exit 1; done");
    if (plain.exit_code != 0) GTEST_SKIP() << "offloads of virtual cables cannot be turned off here: " << plain.err;
    copier_ = std::make_unique<RunningProgram>(
        Words{"ip", "netns", "exec", name_ + "m", program, "toa", "tob", commands_, "7711"});
    ASSERT_TRUE(copier_->says("ready")) << copier_->err();
  }
  void TearDown() override {
    copier_.reset();
    Cable::TearDown();
  }
  std::string lay_cable() const override {
    return "ip netns add $0m; ip -n $0a link add cable type veth peer name toa netns $0m; "
           "ip -n $0b link add cable type veth peer name tob netns $0m; "
           "for n in toa tob; do ip netns exec $0m sysctl -qw net.ipv6.conf.$n.disable_ipv6=1; "
           "ip -n $0m link set $n up; done; ";
  }
  // See process_faulty_cable.
  void set_fault(const std::string& command) const {
    const Descriptor pipe(::open(commands_.c_str(), O_WRONLY | O_CLOEXEC));
    const std::string line = command + "\n";
    ASSERT_EQ(::write(pipe.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }

 private:
  const TempDir folder_;
  const std::string commands_ = folder_.path() + "/commands";
  std::unique_ptr<RunningProgram> copier_;
};

}  // namespace lockstep
