// Authentication by address, for replicas of a Kubeflow JAXJob that have no token. `kubectl apply` of a JAXJob alone
// provides no secret that only its pods share. But the cluster creates a headless Service for each replica,
// `<job>-worker-<r>`, whose DNS name resolves only to that replica's pod. So the coordinator accepts process r only
// from an address that this name resolves to, and every later call of that process only from the same address.
// docs/how-to/processes.md has the threat model.
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

// How processes prove that they belong to the job: by `token`, or by connecting from the address of their replica's
// name. Both are empty if LOCKSTEP_INSECURE is 1: then every process is accepted.
struct Admission {
  std::string token = {};
  std::vector<std::string> replica_names = {};  // by process id
};

// Returns the token, as find_token() does. Without one, and unless LOCKSTEP_INSECURE is 1, returns the replica names of
// a Kubeflow JAXJob in Kubernetes and logs a line. Elsewhere throws as find_token() does.
Admission find_admission(const std::string& token, const detail::ClusterInfo& info,
                         const detail::Environment& environment, const LogLine& log);

// The DNS names of the replicas of this process's JAXJob: "mnist-worker-0", "mnist-worker-1", ... Empty unless the
// process is a replica of a Kubeflow JAXJob in Kubernetes.
std::vector<std::string> kubeflow_replica_names(const detail::ClusterInfo& info,
                                                const detail::Environment& environment);

// The admission rules, without I/O or clock: which addresses a process may use. Not thread-safe.
class ReplicaAddresses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Verdict : uint8_t {
    admitted,
    look_up,   // the name must be resolved first; call judge() again after learn()
    mismatch,  // registration: the name resolves to other addresses; this may change
    refused,   // call of another process, or of one whose registration was not admitted
  };

  explicit ReplicaAddresses(std::vector<std::string> names) : names_(std::move(names)), processes_(names_.size()) {}

  size_t size() const { return names_.size(); }
  bool is_process(int process) const { return process >= 0 && static_cast<size_t>(process) < names_.size(); }
  const std::string& name(int process) const { return names_[static_cast<size_t>(process)]; }

  // Judges a request from `address`, an IP address without port. Process 0 runs the coordinator and never connects over
  // the network: requests in its name are refused.
  Verdict judge(const Request& request, const std::string& address, Time now);

  // Records the addresses that the name of a process resolves to. Empty: it does not resolve.
  void learn(int process, std::vector<std::string> addresses, Time now);

  // The addresses last passed to learn(), for messages.
  const std::vector<std::string>& known(int process) const;

 private:
  struct Member {  // an admitted registration
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

// ReplicaAddresses with a resolver and a clock. Lookups run on background threads: a registration that needs one is
// refused with `try_again`, and clients retry until their own deadline. Thread-safe.
class AddressAuth {
 public:
  // Resolves a name to IP addresses. Throws IoError if there are none. Must return within seconds.
  using Resolve = std::function<std::vector<std::string>(const std::string& name)>;

  struct Refusal {
    std::string why;
    bool try_again = false;
  };

  AddressAuth(std::vector<std::string> names, Resolve resolve, LogLine log);

  // Returns why a request from that address is refused; nullopt if it is accepted.
  std::optional<Refusal> refusal(const Request& request, const std::string& address);

 private:
  struct State;

  void look_up(int process);
  void log_refusal(const std::string& address, const std::string& text);

  const std::shared_ptr<State> state_;  // shared with lookup threads, which may outlive this object
};

// The system's resolver, with a timeout of a few seconds.
AddressAuth::Resolve system_resolver();

}  // namespace lockstep
