// Fixture for tests of the local runner: a private state folder, jobs that run shell scripts, and waits with a
// deadline. Kills all remaining processes at the end of a test.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "jobs/local/local_runner.h"
#include "jobs/local/lock.h"
#include "jobs/local/state.h"
#include "jobs/model/manifest.h"
#include "support/program.h"
#include "support/text.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

// Returns "" for a file that does not exist.
inline std::string read_if_exists(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Polls until the condition is true; returns false after a minute.
inline bool soon(const std::function<bool()>& condition) {
  return comes_true(condition, std::chrono::minutes(1), std::chrono::milliseconds(5));
}

// A manifest whose replicas run `/bin/sh -c script`.
inline Json shell_job(const std::string& name, int replicas, const std::string& script) {
  return {{"apiVersion", "kubeflow.org/v1"},
          {"kind", "JAXJob"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"runPolicy", Json::object()},
            {"jaxReplicaSpecs",
             {{"Worker",
               {{"replicas", replicas},
                {"restartPolicy", "Never"},
                {"template",
                 {{"spec",
                   {{"terminationGracePeriodSeconds", 5},
                    {"containers", Json::array({{{"name", "jax"},
                                                 {"image", "example/none:1"},
                                                 {"command", Json::array({"/bin/sh", "-c", script})}}})}}}}}}}}}}}};
}
inline Json& container_of(Json& manifest) {
  return manifest["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
}

class LocalJobs : public testing::Test {
 protected:
  LocalJobs() : state_(dir_.path() + "/state") {
    for (const char* name : {"PATH", "HOME", "ASAN_OPTIONS"})
      if (const char* value = std::getenv(name)) environment_[name] = value;
    environment_["LOCKSTEP_DAEMON_IDLE"] = "60";
    make_runner();
  }
  ~LocalJobs() override {
    // The daemon and the shims restart each other as long as the folder exists.
    soon([&] {
      kill_daemon();
      for (const std::string& folder : pod_folders()) kill_pod(PodFolder(folder));
      std::error_code ignored;
      std::filesystem::remove_all(state_, ignored);
      return !std::filesystem::exists(state_) && daemon_pid() == 0;
    });
  }

  // Creates a runner with the current environment_.
  void make_runner() {
    runner_ = make_local_runner({.state = state_, .program = program_path(), .environment = environment_});
  }
  Runner& runner() { return *runner_; }

  static Job parse(const Json& manifest) { return parse_manifests(manifest.dump(), "job.json").jobs.at(0); }
  std::string apply(const Json& manifest) {
    return runner_->apply(parse(manifest), [&](std::string_view text) { notes_.emplace_back(text); });
  }
  Job get(const std::string& name) { return runner_->get("default", name); }
  std::string state_of(const std::string& name) { return job_state(get(name)); }

  // Waits for the state. On failure, prints the events and the log of the daemon.
  void expect_state(const std::string& name, const std::string& wanted) {
    EXPECT_TRUE(soon([&] { return state_of(name) == wanted; }))
        << name << " is " << state_of(name) << "\n"
        << events_text(name) << read_if_exists(state_ + "/daemon.log");
  }
  std::string events_text(const std::string& name) {
    std::string out;
    for (const JobEvent& event : runner_->events(get(name)))
      out += event.object + " " + event.reason + ": " + event.message + "\n";
    return out;
  }
  std::string log_of(const std::string& name, int replica, LogOptions options = {}) {
    options.replica = replica;
    std::string out;
    runner_->logs(get(name), options, [&](std::string_view text) {
      out += text;
      return true;
    });
    return out;
  }

  pid_t daemon_pid() const {
    const auto holder = lock_holder(state_ + "/daemon.lock");
    return holder ? holder->pid : 0;
  }
  void kill_daemon() const {
    if (const auto holder = lock_holder(state_ + "/daemon.lock")) {
      holder->send(SIGKILL);
      is_gone_soon(holder->pid);
    }
  }
  static void kill_pod(const PodFolder& folder) {
    if (const auto shim = lock_holder(folder.lock_path())) {
      shim->send(SIGKILL);
      is_gone_soon(shim->pid);
    }
    for (const pid_t pid : find_leftover_processes(folder)) kill_leftover_process(pid, folder);
  }
  std::vector<std::string> pod_folders() const {
    std::vector<std::string> out;
    std::error_code ignored;
    for (std::filesystem::recursive_directory_iterator at(state_, ignored), end; at != end; at.increment(ignored)) {
      if (ignored) break;
      if (at->path().filename() == "spec.json") out.push_back(at->path().parent_path());
    }
    return out;
  }

  TempDir dir_;
  std::string state_;
  detail::Environment environment_;
  std::vector<std::string> notes_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace lockstep
