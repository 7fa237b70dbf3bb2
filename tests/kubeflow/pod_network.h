// The network of pods as a cluster has it: each pod has a network namespace and an address of its own, and all pods
// read one table of names.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "support/program.h"

namespace lockstep {

class PodNetwork {
 public:
  // `folder`: where the table of names is kept.
  explicit PodNetwork(const std::string& folder) : hosts_(folder + "/hosts") {
    write_names();
    if (::getuid() != 0) {
      problem_ = "network namespaces take root";
      return;
    }
    const auto made = run("set -e; ip netns add $0; ip -n $0 link add pods type bridge; ip -n $0 link set pods up");
    if (made.exit_code != 0) problem_ = "no network namespace can be made here: " + made.err;
  }
  ~PodNetwork() {
    while (!pods_.empty()) remove(pods_.begin()->first);
    run("ip netns del $0");
  }
  PodNetwork(const PodNetwork&) = delete;
  PodNetwork& operator=(const PodNetwork&) = delete;

  // Why there is none; empty when there is one.
  const std::string& problem() const { return problem_; }

  // A new pod of that name, with an address that no pod had before. The name resolves from now on when `published`.
  void add(const std::string& pod, bool published = true) {
    const int number = ++made_;
    const std::string space = name_ + "-" + std::to_string(number), address = "10.98.3." + std::to_string(number);
    const auto result =
        run("set -e; ip netns add $1; ip -n $1 link add eth0 type veth peer name pod$2 netns $0; "
            "ip -n $0 link set pod$2 master pods up; ip -n $1 addr add $3/24 dev eth0; ip -n $1 link set lo up; "
            "ip -n $1 link set eth0 up",
            {space, std::to_string(number), address});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    pods_[pod] = {space, address, published};
    write_names();
  }
  void remove(const std::string& pod) {
    const auto found = pods_.find(pod);
    if (found == pods_.end()) return;
    run("ip netns del $1", {found->second.space});
    pods_.erase(found);
    write_names();
  }
  std::string address(const std::string& pod) const { return pods_.at(pod).address; }

  // What stands before a program and its variables (NAME=VALUE...) to run it in a pod with these variables only.
  Words in(const std::string& pod) const {
    return {"ip",
            "netns",
            "exec",
            pods_.at(pod).space,
            "/bin/sh",
            "-c",
            "mount --bind \"$0\" /etc/hosts && mount -t tmpfs -o size=256m tmpfs /dev/shm && exec env -i \"$@\"",
            hosts_};
  }

 private:
  struct Pod {
    std::string space, address;
    bool published = true;
  };

  // A shell command; $0 is the namespace of the bridge.
  RunningProgram::Result run(const std::string& command, const Words& arguments = {}) const {
    return RunningProgram(Words{"/bin/sh", "-c", command, name_} + arguments).wait();
  }
  // In place: the pods have this very file.
  void write_names() const {
    std::ofstream out(hosts_);
    out << "127.0.0.1 localhost\n";
    for (const auto& [name, pod] : pods_)
      if (pod.published) out << pod.address << " " << name << "\n";
  }

  const std::string hosts_, name_ = "lockstep-pods-" + std::to_string(::getpid());
  std::string problem_;
  std::map<std::string, Pod> pods_;
  int made_ = 0;
};

}  // namespace lockstep
