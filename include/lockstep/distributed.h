// Multi-process training. initialize() determines this process's rank and the world size from the options, or from the
// environment variables of Slurm, MPI, Kubernetes, Kubeflow or torchrun. It connects to the coordinator and waits for
// the other processes. Afterwards devices() returns the devices of all processes:
//
//   distributed::initialize();
//   Mesh mesh = make_mesh({"data"});                       // over all processes
//   auto step = jit(train_step, {.in_shardings = ...});    // every process calls it and computes its shards
//   distributed::shutdown();
//
// All processes run the same program and call the same functions in the same order. Call initialize() and shutdown()
// from the main thread; all other functions are thread-safe. All of them act on the current runtime
// (lockstep/runtime.h).
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/detail/duration.h"
#include "lockstep/operand.h"

namespace lockstep::distributed {

// The parameters of jax.distributed.initialize, and some more. Unset values are detected.
struct Options {
  std::optional<std::string> coordinator_address = {};  // "host:port", "[::1]:port"
  std::optional<int> num_processes = {};
  std::optional<int> process_id = {};
  std::vector<int> local_device_ids = {};  // GPUs of this process; empty: its share of the visible GPUs
  // Use only this detector, such as "slurm". Empty: try all in order. "none": run as a single process.
  std::string cluster_detection_method = {};
  std::string coordinator_bind_address = {};  // where process 0 listens; empty: coordinator_address
  // Port of process 0 where the launcher provides only its host: Slurm, Indexed Jobs and JobSets.
  std::optional<int> coordinator_port = {};
  std::chrono::milliseconds initialization_timeout{300'000};
  std::chrono::milliseconds heartbeat_timeout{10'000};
  std::chrono::milliseconds shutdown_timeout{300'000};

  // How long a collective waits for the other processes. The first one is allowed more time, because every process
  // compiles before it.
  std::chrono::milliseconds first_collective_timeout{300'000};
  std::chrono::milliseconds collective_timeout{60'000};
  // How long a process may keep running after the job has failed. Then it is terminated with exit code failure_code().
  std::chrono::milliseconds failure_grace{10'000};

  // The data plane. auto: shared memory within a host; between hosts MPI if it started the processes, else TCP.
  // shared, tcp, mpi: use only this.
  std::string collectives = "auto";
  // Protection of the data that collectives send over TCP, the same in all processes. encrypted; signed: others can read
  // it, but not change it; plain. auto: encrypted between hosts, plain within a host. MPI and NCCL have neither: with
  // encrypted or signed, they are refused between hosts.
  std::string data_security = "auto";
  // "eth0", "ib*", "^docker*"; empty: the interface that routes to the coordinator.
  std::string network_interface = {};
  // "61000-64999": ports on which processes on different hosts accept each other's data; empty: any free port.
  std::string data_ports = {};
  // The job's shared secret, or a file that contains it. Both empty: LOCKSTEP_TOKEN, else the file LOCKSTEP_TOKEN_FILE.
  std::string token = {}, token_file = {};
  bool insecure = false;  // without a token, accept every process and do not encrypt (LOCKSTEP_INSECURE=1)
  // TLS of the control plane. By default the keys are derived from the token. Or give all three PEM files
  // (LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY). `tls = false` (LOCKSTEP_TLS=off) turns
  // encryption off.
  std::string tls_ca = {}, tls_certificate = {}, tls_key = {};
  bool tls = true;
  // Folder for flight records; not set: LOCKSTEP_FLIGHT_DIR, else `flight/` of the run or a temporary folder.
  std::optional<std::string> flight_dir = {};
};

// Joins the job. Options that keep their default value can be set by environment variables: those named above,
// LOCKSTEP_COORDINATOR, LOCKSTEP_COORDINATOR_PORT, LOCKSTEP_NUM_PROCESSES, LOCKSTEP_PROCESS_ID,
// LOCKSTEP_LOCAL_DEVICE_IDS, LOCKSTEP_COLLECTIVES, LOCKSTEP_DATA_SECURITY, LOCKSTEP_INTERFACE, LOCKSTEP_DATA_PORTS,
// and, in seconds,
// LOCKSTEP_INITIALIZATION_TIMEOUT, LOCKSTEP_HEARTBEAT_TIMEOUT and LOCKSTEP_COLLECTIVE_TIMEOUT.
//
// Throws Error when called twice, after devices were used, or with missing or invalid values. Throws CommTimeout when
// not all processes joined in time; the message lists the missing ones.
//
// When a process fails, is lost or is stuck, the coordinator notifies all others: every wait for another process then
// throws CommAborted with the first cause.
void initialize(const Options& options = {});

// Waits until all processes have called it, then leaves the job. No effect when not initialized.
void shutdown();
bool is_initialized();

// Notifies the other processes that this one has failed, and why. `retryable`: restarting from the last checkpoint may
// help. Only the first failure of a job counts. For programs that catch their own errors before they exit.
void report_failure(const std::string& message, bool retryable = false);

// Reports an error that ends this program, and returns its exit code: retry_code() when a restart may help (another
// process failed, a GPU is lost), else 1.
int report_failure(const std::exception& error);

// The exit code that requests a restart: kRetry, or kKubeflowRetry in a replica of a Kubeflow JAXJob, whose operator
// restarts only after exit codes of 128 and above (restartPolicy ExitCode).
inline constexpr int kRetry = 75;
inline constexpr int kKubeflowRetry = 138;
int retry_code();

// The exit code of this process after the job failed: retry_code() when a restart may help, else 1. 0: no failure.
int failure_code();

// Returns process 0's value on all processes.
Array broadcast_one_to_all(const Operand& value);

// Returns the values of all processes, stacked along a new first dimension, or, if `tiled`, concatenated along the
// first. An array that is sharded over several processes is assembled instead.
Array process_allgather(const Operand& value, bool tiled = false);

// Barrier: returns when all processes have called it with this name. Throws Error when their names differ.
void sync(const std::string& name);

// Throws Error on all processes unless their values are equal; the message names the first process that differs.
void assert_equal(const Operand& value, const std::string& what = "value");

}  // namespace lockstep::distributed
