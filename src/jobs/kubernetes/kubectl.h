// kubectl, run as a program: it knows the user's clusters and ways to log in. Warnings of the API server are printed
// once each on standard error. Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/run_program.h"
#include "lockstep/error.h"

namespace lockstep {

// What kubectl was asked is not permitted to this user.
class Forbidden : public IoError {
 public:
  using IoError::IoError;
};

namespace kubectl {

using Words = std::vector<std::string>;

inline constexpr auto kAnswer = std::chrono::seconds(60);  // of the API server

// Whether the message contains these words.
bool says(const ProgramResult& result, const char* words);

// Throws what the result means: RunnerUnreachable (see runner.h), Forbidden or IoError, each with kubectl's message.
[[noreturn]] void fail(const std::string& verb, const ProgramResult& result);

// Throws RunnerUnreachable when it does not end in time; other failures are in the result.
ProgramResult run(const Words& words, const std::string& input = {}, std::chrono::milliseconds deadline = kAnswer);

// As run(), but a failure throws as fail() does.
ProgramResult ask(const Words& words, const std::string& input = {}, std::chrono::milliseconds deadline = kAnswer);

// What `kubectl get ... -o json` prints. Throws IoError for what is no JSON.
nlohmann::ordered_json parse(const std::string& text);

// Copies what it prints to the sink until it ends or the sink returns false. The result has no standard output.
ProgramResult stream(const Words& words, const std::function<bool(std::string_view)>& sink);

// Prints `lockstep: note: ...` on standard error, each text once.
void note_once(const std::string& text);

// The namespace of the current context, "default" where it has none.
std::string context_namespace();

// Apply and delete an object of any kind. Return what kubectl prints, without the newline: "configmap/x created";
// nothing where there was nothing to delete.
std::string apply_object(const nlohmann::ordered_json& object, const std::string& space);
std::string delete_object(const nlohmann::ordered_json& object, const std::string& space, bool ignore_not_found);

}  // namespace kubectl
}  // namespace lockstep
