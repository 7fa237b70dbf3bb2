#include "jobs/kubernetes/variable_rows.h"

#include <initializer_list>
#include <span>

#include "lockstep/version.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxManifestHosts = 4096, kMaxVariableSeconds = 1'000'000'000;
constexpr const char* kNotTrainJob = "indexed-job jaxjob jobset";

// The program, its environment and its size.
constexpr VariableRow kProgramRows[] = {
    {{"hosts_count", "integer", "number of pods, with one process each; default 1"},
     VariableType::integer,
     1,
     kMaxManifestHosts},
    {{"local_device_count", "integer", "devices per process: virtual CPU devices or GPUs; default 1"},
     VariableType::integer,
     1,
     4096},
    {{"name", "name", "name of the job; default lockstep"}, VariableType::service},
    {{"namespace", "name", "namespace of the job; default: that of kubectl's context"}, VariableType::label},
    {{"service", "name", "name of the headless Service; default: the job's name"},
     VariableType::service,
     0,
     0,
     "indexed-job"},
    {{"image", "string", "container image; default lockstep:" LOCKSTEP_VERSION}, VariableType::image},
    {{"image_pull_policy", "Always, IfNotPresent or Never", "when to pull the image; default: the cluster's policy"},
     VariableType::text,
     0,
     0,
     kNotTrainJob},
    {{"image_pull_secrets", "list of names", "Secrets with the credentials of the registry; default: none"},
     VariableType::domains},
    {{"command", "list of strings", "the program; default: the entry point of the image, lockstep"},
     VariableType::list},
    {{"args", "list of strings",
      "arguments of the program; default [\"train\"], plus --checkpoint-dir if checkpoint_claim is set"},
     VariableType::list},
    {{"env", "object of strings", "additional environment variables"}, VariableType::env},
    {{"port", "integer", "port of the coordinator; default 55527, for a jaxjob 6666"},
     VariableType::integer,
     1,
     65535,
     kNotTrainJob},
    {{"data_ports", "FIRST-LAST", "ports on which the processes accept each other; default 61000-64999"},
     VariableType::ports},
    {{"network_policy", "true or false",
      "add a NetworkPolicy that admits only the pods of the job, to port and data_ports; default false"},
     VariableType::flag,
     0,
     0,
     kNotTrainJob},
    {{"token_secret", "name", "existing Secret with the key token; default: a new Secret"}, VariableType::domain},
    {{"token", "string", "token of the new Secret; default: 32 random bytes"}, VariableType::text},
    {{"user", "integer", "user and group id of the process, not root; default 65532, as in the image"},
     VariableType::integer,
     1,
     2147483647},
    {{"service_account", "name", "service account of the pods; default: that of the namespace"}, VariableType::domain},
    {{"labels", "object of strings", "additional labels of the job and its pods"}, VariableType::labels},
    {{"annotations", "object of strings", "annotations of the job and its pods"}, VariableType::annotations},
    {{"runtime", "name", "the ClusterTrainingRuntime; default jax-distributed"},
     VariableType::domain,
     0,
     0,
     "trainjob"},
};

constexpr VariableRow kResourceRows[] = {
    {{"gpus", "true, false or integer", "GPUs per pod; true: local_device_count; default false"}, VariableType::gpus},
    {{"gpu_resource", "string", "resource name of the GPUs; default nvidia.com/gpu"}, VariableType::resource},
    {{"cpu", "quantity", "CPU request, such as 2 or \"500m\"; default 1, with GPUs 4 for each"},
     VariableType::quantity},
    {{"cpu_limit", "quantity", "CPU limit; default: none"}, VariableType::quantity},
    {{"memory", "quantity", "memory request and limit; default \"2Gi\", with GPUs 16Gi for each"},
     VariableType::quantity},
    {{"ephemeral_storage", "quantity", "request and limit of local storage, and size of /tmp; default \"4Gi\""},
     VariableType::quantity},
    {{"shm", "quantity", "size of /dev/shm, part of the memory; default: that of the node, with GPUs 1Gi"},
     VariableType::quantity},
    {{"volumes", "list of CLAIM:PATH[:ro]", "PersistentVolumeClaims to mount, :ro read-only; default: none"},
     VariableType::volumes},
    {{"checkpoint_claim", "name", "PersistentVolumeClaim that all pods can write; default: none"},
     VariableType::domain},
    {{"checkpoint_path", "string", "mount path of checkpoint_claim; default /checkpoints"}, VariableType::path},
};

constexpr VariableRow kPlacementRows[] = {
    {{"node_selector", "object of strings", "required labels of the nodes"}, VariableType::labels},
    {{"affinity", "object", "affinity of the pods to nodes and other pods"}, VariableType::object},
    {{"tolerations", "list of objects",
      "taints to tolerate, besides that of gpu_resource and the loss of a node (node_loss_seconds)"},
     VariableType::objects},
    {{"topology_spread", "list of objects", "topology spread constraints of the pods"},
     VariableType::objects,
     0,
     0,
     kNotTrainJob},
    {{"priority_class", "name", "priority class of the pods"}, VariableType::domain, 0, 0, kNotTrainJob},
    {{"runtime_class", "name", "runtime class of the pods"}, VariableType::domain, 0, 0, kNotTrainJob},
    {{"queue", "name", "Kueue's LocalQueue, which starts the job when there is room for all pods; default: none"},
     VariableType::label},
    {{"safe_to_evict", "true or false",
      "let the cluster autoscaler remove a node with a pod of the job; default false"},
     VariableType::flag,
     0,
     0,
     kNotTrainJob},
};

constexpr VariableRow kLifeRows[] = {
    {{"backoff", "integer", "restarts of the job that are certain; default 0"},
     VariableType::integer,
     0,
     10000,
     kNotTrainJob},
    {{"restart_policy", "OnFailure or ExitCode",
      "what Kubeflow restarts if backoff is not 0: any failure, or exit codes from 128 on without a limit; default "
      "OnFailure"},
     VariableType::text,
     0,
     0,
     "jaxjob"},
    {{"initialization_timeout", "integer", "seconds a pod waits for the others to start; default 1800"},
     VariableType::integer,
     1,
     1'000'000},
    {{"node_loss_seconds", "integer", "seconds until the pods of an unreachable node are replaced; default 30"},
     VariableType::integer,
     0,
     kMaxVariableSeconds},
    {{"active_deadline", "integer", "time limit of the job in seconds; default: none"},
     VariableType::integer,
     1,
     kMaxVariableSeconds},
    {{"ttl", "integer", "seconds until a finished job is deleted; default: never"},
     VariableType::integer,
     0,
     kMaxVariableSeconds,
     kNotTrainJob},
    {{"grace", "integer", "seconds between SIGTERM and SIGKILL, to save a checkpoint; default 120"},
     VariableType::integer,
     0,
     kMaxVariableSeconds},
    {{"suspend", "true or false", "create the job without starting it; default false"}, VariableType::flag},
};

}  // namespace

const std::vector<VariableRow>& variable_rows() {
  static const std::vector<VariableRow> all = [] {
    std::vector<VariableRow> out;
    for (const std::span<const VariableRow> rows :
         std::initializer_list<std::span<const VariableRow>>{kProgramRows, kResourceRows, kPlacementRows, kLifeRows})
      out.insert(out.end(), rows.begin(), rows.end());
    return out;
  }();
  return all;
}

const VariableRow* find_variable_row(const std::string& name) {
  for (const VariableRow& row : variable_rows())
    if (name == row.shown.name) return &row;
  return nullptr;
}

}  // namespace lockstep
