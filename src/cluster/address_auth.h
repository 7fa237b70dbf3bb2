// Authentication by address, for replicas of a Kubeflow JAXJob that have no token. `kubectl apply` of a JAXJob alone
// provides no secret that only its pods share. What the cluster does provide is a headless Service for each replica,
// `<job>-worker-<r>`, whose DNS name resolves to that replica's pod and to nothing else. So the coordinator accepts
// process r only from an address to which that name resolves, and every later call of that process only from the same
// address. docs/how-to/processes.md has the threat model.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/control_channel.h"
#include "cluster/detect.h"
#include "cluster/messages.h"

namespace lockstep {

// What makes a process a member of the job: it knows `token`, or it comes from the address of its replica's name. Both
// are empty when LOCKSTEP_INSECURE is 1: then every process is accepted.
struct Admission {
  std::string token = {};
  std::vector<std::string> replica_names = {};  // by process id
};

// The token, as find_token() does. Without one, and unless LOCKSTEP_INSECURE is 1, the names of the replicas of a
// Kubeflow JAXJob in Kubernetes, with a line in the log. Throws as find_token() does everywhere else.
Admission find_admission(const std::string& token, const detail::ClusterInfo& info,
                         const detail::Environment& environment, const LogLine& log);

// "mnist-worker-0", "mnist-worker-1"...: the DNS names of the replicas of the JAXJob that this process belongs to.
// Empty when it is not a replica of a Kubeflow JAXJob in Kubernetes.
std::vector<std::string> kubeflow_replica_names(const detail::ClusterInfo& info,
                                                const detail::Environment& environment);

// The rules, without I/O and clocks: which addresses a process may use. Used by one thread at a time.
class ReplicaAddresses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Verdict : uint8_t {
    admitted,
    look_up,   // the answer needs a lookup of the name; ask again after learn()
    mismatch,  // of a registration: the name resolves to other addresses, which may change
    refused,   // another process's call, or one for which no registration was admitted
  };

  explicit ReplicaAddresses(std::vector<std::string> names) : names_(std::move(names)), processes_(names_.size()) {}

  const std::string& name(int process) const { return names_[static_cast<size_t>(process)]; }

  // Judges a request that came from `address`, a number without port. Process 0 is the coordinator itself and uses no
  // network: requests in its name are refused.
  Verdict judge(const Request& request, const std::string& address, Time now);

  // The addresses to which the name of a process resolves now; none: it does not resolve.
  void learn(int process, std::vector<std::string> addresses, Time now);

  // What learn() was told last, for messages.
  const std::vector<std::string>& known(int process) const;

 private:
  struct Member {  // a registration that was admitted
    uint64_t incarnation = 0;
    std::string address;
  };
  struct Process {
    std::vector<std::string> addresses;
    std::optional<Time> learned;
    std::vector<Member> members;  // the latest is last
  };

  const std::vector<std::string> names_;
  std::vector<Process> processes_;
};

// ReplicaAddresses with a resolver and a clock. Lookups run on threads of their own: a registration that needs one is
// refused with `try_again`, and clients repeat it until their own deadline. Safe from any thread.
class AddressAuth {
 public:
  // The addresses of a name, as numbers. Throws IoError when there are none. Must return within seconds.
  using Resolve = std::function<std::vector<std::string>(const std::string& name)>;

  struct Refusal {
    std::string why;
    bool try_again = false;
  };

  AddressAuth(std::vector<std::string> names, Resolve resolve, LogLine log);

  // Why a request from that address is not accepted; nothing: it is.
  std::optional<Refusal> refusal(const Request& request, const std::string& address);

 private:
  struct State;

  void look_up(int process);
  void log_stranger(const std::string& address, const std::string& text);

  const std::shared_ptr<State> state_;  // shared with the lookups, which may outlive this
};

// The resolver of the system, with a deadline of some seconds.
AddressAuth::Resolve system_resolver();

}  // namespace lockstep
