// The Role of the documentation permits every job command.
#include "base/file.h"
#include "jobs/kubernetes/cluster.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

// The rules of the Role in docs/how-to/kubernetes.md.
ApiServer::Json documented_rules() {
  const std::string page = read_text(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/how-to/kubernetes.md");
  const std::string fence = "```yaml\n";
  const size_t begin = page.find(fence, page.find("A sufficient Role")) + fence.size();
  return parse_yaml_documents(page.substr(begin, page.find("```", begin) - begin), "the Role").at(0).value.at("rules");
}

class Role : public KubernetesCluster {
 protected:
  void SetUp() override {
    KubernetesCluster::SetUp();
    server_.set_role(documented_rules());
    for (const char* pod : {"rb-0-aaaaa", "rb-1-aaaaa"}) server_.log("default", pod, "hello");
  }

  std::string render(const std::string& kind) const {
    const std::string file = dir_.path() + "/job.yaml";
    EXPECT_EQ(run_lockstep({"render", "kubernetes", "--kind", kind, "--set", "name=rb", "--set", "hosts_count=2",
                            "--set", "network_policy=true", "-o", file})
                  .exit_code,
              0);
    return file;
  }

  // Runs a command that must succeed and report no missing right. Returns its standard output.
  std::string allowed(const Words& arguments) const {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << fmt::format("{}: {}{}", fmt::join(arguments, " "), result.out, result.err);
    EXPECT_FALSE(contains(result.err, "forbidden")) << fmt::format("{}: {}", fmt::join(arguments, " "), result.err);
    return result.out;
  }

  Json add_pod(const std::string& kind, int index, const std::string& phase, const Json& state) {
    Json pod = make_pod("rb", index, fmt::format("rb-{}-aaaaa", index), phase, state, true);
    if (kind == "jaxjob")
      pod["metadata"]["labels"] = {{"training.kubeflow.org/job-name", "rb"},
                                   {"training.kubeflow.org/replica-index", fmt::format("{}", index)}};
    return server_.put(pod);
  }
};

TEST_F(Role, IsEnoughForEveryCommand) {
  for (const std::string kind : {"indexed-job", "jaxjob"}) {
    SCOPED_TRACE(kind);
    const std::string file = render(kind);
    allowed({"apply", "--dry-run=server", "-f", file});
    allowed({"apply", "-f", file});
    for (const int i : {0, 1}) add_pod(kind, i, "Running", running());
    Json job = server_.get(kind == "jaxjob" ? "jaxjobs" : "jobs", "default", "rb");
    job["status"]["conditions"] = Json::array({{{"type", "Created"}, {"status", "True"}}});
    server_.put(job);
    allowed({"apply", "-f", file});
    for (const Words& each : {Words{"jobs"}, {"pods"}, {"events"}, {"job/rb", "-o", "yaml"}, {"pods", "-o", "wide"}})
      allowed(Words{"get"} + each);
    allowed({"describe", "rb"});
    allowed({"describe", "pod/rb-0-aaaaa"});
    allowed({"events", "rb"});
    EXPECT_EQ(allowed({"logs", "rb"}), "hello\n");
    EXPECT_TRUE(contains(allowed({"logs", "rb", "--all-replicas"}), "hello\n"));
    allowed({"suspend", "rb"});
    allowed({"resume", "rb"});
    for (const int i : {0, 1}) add_pod(kind, i, "Succeeded", ended(0, "Completed"));
    EXPECT_TRUE(contains(allowed({"logs", "-f", "rb"}), "hello\n"));
    allowed({"wait", "rb", "--for=condition=Created"});
    allowed({"delete", "-f", file});
    for (const char* resource : {"jobs", "jaxjobs", "services", "secrets", "networkpolicies"})
      EXPECT_TRUE(server_.get(resource, "default", "rb").is_null()) << resource;
    EXPECT_TRUE(server_.get("secrets", "default", "rb-token").is_null());
  }
}

TEST_F(Role, IsEnoughForWhatKubectlApplied) {
  const std::string file = render("indexed-job");
  for (const Words& remove : {Words{"delete", "-f", file}, Words{"delete", "rb"}}) {
    const ProgramResult applied = kubectl({"apply", "-f", file});
    ASSERT_EQ(applied.code, 0) << applied.err;
    allowed(remove);
    EXPECT_TRUE(server_.get("secrets", "default", "rb-token").is_null());
    EXPECT_TRUE(server_.get("services", "default", "rb").is_null());
  }
}

TEST_F(Role, IsEnoughForSubmit) {
  for (const std::string kind : {"indexed-job", "jaxjob"}) {
    allowed({"submit", "--kind", kind, "--name", "sj", "--", "train"});
    EXPECT_FALSE(server_.get("secrets", "default", "sj-token").is_null());
    allowed({"delete", "sj"});
    EXPECT_TRUE(server_.get("secrets", "default", "sj-token").is_null());
  }
}

// Without a rule, the command that needs it fails: the API server of this test does evaluate the Role.
TEST_F(Role, AMissingRuleIsAnError) {
  Json rules = documented_rules();
  for (Json& rule : rules)
    if (rule["resources"].dump().find("secrets") != std::string::npos) rule["verbs"] = {"get"};
  server_.set_role(rules);
  const auto result = run({"apply", "-f", render("indexed-job")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "User \"u\" cannot create resource \"secrets\"")) << result.err;
}

}  // namespace
}  // namespace lockstep
