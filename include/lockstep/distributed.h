// Many processes that compute together. initialize() finds out which process of how many this one is (from the
// options, from the variables of Slurm, MPI, Kubernetes, Kubeflow, torchrun, or it is alone), meets the others at a
// coordinator, and from then on devices() holds the devices of all processes:
//
//   distributed::initialize();
//   Mesh mesh = make_mesh({"data"});                       // over all processes
//   auto step = jit(train_step, {.in_shardings = ...});    // every process calls it; each computes its part
//   distributed::shutdown();
//
// All processes run the same program and call the same functions in the same order. initialize() and shutdown() belong
// to the main thread; the rest is safe from any.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/array.h"

namespace lockstep::distributed {

// JAX's parameters, and some more. What is left out is detected.
struct Options {
  std::optional<std::string> coordinator_address = {};  // "host:port", "[::1]:port"
  std::optional<int> num_processes = {};
  std::optional<int> process_id = {};
  std::vector<int> local_device_ids = {};  // GPUs of this process; empty: all that it sees, or its share of them
  // The only detector to ask, by name; empty: all in order; "none": one process.
  std::string cluster_detection_method = {};
  std::string coordinator_bind_address = {};  // where process 0 listens; empty: the coordinator's own address
  std::chrono::milliseconds initialization_timeout{300'000};
  std::chrono::milliseconds heartbeat_timeout{10'000};
  std::chrono::milliseconds shutdown_timeout{300'000};

  // How long a process waits for the others in a collective operation: in the first, before which everybody compiles,
  // and later.
  std::chrono::milliseconds first_collective_timeout{300'000};
  std::chrono::milliseconds collective_timeout{60'000};
  // After the job has failed a process has so long to end by itself before it is ended, with the exit code below.
  std::chrono::milliseconds failure_grace{10'000};

  // auto: processes of one host meet in shared memory, and hosts over MPI where it started them, else over TCP.
  // shared, tcp, mpi: all of them there.
  std::string collectives = "auto";
  // "eth0", "ib*", "^docker*"; empty: the one through which the coordinator answers.
  std::string network_interface = {};
  std::string token = {};  // who may join; empty: LOCKSTEP_TOKEN, or the file LOCKSTEP_TOKEN_FILE names
  // Connections of the control plane are encrypted with keys derived from the token; or with these files in PEM, all or
  // none (LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY). False (LOCKSTEP_TLS=off): they are not
  // encrypted.
  std::string tls_ca = {}, tls_certificate = {}, tls_key = {};
  bool tls = true;
};

// Throws Error when called twice, after devices were used, or with values that are missing or make no sense;
// CommTimeout when the others could not be met in time (the message names who is missing). Options left as they are by
// default may come from variables: those named above, LOCKSTEP_COLLECTIVES, LOCKSTEP_INTERFACE, and, in seconds,
// LOCKSTEP_INITIALIZATION_TIMEOUT, LOCKSTEP_HEARTBEAT_TIMEOUT and LOCKSTEP_COLLECTIVE_TIMEOUT.
//
// When a process fails, is lost or stuck, all others learn of it: whatever waits for others throws CommAborted with the
// first cause.
void initialize(const Options& options = {});

// Waits for the others, then leaves. Nothing to do when not initialized.
void shutdown();
bool is_initialized();

// Tells the other processes that this one cannot go on, and why; `retryable`: starting again from the last checkpoint
// may help. Only the first failure of a job counts. For the end of a program that catches its own errors.
void report_failure(const std::string& message, bool retryable = false);

// Reports an error that ends this program, and returns the exit code for it: retry_code() when starting again may help
// (another process failed, a GPU is lost), else 1.
int report_failure(const std::exception& error);

// The exit code that asks for another start: kRetry, or kKubeflowRetry in a replica of a Kubeflow JAXJob, whose
// operator restarts only after codes from 128 on (restartPolicy ExitCode).
inline constexpr int kRetry = 75;
inline constexpr int kKubeflowRetry = 138;
int retry_code();

// What a failed job should end with: retry_code() when starting again may help, else 1; 0 when nothing has failed.
int failure_code();

// The value of one process (0) on all.
Array broadcast_one_to_all(const Array& value);

// The values of all processes: stacked along a new first dimension, or, tiled, one after another along the first. An
// array that is spread over processes is put together instead.
Array process_allgather(const Array& value, bool tiled = false);

// Returns when all processes have called it with that name. Throws Error when another name was given by somebody.
void sync(const std::string& name);

// Throws Error, on all processes, unless all give equal values; the message names the first that differs.
void assert_equal(const Array& value, const std::string& what = "value");

}  // namespace lockstep::distributed
