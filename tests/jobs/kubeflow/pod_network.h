// A pod network as in a cluster: each pod has its own network namespace and address, and all pods share one hosts file.
// Used by one thread.
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
  // Stores the hosts file in `folder`.
  explicit PodNetwork(const std::string& folder) : hosts_(folder + "/hosts") {
    write_names();
    if (::getuid() != 0) {
      problem_ = "network namespaces require root";
      return;
    }
    const auto made = run("set -e; ip netns add $0; ip -n $0 link add pods type bridge; ip -n $0 link set pods up");
    if (made.exit_code != 0) problem_ = "cannot create a network namespace: " + made.err;
  }
  ~PodNetwork() {
    while (!pods_.empty()) remove(pods_.begin()->first);
    run("ip netns del $0");
  }
  PodNetwork(const PodNetwork&) = delete;
  PodNetwork& operator=(const PodNetwork&) = delete;

  // Why the network could not be created; empty: it was.
  const std::string& problem() const { return problem_; }

  // Adds a pod with a new address. If `published`, its name resolves in all pods.
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

  // The command prefix that runs `NAME=VALUE... PROGRAM` in a pod, with only these environment variables.
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

  // Runs a shell command; $0 is the namespace of the bridge.
  RunningProgram::Result run(const std::string& command, const Words& arguments = {}) const {
    return RunningProgram(Words{"/bin/sh", "-c", command, name_} + arguments).wait();
  }
  // Overwrites the file in place, because the pods have it bind-mounted.
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
