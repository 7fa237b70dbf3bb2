#include <array>
#include <type_traits>

#include "base/check.h"
#include "base/json.h"
#include "jobs/model/object.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json optional_json(const std::optional<JobTime>& time) { return time ? Json(time_text(*time)) : Json(nullptr); }

template <class T>
void read(const Json& from, const char* key, T& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    value = integer_at<T>(from, key);
  else
    from.at(key).get_to(value);
}

void read(const Json& from, const char* key, JobTime& value) { value = parse_time(from.at(key).get<std::string>()); }

template <class T>
void read(const Json& from, const char* key, std::optional<T>& value) {
  value.reset();
  if (!from.at(key).is_null()) read(from, key, value.emplace());
}

// Reads an enumerator by its name.
template <class T, size_t N>
void read_name(const Json& from, const char* key, const std::array<T, N>& all, T& value) {
  const auto name = from.at(key).get<std::string>();
  for (const T each : all) {
    if (name_of(each) != name) continue;
    value = each;
    return;
  }
  throw_error("{} is \"{}\"", key, name);
}

Json container_json(const Container& container) {
  return {{"image", container.image}, {"command", container.command},       {"args", container.args},
          {"env", container.env},     {"env_fields", container.env_fields}, {"folder", container.folder},
          {"port", container.port}};
}

void read_container(const Json& from, Container& out) {
  read(from, "image", out.image);
  read(from, "command", out.command);
  read(from, "args", out.args);
  read(from, "env", out.env);
  read(from, "env_fields", out.env_fields);
  read(from, "folder", out.folder);
  read(from, "port", out.port);
}

Json spec_json(const JobSpec& spec) {
  return {{"replicas", spec.replicas},
          {"restart", name_of(spec.restart)},
          {"container", container_json(spec.container)},
          {"clean", name_of(spec.clean)},
          {"ttl_after_finished", optional_json(spec.ttl_after_finished)},
          {"active_deadline", optional_json(spec.active_deadline)},
          {"backoff_limit", optional_json(spec.backoff_limit)},
          {"suspend", spec.suspend}};
}

void read_spec(const Json& from, JobSpec& out) {
  read(from, "replicas", out.replicas);
  read_name(
      from, "restart",
      std::array{RestartPolicy::never, RestartPolicy::on_failure, RestartPolicy::always, RestartPolicy::exit_code},
      out.restart);
  read_container(from.at("container"), out.container);
  read_name(from, "clean", std::array{CleanPodPolicy::none, CleanPodPolicy::running, CleanPodPolicy::all}, out.clean);
  read(from, "ttl_after_finished", out.ttl_after_finished);
  read(from, "active_deadline", out.active_deadline);
  read(from, "backoff_limit", out.backoff_limit);
  read(from, "suspend", out.suspend);
}

Json status_json(const JobStatus& status) {
  Json conditions = Json::array();
  for (const Condition& each : status.conditions)
    conditions.push_back({{"type", each.type},
                          {"status", each.status},
                          {"reason", each.reason},
                          {"message", each.message},
                          {"updated", time_text(each.updated)},
                          {"transitioned", time_text(each.transitioned)}});
  return {{"conditions", std::move(conditions)},
          {"active", status.active},
          {"succeeded", status.succeeded},
          {"failed", status.failed},
          {"started", optional_json(status.started)},
          {"completed", optional_json(status.completed)},
          {"restarts", status.restarts},
          {"attempt", status.attempt},
          {"failed_before", status.failed_before},
          {"completed_indexes", status.completed_indexes},
          {"next_start", optional_json(status.next_start)},
          {"taken_ports", status.taken_ports}};
}

void read_status(const Json& from, JobStatus& out) {
  for (const Json& each : from.at("conditions")) {
    Condition& condition = out.conditions.emplace_back();
    read(each, "type", condition.type);
    read(each, "status", condition.status);
    read(each, "reason", condition.reason);
    read(each, "message", condition.message);
    read(each, "updated", condition.updated);
    read(each, "transitioned", condition.transitioned);
  }
  read(from, "active", out.active);
  read(from, "succeeded", out.succeeded);
  read(from, "failed", out.failed);
  read(from, "started", out.started);
  read(from, "completed", out.completed);
  read(from, "restarts", out.restarts);
  read(from, "attempt", out.attempt);
  read(from, "failed_before", out.failed_before);
  read(from, "completed_indexes", out.completed_indexes);
  read(from, "next_start", out.next_start);
  out.taken_ports = from.value("taken_ports", 0);
}

// Runs `body`, and turns every error of reading JSON into one kind of message.
template <class Body>
void read_stored(const char* what, Body&& body) {
  std::string fault;
  try {
    return body();
  } catch (const Json::exception& error) {
    fault = error.what();
  } catch (const Error& error) {
    fault = error.what();
  }
  throw_error("{}: cannot read its stored state: {}; it was edited by hand, or written by another version", what,
              fault);
}

}  // namespace

nlohmann::ordered_json job_to_json(const Job& job) {
  return {{"kind", name_of(job.kind)},
          {"name", job.name},
          {"namespace", job.namespace_name},
          {"uid", job.uid},
          {"labels", job.labels},
          {"created", time_text(job.created)},
          {"generation", job.generation},
          {"version", job.version},
          {"manifest", job.manifest},
          {"spec", spec_json(job.spec)},
          {"status", status_json(job.status)}};
}

Job job_from_json(const nlohmann::ordered_json& value) {
  Job job;
  read_stored("job", [&] {
    read_name(value, "kind", std::array{JobKind::jax_job, JobKind::indexed_job}, job.kind);
    read(value, "name", job.name);
    read(value, "namespace", job.namespace_name);
    read(value, "uid", job.uid);
    read(value, "labels", job.labels);
    read(value, "created", job.created);
    read(value, "generation", job.generation);
    read(value, "version", job.version);
    job.manifest = value.at("manifest");
    read_spec(value.at("spec"), job.spec);
    read_status(value.at("status"), job.status);
  });
  return job;
}

nlohmann::ordered_json event_to_json(const JobEvent& event) {
  return {{"time", time_text(event.time)},
          {"warning", event.warning},
          {"object", event.object},
          {"reason", event.reason},
          {"message", event.message}};
}

JobEvent event_from_json(const nlohmann::ordered_json& value) {
  JobEvent event;
  read_stored("event", [&] {
    read(value, "time", event.time);
    read(value, "warning", event.warning);
    read(value, "object", event.object);
    read(value, "reason", event.reason);
    read(value, "message", event.message);
  });
  return event;
}

}  // namespace lockstep
