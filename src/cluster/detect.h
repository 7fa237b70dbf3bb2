// Who am I: which process of how many, and where the first of them listens, told by the options, or by what a launcher
// has left in the environment. Pure functions of their arguments, safe from any thread; docs/how-to/clusters.md has the table.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/distributed.h"
#include "sharding/device_table.h"  // Environment

namespace lockstep::detail {

// What a process can see of where it runs.
struct LaunchEnvironment {
  Environment environment;
  std::string host_name;       // "myjob-1"
  std::string full_host_name;  // "myjob-1.mysvc.default.svc.cluster.local"; empty: not known
};

// Those of this process. The full name is looked up in /etc/hosts only, where Kubernetes writes it.
LaunchEnvironment read_launch_environment();

// The full name that the text of /etc/hosts has for a host name; empty when there is none.
std::string full_name_in_hosts(std::string_view hosts, std::string_view host_name);

// Whether the controller of a Kubeflow JAXJob, or what follows its rules, started this process and will look at its
// exit code: the variables that it sets are all there. A launcher may have started it inside of such a replica.
inline constexpr std::array kJaxjobVariables = {"COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES",
                                                "PROCESS_ID"};
bool is_jaxjob_replica(const Environment&);

// A complete answer.
struct ClusterInfo {
  std::string method;        // the name of the detector, such as "slurm"
  std::string coordinator;   // "host:port"; empty: none is needed (one process, or MPI brings the processes together)
  std::string bind_address;  // "host:port" at which process 0 listens; empty: the coordinator's
  int process_count = 1, process_id = 0;
  std::optional<int> local_id = {}, local_count = {};  // among the processes of this host, where the launcher says so
  std::vector<int> local_device_ids = {};              // GPUs, of those visible; empty: see choose_gpus()
  bool mpi = false;                                    // MPI_Init would find the others

  bool operator==(const ClusterInfo&) const = default;
};

// "process 3 of 8, local id 1 of 2, coordinator n001:61441, MPI".
std::string to_string(const ClusterInfo&);

// What one detector says.
struct DetectorResult {
  std::string detector;
  std::optional<ClusterInfo> found;
  std::string reason;          // why (not)
  bool partially_set = false;  // no, although some of its variables are set
  bool invalid = false;        // a value makes no sense; the reason is the message of the Error
};

struct Detection {
  std::vector<DetectorResult> results;  // of all detectors, in the order in which they are asked
  std::optional<ClusterInfo> chosen;    // the first answer, completed by what was given
  std::string problem;                  // why there is none: the message of the Error
};

// The names of all detectors, in order.
std::vector<std::string> detector_names();

// Asks everyone. Throws only for an unknown Options::cluster_detection_method.
Detection run_detectors(const distributed::Options&, const LaunchEnvironment&);

// The answer, or an Error. Values that are given (options first, then LOCKSTEP_ variables) are completed by the first
// detector that has an answer; its count and id must agree with them.
ClusterInfo detect(const distributed::Options&, const LaunchEnvironment&);

}  // namespace lockstep::detail
