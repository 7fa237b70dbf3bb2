// Fixture: the program and the real kubectl with an ApiServer of their own.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/os/process.h"
#include "jobs/kubernetes/api_server.h"
#include "support/program.h"
#include "support/text.h"
#include "support/text_file.h"

namespace lockstep {

class KubernetesCluster : public testing::Test {
 protected:
  using Json = ApiServer::Json;

  void SetUp() override {
    if (find_program("kubectl").empty()) GTEST_SKIP() << "no kubectl";
    use_namespace("");
  }

  void use_namespace(const std::string& space) { config_ = server_.write_config(dir_.path(), space); }

  Words words(const Words& arguments) const {
    return Words{"/usr/bin/env",
                 "-u",
                 "KUBERNETES_SERVICE_HOST",
                 "HOME=" + dir_.path(),
                 "KUBECONFIG=" + config_,
                 "LOCKSTEP_ON=kubernetes",
                 program_path()} +
           arguments;
  }
  RunningProgram::Result run(const Words& arguments) const { return RunningProgram(words(arguments)).wait(); }

  // kubectl itself, as a user runs it.
  ProgramResult kubectl(const Words& arguments) const {
    return run_program(Words{"/usr/bin/env", "-u", "KUBERNETES_SERVICE_HOST", "HOME=" + dir_.path(),
                             "KUBECONFIG=" + config_, "kubectl"} +
                       arguments);
  }

  // Runs a command that must succeed. Returns its standard output.
  std::string out_of(const Words& arguments) const {
    const RunningProgram::Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << fmt::format("{}: {}{}", fmt::join(arguments, " "), result.out, result.err);
    return result.out;
  }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  // An Indexed Job of two replicas.
  Json make_job(const std::string& name, const Json& status = Json::object(), const std::string& space = "default") {
    return server_.put({{"apiVersion", "batch/v1"},
                        {"kind", "Job"},
                        {"metadata", {{"name", name}, {"namespace", space}}},
                        {"spec",
                         {{"completionMode", "Indexed"},
                          {"completions", 2},
                          {"parallelism", 2},
                          {"backoffLimit", 0},
                          {"template", {{"spec", {{"containers", {{{"name", "lockstep"}, {"image", "x"}}}}}}}}}},
                        {"status", status}});
  }

  Json make_pod(const std::string& job, int index, const std::string& name, const std::string& phase, const Json& state,
                bool ready = false, const std::string& created = "2026-01-01T00:00:00Z") {
    const Json container = {{"name", "lockstep"}, {"image", "x"},      {"imageID", ""},
                            {"ready", ready},     {"restartCount", 0}, {"state", state}};
    return server_.put(
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata",
          {{"name", name},
           {"namespace", "default"},
           {"creationTimestamp", created},
           {"labels", {{"job-name", job}, {"batch.kubernetes.io/job-completion-index", fmt::format("{}", index)}}}}},
         {"spec", {{"containers", {{{"name", "lockstep"}, {"image", "x"}}}}}},
         {"status", {{"phase", phase}, {"containerStatuses", {container}}}}});
  }

  // The event of a controller that could not create a pod of the job.
  Json refuse_pods(const Json& job, const std::string& reason, const std::string& message) {
    return server_.put({{"apiVersion", "v1"},
                        {"kind", "Event"},
                        {"metadata", {{"name", "refused"}, {"namespace", job["metadata"]["namespace"]}}},
                        {"type", "Warning"},
                        {"reason", reason},
                        {"message", message},
                        {"lastTimestamp", "2026-01-01T00:00:02Z"},
                        {"involvedObject",
                         {{"kind", job["kind"]},
                          {"name", job["metadata"]["name"]},
                          {"namespace", job["metadata"]["namespace"]},
                          {"uid", job["metadata"]["uid"]}}}});
  }

  static Json running() { return {{"running", {{"startedAt", "2026-01-01T00:00:05Z"}}}}; }
  static Json waiting(const char* reason) { return {{"waiting", {{"reason", reason}}}}; }
  static Json ended(int code, const char* reason) {
    return {{"terminated",
             {{"exitCode", code},
              {"reason", reason},
              {"startedAt", "2026-01-01T00:00:05Z"},
              {"finishedAt", "2026-01-01T00:01:00Z"}}}};
  }

  const TempDir dir_;
  ApiServer server_;
  std::string config_;
};

}  // namespace lockstep
