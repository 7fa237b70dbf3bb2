#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/printable.h"
#include "jobs/selector.h"
#include "jobs/show.h"
#include "jobs/stand_in.h"

namespace lockstep {
namespace {

// "Name:              mnist", indented by `depth` levels.
std::string line(int depth, const std::string& name, std::string_view value) {
  constexpr int kNameWidth = 21;
  return fmt::format("{:{}}{:<{}} {}\n", "", 2 * depth, name + ":", kNameWidth - 2 * depth, printable_lines(value));
}

std::string when(std::optional<JobTime> time, JobTime now) {
  if (!time || *time == JobTime{}) return "<none>";
  return fmt::format("{} ({} ago)", time_text(time), age_text(time, now));
}

std::string seconds_or(std::optional<int64_t> count, const char* none) {
  return count ? fmt::format("{}s", *count) : none;
}

// The word with shell quotes where it needs them.
std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./=:,@%+").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string command_text(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

// An indented table with a title.
std::string section(const std::string& title, const TableRow& header, const std::vector<TableRow>& rows) {
  if (rows.empty()) return line(0, title, "<none>");
  std::vector<TableRow> all = {header};
  all.insert(all.end(), rows.begin(), rows.end());
  for (TableRow& row : all) row.front() = "  " + row.front();
  return title + ":\n" + TableLayout().format(all);
}

std::string labels_text(const Labels& labels) {
  std::string out;
  for (const auto& [key, value] : labels)
    out += (out.empty() ? "" : "\n" + std::string(22, ' ')) + fmt::format("{}={}", printable(key), printable(value));
  return or_none(out);
}

// The program's working directory; empty: the image's.
std::string working_folder(const Job& job) {
  const std::string& folder = job.spec.container.folder;
  if (job.folder.empty() || folder.empty()) return job.folder + folder;
  return (std::filesystem::path(job.folder) / folder).lexically_normal().string();
}

std::string container_text(const Job& job) {
  const Container& container = job.spec.container;
  std::string out = "Container:\n";
  out += line(1, "Image", or_none(container.image));
  out += line(1, "Command",
              !stand_in_of(container).empty() ? stand_in_of(container)
              : container.command.empty()     ? container.args.empty() ? "lockstep train" : "lockstep"
                                              : command_text(container.command));
  if (!container.args.empty()) out += line(1, "Args", command_text(container.args));
  const std::string folder = working_folder(job);
  out += line(1, "Working dir", folder.empty() ? "<image default>" : folder);
  out += line(1, "Port", std::to_string(container.port));
  std::string variables;
  for (const auto& [name, value] : container.env) {
    const auto source = container.env_fields.find(name);
    const std::string shown = source == container.env_fields.end() ? "=" + value : fmt::format(" ({})", source->second);
    variables += (variables.empty() ? "" : "\n" + std::string(22, ' ')) + printable(name, std::string::npos) +
                 printable(shown, std::string::npos);
  }
  return out + line(1, "Environment", or_none(variables));
}

std::string spec_text(const Job& job) {
  const JobSpec& spec = job.spec;
  std::string out = "Spec:\n";
  out += line(1, "Replicas", std::to_string(spec.replicas));
  out += line(1, "Restart policy", name_of(spec.restart));
  out += line(1, "Clean pod policy", name_of(spec.clean));
  out += line(1, "Backoff limit", spec.backoff_limit ? std::to_string(*spec.backoff_limit) : "<none>");
  out += line(1, "Active deadline", seconds_or(spec.active_deadline, "<none>"));
  out += line(1, "TTL after finished", seconds_or(spec.ttl_after_finished, "<none>"));
  out += line(1, "Suspend", spec.suspend ? "true" : "false");
  return out + container_text(job);
}

std::string status_text(const JobStatus& status, JobTime now) {
  std::string out = "Status:\n";
  out += line(1, "Replicas",
              fmt::format("{} active, {} succeeded, {} failed", status.active, status.succeeded, status.failed));
  out += line(1, "Restarts", std::to_string(status.restarts));
  out += line(1, "Started", when(status.started, now));
  out += line(1, "Completed", when(status.completed, now));
  if (status.started && status.completed) out += line(1, "Took", age_text(*status.completed - *status.started));
  return out;
}

std::string events_text(const std::vector<JobEvent>& events, JobTime now) {
  std::vector<TableRow> rows;
  for (const JobEvent& event : events)
    rows.push_back(
        {event.warning ? "Warning" : "Normal", event.reason, age_text(event.time, now), event.object, event.message});
  return section("Events", {"TYPE", "REASON", "AGE", "OBJECT", "MESSAGE"}, rows);
}

}  // namespace

std::string describe_job(const Job& job, const std::vector<PodAndLine>& pods, const std::vector<JobEvent>& events,
                         JobTime now, const std::vector<PodAndLine>& earlier) {
  std::string out = line(0, "Name", job.name) + line(0, "Namespace", job.namespace_name) +
                    line(0, "Kind", name_of(job.kind)) + line(0, "State", job_state(job)) +
                    line(0, "Labels", labels_text(job.labels)) + line(0, "UID", or_none(job.uid)) +
                    line(0, "Created", when(job.created, now));
  out += spec_text(job) + status_text(job.status, now);
  std::vector<TableRow> conditions, replicas;
  for (const Condition& each : job.status.conditions)
    conditions.push_back(
        {each.type, each.status ? "True" : "False", each.reason, age_text(each.transitioned, now), each.message});
  for (const auto& [pod, last] : pods)
    replicas.push_back({pod_name(job, pod), pod_status(pod), exit_code_text(pod), std::to_string(pod.attempt),
                        or_none(pod.node), process_text(pod), or_none(last)});
  out += section("Conditions", {"TYPE", "STATUS", "REASON", "AGE", "MESSAGE"}, conditions);
  out += section("Pods", {"NAME", "STATUS", "EXIT CODE", "RESTARTS", "NODE", "PID", "LAST LINE"}, replicas);
  std::vector<TableRow> attempts;
  for (const auto& [pod, last] : earlier)
    attempts.push_back(
        {pod_name(job, pod), pod_status(pod), exit_code_text(pod), age_text(pod.ended, now), or_none(last)});
  if (!attempts.empty())
    out += section("Earlier attempts", {"NAME", "STATUS", "EXIT CODE", "AGE", "LAST LINE"}, attempts);
  return out + events_text(events, now);
}

std::string describe_pod(const Job& job, const PodAndLine& pod, const std::vector<JobEvent>& events, JobTime now) {
  const auto& [it, last] = pod;
  const std::string name = pod_name(job, it);
  std::string out = line(0, "Name", name) + line(0, "Namespace", job.namespace_name) +
                    line(0, "Controlled by", fmt::format("{}/{}", name_of(job.kind), job.name)) +
                    line(0, "Status", pod_status(it)) + line(0, "Exit code", exit_code_text(it)) +
                    line(0, "Restarts", std::to_string(it.attempt)) + line(0, "Node", or_none(it.node)) +
                    line(0, "PID", process_text(it)) + line(0, "Started", when(it.started, now)) +
                    line(0, "Ended", when(it.ended, now)) + line(0, "Last line", or_none(last)) +
                    line(0, "Labels", labels_text(pod_labels(job, it.index)));
  out += container_text(job);
  std::vector<JobEvent> own;
  std::copy_if(events.begin(), events.end(), std::back_inserter(own),
               [&](const JobEvent& event) { return event.object == "pod/" + name; });
  return out + events_text(own, now);
}

}  // namespace lockstep
