// Formats jobs, replicas and events as table rows (`get`), as API objects (`get -o yaml`) and as text (`describe`).
// Pure functions, safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/table.h"

namespace lockstep {

// Optional columns of a table.
struct TableOptions {
  bool wide = false;        // `-o wide`
  bool namespaces = false;  // the first column is the namespace
};

// "jaxjob.kubeflow.org/mnist", "job.batch/mnist": the output of `-o name`, also used in messages of commands.
std::string full_name(const Job& job);

// "jaxjobs/mnist", "jobs/mnist".
std::string short_name(const Job& job);

// The STATUS column: "Completed", "Running", "Pending", "Error", "OOMKilled"...
std::string pod_status(const Pod& pod);

// The text, the exit code or the process id; "<none>" if it is empty or unknown.
std::string or_none(std::string text);
std::string exit_code_text(const Pod& pod);
std::string process_text(const Pod& pod);

TableRow job_header(TableOptions options);
TableRow job_row(const Job& job, TableOptions options, JobTime now);

TableRow pod_header(TableOptions options);
TableRow pod_row(const Job& job, const Pod& pod, TableOptions options, JobTime now);

TableRow event_header(TableOptions options);
TableRow event_row(const Job& job, const JobEvent& event, TableOptions options, JobTime now);

// The row of a job or replica without ages. `get -w` prints a new line when this changes.
std::string job_row_key(const Job& job);
std::string pod_row_key(const Job& job, const Pod& pod);

// A replica as a Kubernetes Pod object.
nlohmann::ordered_json pod_object(const Job& job, const Pod& pod);

// A Kubernetes List object.
nlohmann::ordered_json list_object(std::vector<nlohmann::ordered_json> items);

// A replica and the last line it printed (empty: none).
using PodAndLine = std::pair<Pod, std::string>;

// The output of `describe` for a job. `earlier` are the last of its earlier attempts.
std::string describe_job(const Job& job, const std::vector<PodAndLine>& pods, const std::vector<JobEvent>& events,
                         JobTime now, const std::vector<PodAndLine>& earlier = {});
// The output of `describe` for one replica. Shows only those of `events` that concern it.
std::string describe_pod(const Job& job, const PodAndLine& pod, const std::vector<JobEvent>& events, JobTime now);

enum class ConditionResult { met, not_yet, never };

// For `wait`: whether the condition `type` has this status. `never` if the job has finished without it. A condition
// that a finished job never had counts as false.
ConditionResult check_condition(const Job& job, const std::string& type, bool status);

}  // namespace lockstep
