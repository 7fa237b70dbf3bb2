#include "jobs/kubernetes/kubectl.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/json.h"
#include "base/os/environment.h"
#include "base/print_stderr.h"
#include "jobs/child.h"
#include "jobs/kubernetes/kubectl_text.h"
#include "jobs/runner.h"

namespace lockstep::kubectl {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kDeleteTimeout = std::chrono::minutes(10);  // finalizers may take long
constexpr size_t kMaxStderrBytes = 64 * 1024;

std::string without_newline(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_missing(const ProgramResult& result) {
  return stderr_contains(result, "(NotFound)") || stderr_contains(result, "not found") ||
         stderr_contains(result, "have a resource type");
}

// Reads available data of a stream and passes it to `use`. Returns what `use` returns; true if there is no data.
bool read_available(const pollfd& stream, bool& open, const std::function<bool(std::string_view)>& use) {
  if (!open || stream.revents == 0) return true;
  std::array<char, 16384> chunk;
  const ssize_t n = ::read(stream.fd, chunk.data(), chunk.size());
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) open = false;
  return n <= 0 || use(std::string_view(chunk.data(), static_cast<size_t>(n)));
}

// Whether kubectl tried its default address because its configuration has no cluster. A retry does not help.
bool has_no_cluster(const ProgramResult& failed) {
  if (!stderr_contains(failed, "localhost:8080")) return false;
  const ProgramResult view = run({"config", "view", "-o", "jsonpath={.clusters}"});
  return view.code == 0 && (view.out.empty() || view.out == "null" || view.out == "[]");
}

}  // namespace

bool stderr_contains(const ProgramResult& result, const char* text) {
  return result.err.find(text) != std::string::npos;
}

void note_once(const std::string& text) {
  static std::set<std::string> printed;
  if (printed.insert(text).second) print_stderr("lockstep: note: {}\n", text);
}

void throw_failure(const std::string& verb, const ProgramResult& result) {
  const std::string message = kubectl_error_message(result.err);
  const std::string text =
      fmt::format("kubectl {}: {}", verb, message.empty() ? fmt::format("exit code {}", result.code) : message);
  const char* const kWhere =
      "; check the cluster with `kubectl config current-context`, or set KUBECONFIG to another file";
  if (is_forbidden(result.err)) throw Forbidden(text + "; `kubectl auth can-i --list` shows your permissions");
  if (stderr_contains(result, "no configuration has been provided")) throw IoError(text + kWhere);
  if (is_unreachable(result.err) && has_no_cluster(result))
    throw IoError(text +
                  "; kubectl knows no cluster: set KUBECONFIG to the file of yours, or copy it to ~/.kube/config");
  if (is_unreachable(result.err)) throw RunnerUnreachable(text + kWhere);
  throw IoError(text);
}

ProgramResult run(const Words& words, const std::string& input, std::chrono::milliseconds deadline) {
  Words argv = {"kubectl"};
  argv.insert(argv.end(), words.begin(), words.end());
  ProgramResult result;
  try {
    result = run_program(argv, {.input = input, .deadline = deadline});
  } catch (const IoError& error) {
    throw RunnerUnreachable(error.what());
  }
  for (const std::string& each : kubectl_warnings(result.err)) note_once("kubectl: " + each);
  return result;
}

ProgramResult run_or_throw(const Words& words, const std::string& input, std::chrono::milliseconds deadline) {
  ProgramResult result = run(words, input, deadline);
  if (result.code != 0) throw_failure(words.at(0), result);
  return result;
}

bool has_resource(const std::string& group, const std::string& resource) {
  const std::string names = "\n" + run_or_throw({"api-resources", "--api-group=" + group, "-o", "name"}).out;
  return names.find(fmt::format("\n{}.{}\n", resource, group)) != names.npos;
}

Json parse_output(const std::string& text) {
  try {
    const JsonLimits limits{.bytes = size_t{256} << 20, .values = 20'000'000};
    return parse_json<Json>(text, "its output", limits);
  } catch (const Error& error) {
    throw IoError(fmt::format("kubectl get: {}; check that `kubectl version` works", error.what()));
  }
}

Words get_words(const std::string& resource, const std::string& namespace_name, const Words& more) {
  Words words = {"get", resource};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"-o", "json", "--request-timeout=30s"});
  if (namespace_name.empty())
    words.push_back("--all-namespaces");
  else
    words.insert(words.end(), {"-n", namespace_name});
  return words;
}

Json get_list(const std::string& resource, const std::string& namespace_name, const Words& more) {
  return parse_output(run_or_throw(get_words(resource, namespace_name, more)).out);
}

Json find_object(const std::string& resource, const std::string& namespace_name, const std::string& name) {
  const ProgramResult result = run(get_words(resource, namespace_name, {name}));
  if (result.code != 0 && is_missing(result)) return {};
  if (result.code != 0) throw_failure("get", result);
  return parse_output(result.out);
}

ProgramResult stream(const Words& words, const std::function<bool(std::string_view)>& sink) {
  ChildSpec spec{.argv = {"kubectl"}, .environment = environment_strings(own_environment())};
  spec.argv.insert(spec.argv.end(), words.begin(), words.end());
  Child child(spec);
  ProgramResult result;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    std::array<pollfd, 2> streams = {pollfd{out_open ? child.out().get() : -1, POLLIN, 0},
                                     pollfd{err_open ? child.err().get() : -1, POLLIN, 0}};
    if (::poll(streams.data(), streams.size(), 1000) < 0 && errno != EINTR) break;
    read_available(streams[1], err_open, [&](std::string_view text) {
      if (result.err.size() < kMaxStderrBytes) result.err += text;
      return true;
    });
    if (!read_available(streams[0], out_open, sink)) return {};  // the destructor of `child` kills kubectl
  }
  std::optional<ExitStatus> exit_status;
  for (int i = 0; i < 2000 && !(exit_status = child.poll_exit()); ++i) ::poll(nullptr, 0, 5);
  if (!exit_status) throw IoError("kubectl: it closed its output but did not end, and was killed");
  result.code = exit_status->signal > 0 ? 128 + exit_status->signal : exit_status->code;
  return result;
}

std::string context_namespace() {
  const ProgramResult view = run({"config", "view", "--minify", "-o", "jsonpath={..namespace}"});
  if (view.code == 0) return view.out.empty() ? "default" : view.out;
  // Inside a pod without a kubeconfig, kubectl uses the namespace of the pod's service account.
  std::ifstream file("/var/run/secrets/kubernetes.io/serviceaccount/namespace");
  std::string namespace_name;
  return std::getline(file, namespace_name) && !namespace_name.empty() ? namespace_name : "default";
}

std::string apply_object(const Json& object, const std::string& namespace_name, ApplyMode mode) {
  Words words = {"apply", "-f", "-", "-n", namespace_name};
  if (mode == ApplyMode::server_dry_run) words.push_back("--dry-run=server");
  return without_newline(run_or_throw(words, object.dump()).out);
}

std::string delete_object(const Json& object, const std::string& namespace_name, bool ignore_not_found) {
  Words words = {"delete",
                 "-f",
                 "-",
                 "-n",
                 namespace_name,
                 "--wait=true",
                 fmt::format("--timeout={}s", std::chrono::seconds(kDeleteTimeout).count())};
  if (ignore_not_found) words.push_back("--ignore-not-found");
  return without_newline(run_or_throw(words, object.dump(), kDeleteTimeout + kAnswerTimeout).out);
}

}  // namespace lockstep::kubectl
