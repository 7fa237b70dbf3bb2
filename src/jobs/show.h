// Jobs, their replicas and events as rows of tables, as objects and as a page of text. Pure functions, safe from any
// thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jobs/model/job.h"
#include "jobs/table.h"

namespace lockstep {

// What a table shows beside what it always does.
struct Shown {
  bool wide = false;
  bool spaces = false;  // begins with the namespace
};

// "jaxjob.kubeflow.org/mnist", "job.batch/mnist": what `-o name` prints, and what commands say they have changed.
std::string full_name(const Job& job);

// "jaxjobs/mnist", "jobs/mnist".
std::string short_name(const Job& job);

// "Completed", "Running", "Pending", "Error", "OOMKilled"...
std::string pod_status(const Pod& pod);

// The text, or "<none>" in place of an empty one; the exit code and the process of a replica, or "<none>".
std::string or_none(std::string text);
std::string exit_code_text(const Pod& pod);
std::string process_text(const Pod& pod);

Row job_header(Shown shown);
Row job_row(const Job& job, Shown shown, JobTime now);

Row pod_header(Shown shown);
Row pod_row(const Job& job, const Pod& pod, Shown shown, JobTime now);

Row event_header(Shown shown);
Row event_row(const Job& job, const JobEvent& event, Shown shown, JobTime now);

// What of a job or replica is worth a new line of `get -w`: all of its row but ages.
std::string job_news(const Job& job);
std::string pod_news(const Job& job, const Pod& pod);

// A replica as Kubernetes would show the object.
nlohmann::ordered_json pod_object(const Job& job, const Pod& pod);

// Several objects as one.
nlohmann::ordered_json list_object(std::vector<nlohmann::ordered_json> items);

// A replica, and the last line that it printed, if there is one.
using PodAndLine = std::pair<Pod, std::string>;

// Everything there is to know about a job.
std::string describe_job(const Job& job, const std::vector<PodAndLine>& pods, const std::vector<JobEvent>& events,
                         JobTime now);
// Only the events of this replica are shown.
std::string describe_pod(const Job& job, const PodAndLine& pod, const std::vector<JobEvent>& events, JobTime now);

// How a condition that somebody waits for stands.
enum class Waiting { met, not_yet, never };

// Whether the condition of this type has this status; one that a job never had is false once it has ended. `never`: the
// job has ended otherwise.
Waiting waiting_for(const Job& job, const std::string& type, bool status);

}  // namespace lockstep
