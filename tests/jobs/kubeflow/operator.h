// Runs a JAXJob by the rules of Kubeflow's training operator, with processes in the pods of a PodNetwork. Like the
// operator, it creates no Secret, restarts each replica independently, and considers only exit codes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jobs/kubeflow/pod_network.h"
#include "jobs/model/manifest.h"

namespace lockstep {

class Operator {
 public:
  struct Image {
    Words entrypoint;   // used if the manifest has no command; `lockstep` is the program of this build
    Words environment;  // NAME=VALUE
  };

  Operator(Job job, Image image, PodNetwork& network)
      : job_(std::move(job)), image_(std::move(image)), network_(network), replicas_(count()) {}
  ~Operator() {
    for (Replica& replica : replicas_) replica.process.reset();
    for (size_t i = 0; i < replicas_.size(); ++i) network_.remove(name(i));
  }

  // Runs the job to its end and returns "Succeeded", or "Failed" with the reason. Calls `poll` repeatedly meanwhile.
  std::string run(const std::function<void()>& poll = [] {}) {
    for (size_t i = 0; i < replicas_.size(); ++i) start(i, true);
    std::string state;
    const bool over = comes_true(
        [&] {
          poll();
          state = reconcile();
          return !state.empty();
        },
        std::chrono::seconds(100), std::chrono::milliseconds(2));
    return over ? state : "does not end";
  }

  RunningProgram& process(size_t i) { return *replicas_[i].process; }
  bool is_running(size_t i) const { return replicas_[i].process != nullptr; }
  // The exit codes of all ended processes of a replica.
  const std::vector<int>& codes(size_t i) const { return replicas_[i].codes; }
  // The output of all ended processes of a replica.
  const std::string& log(size_t i) const { return replicas_[i].log; }
  std::string logs() const {
    std::string out;
    for (size_t i = 0; i < replicas_.size(); ++i) out += "--- " + name(i) + "\n" + replicas_[i].log;
    return out;
  }

 private:
  struct Replica {
    std::unique_ptr<RunningProgram> process;
    std::vector<int> codes;
    std::string log;
    bool succeeded = false;
  };

  size_t count() const { return static_cast<size_t>(job_.spec.replicas); }
  std::string name(size_t i) const { return pod_name(job_, static_cast<int>(i)); }

  Words variables(size_t i) const {
    const Container& container = job_.spec.container;
    Words out = Words{"PATH=/usr/bin:/bin", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443"} +
                image_.environment;
    for (const auto& [key, value] : replica_env(job_, static_cast<int>(i))) out.push_back(key + "=" + value);
    return out + Words{"PYTHONUNBUFFERED=1", "COORDINATOR_PORT=" + std::to_string(container.port),
                       "COORDINATOR_ADDRESS=" + name(0), "NUM_PROCESSES=" + std::to_string(count()),
                       "PROCESS_ID=" + std::to_string(i)};
  }

  void start(size_t i, bool new_pod) {
    if (new_pod) {
      network_.remove(name(i));
      network_.add(name(i));
    }
    const Container& container = job_.spec.container;
    Words command = container.command.empty() ? image_.entrypoint : container.command;
    if (command[0] == "lockstep") command[0] = program_path();
    replicas_[i].process =
        std::make_unique<RunningProgram>(network_.in(name(i)) + variables(i) + command + container.args);
  }

  // The exit code if the process has ended; records it with the output.
  std::optional<int> collect_exit(Replica& replica) {
    if (!replica.process || !replica.process->ended()) return std::nullopt;
    const RunningProgram::Result result = replica.process->wait();
    replica.process.reset();
    replica.codes.push_back(result.exit_code);
    replica.log += result.out + result.err;
    return result.exit_code;
  }

  std::string reconcile() {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const std::optional<int> code = collect_exit(replicas_[i]);
      if (!code) continue;
      if (*code == 0) {
        replicas_[i].succeeded = true;
        continue;
      }
      const RestartPolicy policy = job_.spec.restart;
      if (policy == RestartPolicy::never || (policy == RestartPolicy::exit_code && *code < 128))
        return "Failed: " + name(i) + " ended with " + std::to_string(*code);
      if (job_.spec.backoff_limit && ++restarts_ > *job_.spec.backoff_limit) return "Failed: backoff limit";
      start(i, policy ==
                   RestartPolicy::exit_code);  // with other policies the kubelet restarts the container in the same pod
    }
    for (const Replica& replica : replicas_)
      if (!replica.succeeded) return "";
    return "Succeeded";
  }

  const Job job_;
  const Image image_;
  PodNetwork& network_;
  std::vector<Replica> replicas_;
  int64_t restarts_ = 0;
};

}  // namespace lockstep
