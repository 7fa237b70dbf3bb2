// Runs kubectl, which has the user's clusters and credentials. Prints each warning of the API server once on standard
// error. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/run_program.h"
#include "lockstep/error.h"

namespace lockstep {

// The user has no permission for the request (HTTP 403).
class Forbidden : public IoError {
 public:
  using IoError::IoError;
};

namespace kubectl {

using Words = std::vector<std::string>;

inline constexpr auto kAnswerTimeout = std::chrono::seconds(60);

// Whether the standard error contains `text`.
bool stderr_contains(const ProgramResult& result, const char* text);

// Throws RunnerUnreachable (see runner.h), Forbidden or IoError with kubectl's message. REQUIRES: kubectl failed.
[[noreturn]] void throw_failure(const std::string& verb, const ProgramResult& result);

// Runs kubectl with these arguments. Throws RunnerUnreachable at the deadline; other failures are in the result.
ProgramResult run(const Words& words, const std::string& input = {},
                  std::chrono::milliseconds deadline = kAnswerTimeout);

// Like run(), but throws as throw_failure() if kubectl fails.
ProgramResult run_or_throw(const Words& words, const std::string& input = {},
                           std::chrono::milliseconds deadline = kAnswerTimeout);

// Whether the API server has this resource, such as jaxjobs of kubeflow.org.
bool has_resource(const std::string& group, const std::string& resource);

// Parses the output of `kubectl get ... -o json`. Throws IoError if it is not JSON.
nlohmann::ordered_json parse_output(const std::string& text);

// The arguments of `kubectl get ... -o json`. An empty `namespace_name` is all namespaces.
Words get_words(const std::string& resource, const std::string& namespace_name, const Words& more = {});
nlohmann::ordered_json get_list(const std::string& resource, const std::string& namespace_name, const Words& more = {});
// Null if the object or the resource type does not exist.
nlohmann::ordered_json find_object(const std::string& resource, const std::string& namespace_name,
                                   const std::string& name);

// Runs kubectl and passes its output to `sink` until it ends or `sink` returns false. The result has no output.
ProgramResult stream(const Words& words, const std::function<bool(std::string_view)>& sink);

// Prints `lockstep: note: ...` on standard error, unless the same text was printed before.
void note_once(const std::string& text);

// The namespace of kubectl's current context; "default" if it has none.
std::string context_namespace();

// What kubectl does with an object: applies it, or checks it on the server without storing it.
enum class ApplyMode { store, server_dry_run };

// Apply or delete an object of any kind in a namespace. Return kubectl's output without the newline, such as
// "configmap/x created"; "" if there was nothing to delete.
std::string apply_object(const nlohmann::ordered_json& object, const std::string& namespace_name,
                         ApplyMode mode = ApplyMode::store);
std::string delete_object(const nlohmann::ordered_json& object, const std::string& namespace_name,
                          bool ignore_not_found);

}  // namespace kubectl
}  // namespace lockstep
