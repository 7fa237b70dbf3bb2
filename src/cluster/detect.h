// Cluster detection: determines this process's id, the number of processes and the coordinator's address, from the
// options or from the environment variables that a launcher sets. Each launcher has a detector (detectors.h). All
// functions but read_launch_environment() are pure; all are thread-safe. docs/how-to/clusters.md lists the variables.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/environment.h"
#include "lockstep/distributed.h"

namespace lockstep::detail {

// The inputs of detection: environment variables and host names of this process.
struct LaunchEnvironment {
  Environment environment;
  std::string host_name;       // "myjob-1"
  std::string full_host_name;  // "myjob-1.mysvc.default.svc.cluster.local"; empty: unknown
};

// Reads those of this process. The full name comes from /etc/hosts, where Kubernetes writes it; DNS is not queried.
LaunchEnvironment read_launch_environment();
// The same, with the variables that the options replace: coordinator_port, token_file and insecure. Throws
// Error for an invalid port.
LaunchEnvironment read_launch_environment(const distributed::Options&);

// The fully qualified name of a host in the text of /etc/hosts; empty if not found.
std::string full_name_in_hosts(std::string_view hosts, std::string_view host_name);

// Whether this process runs in a replica of a Kubeflow JAXJob, whose controller evaluates its exit code: all variables
// that the controller sets are set. Another launcher may have started the process inside that replica.
inline constexpr std::array kJaxjobVariables = {"COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES",
                                                "PROCESS_ID"};
bool is_jaxjob_replica(const Environment&);

// The detected place of this process in its job.
struct ClusterInfo {
  std::string method;        // the name of the detector, such as "slurm"
  std::string coordinator;   // "host:port"; empty: not needed (one process, or MPI connects the processes)
  std::string bind_address;  // "host:port" where process 0 listens; empty: the coordinator's address
  int process_count = 1, process_id = 0;
  std::optional<int> local_id = {}, local_count = {};  // among the processes of this host, if the launcher sets them
  std::vector<int> local_device_ids = {};              // indices of visible GPUs; empty: see choose_gpus()
  bool mpi = false;                                    // MPI started the processes: MPI_Init connects them

  bool operator==(const ClusterInfo&) const = default;
};

// "process 3 of 8, local id 1 of 2, coordinator n001:61441, MPI".
std::string to_string(const ClusterInfo&);

// The result of one detector.
struct DetectorResult {
  std::string detector;
  std::optional<ClusterInfo> found;
  std::string reason;          // why it was detected, or not
  bool partially_set = false;  // not detected, although some of its variables are set
  bool invalid = false;        // a variable has an invalid value; `reason` is the message of the Error
};

struct Detection {
  std::vector<DetectorResult> results;  // of all detectors, in order
  std::optional<ClusterInfo> chosen;    // the first detected launcher, with explicit settings applied
  std::string problem;                  // if nothing was chosen: the message of the Error
};

// The names of all detectors, in order.
std::vector<std::string> detector_names();

// Runs all detectors, for `lockstep doctor`. Throws only for an unknown Options::cluster_detection_method.
Detection run_detectors(const distributed::Options&, const LaunchEnvironment&);

// Returns the detected place of this process, or throws Error. Explicit settings (options, then LOCKSTEP_ variables)
// are completed by the first launcher that is detected; its process count and id must agree with them.
ClusterInfo detect(const distributed::Options&, const LaunchEnvironment&);

}  // namespace lockstep::detail
