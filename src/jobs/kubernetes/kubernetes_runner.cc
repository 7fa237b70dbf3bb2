#include "jobs/kubernetes/kubernetes_runner.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "cluster/token.h"
#include "data/process.h"
#include "jobs/child.h"
#include "jobs/kubernetes/companions.h"
#include "jobs/kubernetes/objects.h"
#include "jobs/run_program.h"

extern char** environ;

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr auto kAnswer = std::chrono::seconds(60);   // of the API server
constexpr auto kRemoved = std::chrono::minutes(10);  // pods have their own time to end
constexpr auto kStarted = std::chrono::minutes(10);  // a pod whose image is fetched, on a node that is made

const char* resource_of(JobKind kind) { return kind == JobKind::jax_job ? "jaxjobs.kubeflow.org" : "jobs.batch"; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool says(const ProgramResult& result, const char* words) { return result.err.find(words) != std::string::npos; }

[[noreturn]] void fail(const Words& words, const ProgramResult& result) {
  const bool unreachable = says(result, "refused") || says(result, "Unable to connect") ||
                           says(result, "no such host") || says(result, "no configuration has been provided");
  const bool forbidden = says(result, "orbidden");
  throw IoError(fmt::format(
      "kubectl {}: {}{}", words.at(0),
      result.err.empty() ? fmt::format("exit code {}", result.code) : first_line(result.err),
      unreachable
          ? "; `kubectl config current-context` tells which cluster is meant, and KUBECONFIG chooses another file"
      : forbidden ? "; `kubectl auth can-i --list` tells what you may do there"
                  : ""));
}

ProgramResult kubectl(const Words& words, const std::string& input = {}, std::chrono::milliseconds deadline = kAnswer) {
  Words argv = {"kubectl"};
  argv.insert(argv.end(), words.begin(), words.end());
  return run_program(argv, input, deadline);
}

ProgramResult ask(const Words& words, const std::string& input = {}, std::chrono::milliseconds deadline = kAnswer) {
  ProgramResult result = kubectl(words, input, deadline);
  if (result.code != 0) fail(words, result);
  return result;
}

// Returns what kubectl says, a line for each object.
std::string kubectl_apply(const std::string& text, const std::string& space) {
  return ask({"apply", "-f", "-", "-n", space}, text).out;
}

Json json_of(const Words& words, const std::string& text) {
  try {
    const JsonLimits limits{.bytes = size_t{256} << 20, .values = 20'000'000};
    return parse_json<Json>(text, "what it printed", limits);
  } catch (const Error& error) {
    throw IoError(fmt::format("kubectl {}: {}", words.at(0), error.what()));
  }
}

// Throws as fail() does; null where there is no such object, and where the cluster does not know the kind.
Json find_object(JobKind kind, const std::string& space, const std::string& name) {
  const Words words = {"get", resource_of(kind), name, "-n", space, "-o", "json"};
  const ProgramResult result = kubectl(words);
  if (result.code != 0 &&
      (says(result, "NotFound") || says(result, "not found") || says(result, "have a resource type")))
    return {};
  if (result.code != 0) fail(words, result);
  return json_of(words, result.out);
}

std::string selector_of(const Job& job) {
  return (job.kind == JobKind::jax_job ? "training.kubeflow.org/job-name=" : "job-name=") + job.name;
}

std::vector<NamedPod> named_pods(const Job& job) {
  const Words words = {"get", "pods", "-n", job.space, "-l", selector_of(job), "-o", "json"};
  return pods_of_list(json_of(words, ask(words).out));
}

// Copies what a program prints to the sink until it ends or the sink has enough. Returns what it said on standard
// error, and its exit code.
ProgramResult copy_output(const Words& argv, const std::function<bool(std::string_view)>& sink) {
  ChildSpec spec{.argv = argv};
  for (char** each = environ; *each; ++each) spec.environment.emplace_back(*each);
  Child child(spec);
  ProgramResult result;
  std::array<char, 16384> chunk;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    std::array<pollfd, 2> streams = {pollfd{out_open ? child.out().get() : -1, POLLIN, 0},
                                     pollfd{err_open ? child.err().get() : -1, POLLIN, 0}};
    if (::poll(streams.data(), streams.size(), 1000) < 0 && errno != EINTR) break;
    const auto take = [&](const pollfd& stream, bool& open, const auto& use) {
      if (!open || stream.revents == 0) return true;
      const ssize_t n = ::read(stream.fd, chunk.data(), chunk.size());
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) open = false;
      return n <= 0 || use(std::string_view(chunk.data(), static_cast<size_t>(n)));
    };
    take(streams[1], err_open, [&](std::string_view text) {
      if (result.err.size() < chunk.size()) result.err += text;
      return true;
    });
    if (!take(streams[0], out_open, sink)) return {};  // the child is ended on the way out
  }
  std::optional<Ending> ending;
  for (int i = 0; i < 2000 && !(ending = child.ended()); ++i) ::poll(nullptr, 0, 5);
  if (!ending) throw IoError("kubectl: it does not end; it was killed");
  result.code = ending->signal > 0 ? 128 + ending->signal : ending->code;
  return result;
}

class KubernetesRunner final : public Runner {
 public:
  std::string apply(Job job, const std::function<void(std::string_view)>& note) override {
    job.manifest["metadata"]["name"] = job.name;  // generateName has become one
    job.manifest["metadata"].erase("generateName");
    const std::string out = kubectl_apply(job.manifest.dump(), job.space);
    make_companions(job, note);
    const std::string line = first_line(out);
    const size_t space = line.rfind(' ');
    return space == line.npos ? line : line.substr(space + 1);
  }

  Job get(const std::string& space, const std::string& name) override {
    for (const JobKind kind : {JobKind::jax_job, JobKind::indexed_job})
      if (const Json object = find_object(kind, space, name); is_job_object(object)) return job_of_object(object);
    std::vector<std::string> names;
    for (const Job& job : list(space)) names.push_back(job.name);
    throw_error("job: there is no \"{}\" in the namespace {}; there {}", name, space,
                names.empty() ? "is none" : fmt::format("are {}", fmt::join(names, ", ")));
  }

  std::vector<Pod> pods(const Job& job) override {
    std::vector<Pod> out;
    for (const NamedPod& each : named_pods(job)) out.push_back(each.pod);
    return out;
  }

  std::vector<JobEvent> events(const Job& job) override {
    const Words words = {"get", "events", "-n", job.space, "-o", "json"};
    std::vector<std::string> objects = {
        fmt::format("{}/{}", job.kind == JobKind::jax_job ? "jaxjob" : "job", job.name)};
    for (const NamedPod& each : named_pods(job)) objects.push_back("pod/" + each.name);
    std::vector<JobEvent> out = events_of_list(json_of(words, ask(words).out));
    std::erase_if(out,
                  [&](const JobEvent& event) { return std::ranges::find(objects, event.object) == objects.end(); });
    return out;
  }

  void set_suspend(const Job& job, bool suspend) override {
    const Json patch = job.kind == JobKind::jax_job ? Json{{"spec", {{"runPolicy", {{"suspend", suspend}}}}}}
                                                    : Json{{"spec", {{"suspend", suspend}}}};
    ask({"patch", resource_of(job.kind), job.name, "-n", job.space, "--type", "merge", "-p", patch.dump()});
  }

  void remove(const Job& job) override {
    ask({"delete", resource_of(job.kind), job.name, "-n", job.space, "--ignore-not-found", "--cascade=foreground",
         "--wait=true", fmt::format("--timeout={}s", std::chrono::seconds(kRemoved).count())},
        {}, kRemoved + kAnswer);
  }

  std::vector<Job> list(const std::string& space) override {
    std::vector<Job> out;
    for (const JobKind kind : {JobKind::jax_job, JobKind::indexed_job}) {
      Words words = {"get", resource_of(kind), "-o", "json"};
      if (space.empty())
        words.push_back("--all-namespaces");
      else
        words.insert(words.end(), {"-n", space});
      const ProgramResult result = kubectl(words);
      if (result.code != 0 && kind == JobKind::jax_job && says(result, "have a resource type")) continue;
      if (result.code != 0) fail(words, result);
      const Json found = json_of(words, result.out);
      for (const Json& each : found.at("items"))
        if (is_job_object(each)) out.push_back(job_of_object(each));
    }
    std::ranges::stable_sort(out, {}, &Job::name);
    return out;
  }

  void logs(const Job& job, const LogOptions& options, const std::function<bool(std::string_view)>& sink) override {
    const NamedPod pod = started_pod(job, options);
    Words words = {"kubectl", "logs", pod.name, "-n", job.space};
    if (!pod.container.empty()) words.insert(words.end(), {"-c", pod.container});
    if (options.previous && pod.restarted)
      words.push_back("--previous");
    else if (options.previous && !pod.before.empty())
      words[2] = pod.before;
    else if (options.previous)
      throw_error("logs: replica {} of {} has run once only; there is no earlier attempt", options.replica, job.name);
    if (options.follow && !options.previous) words.push_back("--follow");
    if (options.tail) words.push_back(fmt::format("--tail={}", *options.tail));
    const ProgramResult result = copy_output(words, sink);
    if (result.code != 0) fail({"logs"}, result);
  }

  void wait_for_change() override { std::this_thread::sleep_for(std::chrono::seconds(1)); }

 private:
  // A file may hold them too, but only the job comes here, and one that is applied alone needs them as well.
  static void make_companions(const Job& job, const std::function<void(std::string_view)>& note) {
    const Json object = find_object(job.kind, job.space, job.name);
    if (!is_job_object(object)) return;  // somebody has removed it meanwhile
    for (const Json& each : companions_of(object, make_token())) {
      const std::string kind = each["kind"], name = each["metadata"]["name"];
      if (kubectl({"get", kind, name, "-n", job.space, "-o", "name"}).code == 0) continue;
      kubectl_apply(each.dump(), job.space);
      note(fmt::format("the {} {} was not there and is made; it goes with the job", kind, name));
    }
  }

  // The pod of a replica; of one that is followed, when it has begun.
  NamedPod started_pod(const Job& job, const LogOptions& options) {
    const auto deadline = std::chrono::steady_clock::now() + kStarted;
    for (;; wait_for_change()) {
      const std::vector<NamedPod> all = named_pods(job);
      const auto found =
          std::ranges::find_if(all, [&](const NamedPod& each) { return each.pod.index == options.replica; });
      if (found != all.end() && (found->pod.phase != PodPhase::pending || !options.follow)) return *found;
      if (options.replica >= job.spec.replicas)
        throw_error("logs: {} has {} replicas, from 0 on; there is no replica {}", job.name, job.spec.replicas,
                    options.replica);
      if (!options.follow)
        throw_error("logs: the pod of replica {} of {} is not there; it was not made yet, or is removed already",
                    options.replica, job.name);
      if (std::chrono::steady_clock::now() > deadline)
        throw IoError(fmt::format("logs: the pod of replica {} of {} has not begun in {} minutes{}", options.replica,
                                  job.name, std::chrono::minutes(kStarted).count(),
                                  found == all.end() || found->pod.reason.empty() ? "" : ": " + found->pod.reason));
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
