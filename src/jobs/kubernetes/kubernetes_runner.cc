#include "jobs/kubernetes/kubernetes_runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "base/check.h"
#include "cluster/token.h"
#include "data/process.h"
#include "jobs/kubernetes/companions.h"
#include "jobs/kubernetes/followed_log.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/kubectl_text.h"
#include "jobs/kubernetes/objects.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using kubectl::Words;

constexpr auto kRemoved = std::chrono::minutes(10);  // pods have their own time to end
constexpr auto kStarted = std::chrono::minutes(10);  // a pod whose image is fetched, on a node that is made
constexpr auto kSilent = std::chrono::minutes(10);   // an API server, while a log is followed
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{10'000};  // between connections
constexpr std::array kKinds = {JobKind::jax_job, JobKind::indexed_job};

const char* resource_of(JobKind kind) { return kind == JobKind::jax_job ? "jaxjobs.kubeflow.org" : "jobs.batch"; }
const char* job_label(JobKind kind) { return kind == JobKind::jax_job ? "training.kubeflow.org/job-name" : "job-name"; }
const char* typed_name(JobKind kind) { return kind == JobKind::jax_job ? "jaxjob" : "job.batch"; }

std::vector<JobKind> kinds_of(std::optional<JobKind> kind) {
  return kind ? std::vector<JobKind>{*kind} : std::vector<JobKind>(kKinds.begin(), kKinds.end());
}

bool is_missing(const ProgramResult& result) {
  return kubectl::says(result, "(NotFound)") || kubectl::says(result, "not found") ||
         kubectl::says(result, "have a resource type");
}

// An empty space: all of them.
Words get_words(const std::string& what, const std::string& space, const Words& more = {}) {
  Words words = {"get", what};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"-o", "json", "--request-timeout=30s"});
  if (space.empty())
    words.push_back("--all-namespaces");
  else
    words.insert(words.end(), {"-n", space});
  return words;
}

Json get_list(const std::string& what, const std::string& space, const Words& more = {}) {
  return kubectl::parse(kubectl::ask(get_words(what, space, more)).out);
}

// Null where there is no such object, and where the cluster does not know the kind.
Json find_object(const std::string& resource, const std::string& space, const std::string& name) {
  const ProgramResult result = kubectl::run(get_words(resource, space, {name}));
  if (result.code != 0 && is_missing(result)) return {};
  if (result.code != 0) kubectl::fail("get", result);
  return kubectl::parse(result.out);
}

std::vector<NamedPod> pods_of_job(const Job& job, bool all = false) {
  const Json list = get_list("pods", job.space, {"-l", fmt::format("{}={}", job_label(job.kind), job.name)});
  return all ? all_pods_of_list(list) : pods_of_list(list);
}

// What `body` returns; nothing, with a note, where the user may not see it.
template <class Body>
auto if_permitted(const Body& body) -> std::optional<decltype(body())> {
  try {
    return body();
  } catch (const Forbidden& error) {
    kubectl::note_once(error.what());
    return std::nullopt;
  }
}

[[noreturn]] void fail_apply(const Job& job, const ProgramResult& result) {
  const std::vector<std::string> fields = immutable_fields(result.err);
  if (fields.empty()) kubectl::fail("apply", result);
  throw_error(
      "apply: {} \"{}\" exists and cannot change its {}; delete it first (lockstep delete {}/{} -n {} --on "
      "kubernetes), "
      "or give the new one another name",
      name_of(job.kind), job.name, fmt::join(fields, ", "), typed_name(job.kind), job.name, job.space);
}

class KubernetesRunner final : public Runner {
 public:
  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    job.manifest["metadata"]["name"] = job.name;  // generateName has become one
    job.manifest["metadata"].erase("generateName");
    const std::string resource = resource_of(job.kind);
    const std::string secret = add_token(job.manifest, find_object(resource, job.space, job.name));
    const ProgramResult result = kubectl::run({"apply", "-f", "-", "-n", job.space}, job.manifest.dump());
    if (result.code != 0) fail_apply(job, result);
    std::string done = result.out.substr(0, result.out.find('\n'));
    done.erase(0, done.rfind(' ') + 1);
    try {
      make_companions(job, secret, note);
    } catch (const IoError& error) {
      undo(job, done == "created", error.what());
    }
    return done;
  }

  Job get(const std::string& space, const std::string& name, std::optional<JobKind> kind) override {
    std::vector<Job> found;
    std::vector<std::string> refused;
    for (const JobKind each : kinds_of(kind)) {
      try {
        const Json object = find_object(resource_of(each), space, name);
        if (is_job_object(object)) found.push_back(job_of_object(object));
      } catch (const Forbidden& error) {
        refused.push_back(error.what());
      }
    }
    if (found.size() > 1)
      throw_error("job: there are a JAXJob and a Job called {} in namespace {}; write jaxjob/{} or job.batch/{}", name,
                  space, name, name);
    if (found.size() == 1) {
      if (const auto pods = if_permitted([&] { return pods_of_job(found[0]); })) set_from_pods(found[0], *pods);
      return std::move(found[0]);
    }
    if (refused.size() == kinds_of(kind).size()) throw Forbidden(refused[0]);
    std::vector<std::string> names;
    for (const Job& job : list(space, kind)) names.push_back(job.name);
    throw_error("job: there is no \"{}\" in namespace {}; there {}{}", name, space,
                names.empty() ? "is none" : fmt::format("are {}", fmt::join(names, ", ")),
                refused.empty() ? "" : fmt::format(" (not all could be seen: {})", refused[0]));
  }

  std::vector<Pod> pods(const Job& job) override {
    std::vector<Pod> out;
    for (const NamedPod& each : pods_of_job(job)) out.push_back(each.pod);
    return out;
  }

  std::optional<std::pair<Job, Pod>> find_pod(const std::string& space, const std::string& name) override {
    if (const Json object = find_object("pods", space, name); !object.is_null())
      for (const NamedPod& named : all_pods_of_list({{"items", {object}}}))
        for (const JobKind kind : kKinds) {
          if (!object["metadata"]["labels"].contains(job_label(kind))) continue;
          const Job job = get(space, named.job, kind);
          for (const NamedPod& each : pods_of_job(job, true))
            if (each.name == name) return std::pair(job, each.pod);
        }
    // "myjob-0" is the newest pod of replica 0.
    for (const Job& job : list(space, std::nullopt))
      for (int i = 0; i < job.spec.replicas; ++i)
        if (pod_name(job, i) == name)
          for (const Pod& pod : pods(job))
            if (pod.index == i) return std::pair(job, pod);
    return std::nullopt;
  }

  bool lists_pending_replicas() const override { return false; }

  std::vector<JobEvent> events(const Job& job) override {
    return events_of_job(get_list("events", job.space), job, pods_of_job(job, true));
  }

  void set_suspend(const Job& job, bool suspend) override {
    const Json patch = job.kind == JobKind::jax_job ? Json{{"spec", {{"runPolicy", {{"suspend", suspend}}}}}}
                                                    : Json{{"spec", {{"suspend", suspend}}}};
    kubectl::ask({"patch", resource_of(job.kind), job.name, "-n", job.space, "--type", "merge", "-p", patch.dump()});
  }

  void remove(const Job& job) override {
    kubectl::ask(
        {"delete", resource_of(job.kind), job.name, "-n", job.space, "--ignore-not-found", "--cascade=foreground",
         "--wait=true", fmt::format("--timeout={}s", std::chrono::seconds(kRemoved).count())},
        {}, kRemoved + kubectl::kAnswer);
  }

  std::vector<Job> list(const std::string& space, std::optional<JobKind> kind) override {
    std::vector<Job> out;
    std::vector<std::string> refused;
    for (const JobKind each : kinds_of(kind)) {
      try {
        add_jobs(each, space, out);
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
    const NamedPod pod = started_pod(job, options);
    Words words = {"logs", pod.name, "-n", job.space};
    if (!pod.container.empty()) words.insert(words.end(), {"-c", pod.container});
    if (options.previous && pod.restarted)
      words.push_back("--previous");
    else if (options.previous && !pod.before.empty())
      words[1] = pod.before;
    else if (options.previous)
      throw_error("logs: replica {} of {} has run once only; there is no earlier attempt", options.replica, job.name);
    if (options.follow && !options.previous) return follow(job, pod, words, options.tail, sink);
    if (options.tail) words.push_back(fmt::format("--tail={}", *options.tail));
    const ProgramResult result = kubectl::stream(words, sink);
    if (result.code != 0) kubectl::fail("logs", result);
  }

  void wait_for_change() override { std::this_thread::sleep_for(std::chrono::seconds(1)); }

 private:
  static void add_jobs(JobKind kind, const std::string& space, std::vector<Job>& out) {
    const ProgramResult result = kubectl::run(get_words(resource_of(kind), space));
    if (result.code != 0 && kind == JobKind::jax_job && kubectl::says(result, "have a resource type")) return;
    if (result.code != 0) kubectl::fail("get", result);
    std::vector<Job> found;
    const Json objects = kubectl::parse(result.out);
    for (const Json& each : objects.at("items"))
      if (is_job_object(each)) found.push_back(job_of_object(each));
    if (found.empty()) return;
    const auto pods = if_permitted([&] { return all_pods_of_list(get_list("pods", space, {"-l", job_label(kind)})); });
    for (Job& job : found) {
      std::vector<NamedPod> own;
      for (const NamedPod& each : pods.value_or(std::vector<NamedPod>()))
        if (each.job == job.name && each.pod.object["metadata"].value("namespace", job.space) == job.space)
          own.push_back(each);
      if (pods) set_from_pods(job, own);
      out.push_back(std::move(job));
    }
  }

  // Makes the Service and the Secret that the job names and that do not exist.
  static void make_companions(const Job& job, const std::string& secret,
                              const std::function<void(std::string_view)>& note) {
    const Json object = find_object(resource_of(job.kind), job.space, job.name);
    if (!is_job_object(object)) return;  // another user has deleted it meanwhile
    for (const Json& each : companions_of(object, make_token())) {
      const std::string kind = each["kind"], name = each["metadata"]["name"];
      if (stays(kind, name, job.space, object)) continue;
      const ProgramResult result = kubectl::run({"create", "-f", "-", "-n", job.space}, each.dump());
      if (result.code != 0 && !kubectl::says(result, "(AlreadyExists)")) kubectl::fail("create " + kind, result);
      if (kind == "Secret" && name == secret)
        note(fmt::format(
            "the job has no token: LOCKSTEP_TOKEN was added to what is sent, from the new Secret {}, which is deleted "
            "with the job",
            name));
      else
        note(fmt::format("the {} {} did not exist and was made; it is deleted with the job", kind, name));
    }
  }

  // Whether there is such an object. One of an earlier job of this name is being deleted: waits until it is gone.
  static bool stays(const std::string& kind, const std::string& name, const std::string& space, const Json& job) {
    for (const auto deadline = Clock::now() + kubectl::kAnswer;;
         std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
      const Json present = find_object(kind, space, name);
      if (present.is_null()) return false;
      if (!belongs_to_earlier(present, job)) return true;
      if (Clock::now() > deadline)
        throw IoError(
            fmt::format("the {} {} of an earlier job of this name is not deleted; delete it: kubectl delete "
                        "{} {} -n {}",
                        kind, name, kind, name, space));
    }
  }

  // A job without its Secret or Service would never run: what was made is removed again.
  [[noreturn]] static void undo(const Job& job, bool created, const std::string& why) {
    const std::string name = fmt::format("{}/{}", typed_name(job.kind), job.name);
    if (!created) throw_error("apply: {}; {} existed before and is kept, but lacks this object", why, name);
    const ProgramResult result = kubectl::run(
        {"delete", resource_of(job.kind), job.name, "-n", job.space, "--ignore-not-found", "--wait=false"});
    if (result.code == 0) throw_error("apply: {}; {} cannot run without it and was deleted again", why, name);
    throw_error(
        "apply: {}; {} cannot run without it and could not be deleted: {}; delete it: lockstep delete {} -n {} "
        "--on kubernetes",
        why, name, kubectl_complaint(result.err), name, job.space);
  }

  // Follows through restarts of the API server, until the container has ended.
  void follow(const Job& job, const NamedPod& pod, const Words& words, std::optional<int64_t> tail,
              const std::function<bool(std::string_view)>& sink) {
    bool stopped = false;
    FollowedLog log([&](std::string_view text) {
      stopped = !sink(text);
      return !stopped;
    });
    Clock::time_point answered = Clock::now();
    std::chrono::milliseconds pause = kFirstPause;
    for (;; pause = std::min(2 * pause, kLongestPause)) {
      Words now = words;
      now.insert(now.end(), {"--follow", "--timestamps"});
      if (!log.since().empty())
        now.push_back("--since-time=" + log.since());
      else if (tail)
        now.push_back(fmt::format("--tail={}", *tail));
      log.connect();
      const ProgramResult result = kubectl::stream(now, [&](std::string_view text) {
        answered = Clock::now();
        pause = kFirstPause;
        return log.add(text);
      });
      if (stopped) return;
      if (result.code != 0 && !is_unreachable(result.err)) kubectl::fail("logs", result);
      try {
        if (result.code == 0 && !still_runs(job, pod)) return;
        if (result.code == 0) answered = Clock::now();
      } catch (const RunnerUnreachable&) {
      }
      if (Clock::now() - answered > kSilent)
        throw RunnerUnreachable(fmt::format("logs: the API server has not answered for {} minutes: {}",
                                      std::chrono::minutes(kSilent).count(), kubectl_complaint(result.err)));
      if (result.code != 0)
        kubectl::note_once("logs: the connection to the API server is lost; trying again until it answers");
      std::this_thread::sleep_for(pause);
      if (!sink("")) return;
    }
  }

  static bool still_runs(const Job& job, const NamedPod& pod) {
    for (const NamedPod& each : pods_of_job(job, true))
      if (each.uid == pod.uid) return each.runs && each.pod.attempt == pod.pod.attempt;
    return false;
  }

  // The pod of a replica; of one that is followed, when it has begun.
  NamedPod started_pod(const Job& job, const LogOptions& options) {
    const auto deadline = Clock::now() + kStarted;
    std::vector<NamedPod> all;
    for (bool first = true;; first = false, wait_for_change()) {
      try {
        all = pods_of_job(job, true);
      } catch (const RunnerUnreachable&) {
        if (first || Clock::now() > deadline) throw;
      }
      const auto found = std::find_if(all.rbegin(), all.rend(), [&](const NamedPod& each) {
        return options.pod.empty() ? each.pod.index == options.replica : each.name == options.pod;
      });
      if (found != all.rend() && (found->pod.phase != PodPhase::pending || !options.follow)) return *found;
      if (options.replica >= job.spec.replicas)
        throw_error("logs: {} has {} replicas, from 0 on; there is no replica {}", job.name, job.spec.replicas,
                    options.replica);
      if (!options.follow)
        throw_error("logs: the pod of replica {} of {} is not there; it was not made yet, or is removed already",
                    options.replica, job.name);
      if (Clock::now() > deadline)
        throw IoError(fmt::format("logs: the pod of replica {} of {} has not begun in {} minutes{}", options.replica,
                                  job.name, std::chrono::minutes(kStarted).count(),
                                  found == all.rend() ? "" : ": " + found->pod.kubectl_status));
    }
  }
};

}  // namespace

std::unique_ptr<Runner> make_kubernetes_runner() {
  if (detail::find_program("kubectl").empty())
    throw_error(
        "kubernetes: there is no kubectl on the PATH, through which it is reached; install it (Debian's package "
        "kubernetes-client has one), or leave out --on kubernetes to run on this machine");
  return std::make_unique<KubernetesRunner>();
}

}  // namespace lockstep
