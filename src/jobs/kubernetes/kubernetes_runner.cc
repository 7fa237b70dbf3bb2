#include "jobs/kubernetes/kubernetes_runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/os/process.h"
#include "jobs/kubernetes/api_proxy.h"
#include "jobs/kubernetes/apply_job.h"
#include "jobs/kubernetes/followed_log.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/kubectl_text.h"
#include "jobs/kubernetes/objects.h"
#include "jobs/kubernetes/required_objects.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using kubectl::Words;

constexpr auto kDeleteTimeout = std::chrono::minutes(10);   // includes the grace period of the pods
constexpr auto kStartTimeout = std::chrono::minutes(10);    // of a pod, which may wait for its image and a new node
constexpr auto kLookPause = std::chrono::seconds(5);        // between two looks for the reason why a pod does not start
constexpr auto kSilenceTimeout = std::chrono::minutes(10);  // of the API server while a log is followed
constexpr std::chrono::milliseconds kMinPause{500}, kMaxPause{10'000};  // between connections
constexpr std::array kKinds = {JobKind::jax_job, JobKind::indexed_job};

std::vector<JobKind> kinds_of(std::optional<JobKind> kind) {
  return kind ? std::vector<JobKind>{*kind} : std::vector<JobKind>(kKinds.begin(), kKinds.end());
}

std::vector<KubernetesPod> pods_of_job(const Job& job, bool all = false) {
  const Json list =
      kubectl::get_list("pods", job.namespace_name, {"-l", fmt::format("{}={}", job_label(job.kind), job.name)});
  return all ? pods_in_list(list) : newest_pods_in_list(list);
}

// Returns what `body` returns. Prints a note and returns nullopt if the user has no permission.
template <class Body>
auto if_permitted(const Body& body) -> std::optional<decltype(body())> {
  try {
    return body();
  } catch (const Forbidden& error) {
    kubectl::note_once(error.what());
    return std::nullopt;
  }
}

class KubernetesRunner final : public Runner {
 public:
  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    return apply_job(std::move(job), note);
  }

  Job get(const std::string& namespace_name, const std::string& name, std::optional<JobKind> kind) override {
    std::vector<Job> found;
    std::vector<std::string> refused;
    for (const JobKind each : kinds_of(kind)) {
      try {
        const Json object = kubectl::find_object(resource_of(each), namespace_name, name);
        if (is_job_object(object)) found.push_back(job_of_object(object));
      } catch (const Forbidden& error) {
        refused.push_back(error.what());
      }
    }
    if (found.size() > 1)
      throw_error("job: namespace {1} has a JAXJob and a Job named {0}; use jaxjob/{0} or job.batch/{0}", name,
                  namespace_name);
    if (found.size() == 1) {
      if (const auto pods = if_permitted([&] { return pods_of_job(found[0]); }))
        update_status_from_pods(found[0], *pods);
      return std::move(found[0]);
    }
    if (refused.size() == kinds_of(kind).size()) throw Forbidden(refused[0]);
    throw_if_other_kind(namespace_name, name);
    std::vector<std::string> names;
    for (const Job& job : list(namespace_name, kind)) names.push_back(job.name);
    throw_error("job {}: not found in namespace {}; {}{}", name, namespace_name,
                names.empty() ? "it has no jobs" : fmt::format("existing jobs: {}", fmt::join(names, ", ")),
                refused.empty() ? "" : fmt::format(" (the list may be incomplete: {})", refused[0]));
  }

  std::vector<Pod> pods(const Job& job) override {
    std::vector<Pod> out;
    for (const KubernetesPod& each : pods_of_job(job)) out.push_back(each.pod);
    return out;
  }

  std::vector<EarlierAttempt> earlier_attempts(const Job& job) override {
    return earlier_attempts_of(pods_of_job(job, true));
  }

  std::optional<std::pair<Job, Pod>> find_pod(const std::string& namespace_name, const std::string& name) override {
    if (const Json object = kubectl::find_object("pods", namespace_name, name); !object.is_null())
      for (const KubernetesPod& named : pods_in_list({{"items", {object}}}))
        for (const JobKind kind : kKinds) {
          if (!object["metadata"]["labels"].contains(job_label(kind))) continue;
          const Job job = get(namespace_name, named.job, kind);
          for (const KubernetesPod& each : pods_of_job(job, true))
            if (each.name == name) return std::pair(job, each.pod);
        }
    // "myjob-0" means the newest pod of replica 0.
    for (const Job& job : list(namespace_name, std::nullopt))
      for (int i = 0; i < job.spec.replicas; ++i)
        if (pod_name(job, i) == name)
          for (const Pod& pod : pods(job))
            if (pod.index == i) return std::pair(job, pod);
    return std::nullopt;
  }

  bool lists_pending_replicas() const override { return false; }

  std::vector<JobEvent> events(const Job& job) override {
    return events_of_job(kubectl::get_list("events", job.namespace_name), job, pods_of_job(job, true));
  }

  std::string why_waiting(const Job& job) override {
    const auto pods = if_permitted([&] { return pods_of_job(job, true); });
    if (!pods) return "";
    const auto all = if_permitted([&] { return kubectl::get_list("events", job.namespace_name); });
    std::map<int, KubernetesPod> newest;
    for (const KubernetesPod& each : *pods) newest[each.pod.index] = each;
    std::vector<KubernetesPod> current;
    for (const auto& [index, each] : newest) current.push_back(each);
    return waiting_reason(job, current, all ? events_of_job(*all, job, *pods) : std::vector<JobEvent>());
  }

  void set_suspend(const Job& job, bool suspend) override {
    const Json patch = job.kind == JobKind::jax_job ? Json{{"spec", {{"runPolicy", {{"suspend", suspend}}}}}}
                                                    : Json{{"spec", {{"suspend", suspend}}}};
    kubectl::run_or_throw(
        {"patch", resource_of(job.kind), job.name, "-n", job.namespace_name, "--type", "merge", "-p", patch.dump()});
  }

  void remove(const Job& job) override {
    kubectl::run_or_throw({"delete", resource_of(job.kind), job.name, "-n", job.namespace_name, "--ignore-not-found",
                           "--cascade=foreground", "--wait=true",
                           fmt::format("--timeout={}s", std::chrono::seconds(kDeleteTimeout).count())},
                          {}, kDeleteTimeout + kubectl::kAnswerTimeout);
    remove_belongings(job);
  }

  std::vector<Job> list(const std::string& namespace_name, std::optional<JobKind> kind) override {
    std::vector<Job> out;
    std::vector<std::string> refused;
    for (const JobKind each : kinds_of(kind)) {
      try {
        add_jobs(each, namespace_name, out);
      } catch (const Forbidden& error) {
        refused.push_back(error.what());
      }
    }
    if (refused.size() == kinds_of(kind).size()) throw Forbidden(refused[0]);
    for (const std::string& each : refused) kubectl::note_once(each);
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    const KubernetesPod pod = started_pod(job, options);
    Words words = {"logs", pod.name, "-n", job.namespace_name};
    if (!pod.container.empty()) words.insert(words.end(), {"-c", pod.container});
    if (options.previous && pod.restarted)
      words.push_back("--previous");
    else if (options.previous && !pod.predecessor.empty())
      words[1] = pod.predecessor;
    else if (options.previous)
      throw_error("logs: replica {} of {} was started only once; there is no previous log", options.replica, job.name);
    if (options.follow && !options.previous) return follow(job, pod, words, options, sink);
    add_limits(words, options);
    const ProgramResult result = kubectl::stream(words, sink);
    if (result.code != 0) kubectl::throw_failure("logs", result);
  }

  void pod_log(const Job& job, const Pod& pod, LogOptions options,
               const std::function<bool(std::string_view)>& sink) override {
    if (options.follow || options.previous) return Runner::pod_log(job, pod, std::move(options), sink);
    const std::vector<KubernetesPod> named = pods_in_list({{"items", {pod.object}}});
    if (named.empty()) return Runner::pod_log(job, pod, std::move(options), sink);
    std::string target =
        fmt::format("/api/v1/namespaces/{}/pods/{}/log?container={}", job.namespace_name, pod.name, named[0].container);
    if (options.tail) target += fmt::format("&tailLines={}", *options.tail);
    if (options.since) target += fmt::format("&sinceSeconds={}", options.since->count());
    if (!proxy_) proxy_.emplace();
    proxy_->get("logs", target, sink);
  }

  // Each look lists all jobs and pods.
  void wait_for_change() override { std::this_thread::sleep_for(std::chrono::seconds(2)); }

 private:
  // JobSets and TrainJobs have Indexed Jobs, which the job commands know.
  static void throw_if_other_kind(const std::string& namespace_name, const std::string& name) {
    for (const auto& [kind, resource] :
         {std::pair("JobSet", "jobsets.jobset.x-k8s.io"), std::pair("TrainJob", "trainjobs.trainer.kubeflow.org")}) {
      Json object;
      try {
        object = kubectl::find_object(resource, namespace_name, name);
      } catch (const Forbidden&) {  // such users have none
      }
      if (!object.is_null())
        throw_error(
            "job {0}: it is a {1}, which only kubectl shows; use its Job instead (`lockstep get jobs -n {2} -l "
            "jobset.sigs.k8s.io/jobset-name={0}`), or `kubectl describe {3} {0} -n {2}`",
            name, kind, namespace_name, resource);
    }
  }

  static void add_jobs(JobKind kind, const std::string& namespace_name, std::vector<Job>& out) {
    const ProgramResult result = kubectl::run(kubectl::get_words(resource_of(kind), namespace_name));
    if (result.code != 0 && kind == JobKind::jax_job && kubectl::stderr_contains(result, "have a resource type"))
      return;
    if (result.code != 0) kubectl::throw_failure("get", result);
    std::vector<Job> found;
    const Json objects = kubectl::parse_output(result.out);
    for (const Json& each : objects.at("items"))
      if (is_job_object(each)) found.push_back(job_of_object(each));
    if (found.empty()) return;
    const auto pods = if_permitted([&] {
      return pods_in_list(kubectl::get_list("pods", namespace_name, {"-l", job_label(kind)}));
    });
    for (Job& job : found) {
      std::vector<KubernetesPod> own;
      for (const KubernetesPod& each : pods.value_or(std::vector<KubernetesPod>()))
        if (each.job == job.name &&
            each.pod.object["metadata"].value("namespace", job.namespace_name) == job.namespace_name)
          own.push_back(each);
      if (pods) update_status_from_pods(job, own);
      out.push_back(std::move(job));
    }
  }

  // Deletes the Service, the Secret and the NetworkPolicy that were rendered with the job and that `kubectl apply`
  // created, so that nothing owns them. Waits for those that the job owned, so that a new job can create its own.
  // Without the permission, prints a note and leaves them.
  static void remove_belongings(const Job& job) {
    std::vector<std::pair<std::string, std::string>> names;
    for (const Json& each : required_objects(job.object, ""))
      names.emplace_back(each["kind"], each["metadata"]["name"]);
    names.emplace_back("NetworkPolicy", job.name);
    const auto deadline = Clock::now() + kubectl::kAnswerTimeout;
    const auto remove_one = [&](const std::string& kind, const std::string& name) {
      Json present = kubectl::find_object(kind, job.namespace_name, name);
      if (is_rendered_for(present, job.name))
        kubectl::run_or_throw({"delete", kind, name, "-n", job.namespace_name, "--ignore-not-found"});
      else
        for (; is_owned_by(present, job.uid) && Clock::now() < deadline;
             present = kubectl::find_object(kind, job.namespace_name, name))
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
    };
    for (const auto& [kind, name] : names) {
      try {
        remove_one(kind, name);
      } catch (const Forbidden& error) {
        if (kind != "NetworkPolicy") kubectl::note_once(error.what());  // few jobs have one
      }
    }
  }

  static void add_limits(Words& words, const LogOptions& options) {
    if (options.since) words.push_back(fmt::format("--since={}s", options.since->count()));
    if (options.tail) words.push_back(fmt::format("--tail={}", *options.tail));
  }

  // Follows a log until the container has ended. Reconnects after a restart of the API server.
  void follow(const Job& job, const KubernetesPod& pod, const Words& words, const LogOptions& options,
              const std::function<bool(std::string_view)>& sink) {
    bool stopped = false;
    FollowedLog log([&](std::string_view text) {
      stopped = !sink(text);
      return !stopped;
    });
    Clock::time_point answered = Clock::now();
    std::chrono::milliseconds pause = kMinPause;
    for (;; pause = std::min(2 * pause, kMaxPause)) {
      Words now = words;
      now.insert(now.end(), {"--follow", "--timestamps"});
      if (!log.since().empty())
        now.push_back("--since-time=" + log.since());
      else
        add_limits(now, options);
      log.start_connection();
      const ProgramResult result = kubectl::stream(now, [&](std::string_view text) {
        answered = Clock::now();
        pause = kMinPause;
        return log.add(text);
      });
      if (stopped) return;
      if (result.code != 0 && !is_unreachable(result.err)) kubectl::throw_failure("logs", result);
      try {
        if (result.code == 0 && !still_runs(job, pod)) return;
        if (result.code == 0) answered = Clock::now();
      } catch (const RunnerUnreachable&) {
      }
      if (Clock::now() - answered > kSilenceTimeout)
        throw RunnerUnreachable(
            fmt::format("logs: no response from the API server for {} minutes: {}; check it with `kubectl version`",
                        std::chrono::minutes(kSilenceTimeout).count(), kubectl_error_message(result.err)));
      if (result.code != 0) kubectl::note_once("logs: lost the connection to the API server; retrying");
      std::this_thread::sleep_for(pause);
      if (!sink("")) return;
    }
  }

  static bool still_runs(const Job& job, const KubernetesPod& pod) {
    for (const KubernetesPod& each : pods_of_job(job, true))
      if (each.uid == pod.uid) return each.running && each.pod.attempt == pod.pod.attempt;
    return false;
  }

  // The pod whose log to show. With --follow, waits until it has started.
  KubernetesPod started_pod(const Job& job, const LogOptions& options) {
    const auto deadline = Clock::now() + kStartTimeout;
    auto next_look = Clock::now();
    std::string reason;
    std::vector<KubernetesPod> all;
    for (bool first = true;; first = false, wait_for_change()) {
      try {
        all = pods_of_job(job, true);
      } catch (const RunnerUnreachable&) {
        if (first || Clock::now() > deadline) throw;
      }
      const auto found = std::find_if(all.rbegin(), all.rend(), [&](const KubernetesPod& each) {
        return options.pod.empty() ? each.pod.index == options.replica : each.name == options.pod;
      });
      if (found != all.rend() && (found->pod.phase != PodPhase::pending || !options.follow)) return *found;
      if (options.replica >= job.spec.replicas)
        throw_error("logs: job {} has {} replicas, numbered from 0; replica {} does not exist", job.name,
                    job.spec.replicas, options.replica);
      if (!options.follow)
        throw_error("logs: replica {} of {} has no pod: it was not created yet or was deleted; -f waits for it",
                    options.replica, job.name);
      if (first || Clock::now() > next_look) {
        next_look = Clock::now() + kLookPause;
        try {
          if (std::string now = why_waiting(job); !now.empty()) reason = std::move(now);
        } catch (const RunnerUnreachable&) {
        }
        if (!reason.empty()) kubectl::note_once(fmt::format("{} waits: {}", job.name, reason));
      }
      if (Clock::now() > deadline)
        throw IoError(fmt::format("logs: the pod of replica {} of {} did not start within {} minutes{}",
                                  options.replica, job.name, std::chrono::minutes(kStartTimeout).count(),
                                  !reason.empty()       ? ": " + reason
                                  : found == all.rend() ? ""
                                                        : ": " + found->pod.kubectl_status));
    }
  }

  std::optional<ApiProxy> proxy_;  // from the first pod_log() on
};

}  // namespace

std::unique_ptr<Runner> make_kubernetes_runner() {
  if (find_program("kubectl").empty())
    throw_error(
        "kubernetes: kubectl was not found on the PATH; install it (on Debian: the package kubernetes-client), or omit "
        "--on kubernetes to run on this machine");
  return std::make_unique<KubernetesRunner>();
}

}  // namespace lockstep
