// Objects that were rendered with a job are deleted with it, whichever command applied them.
#include <algorithm>

#include "base/file.h"
#include "base/text_bytes.h"
#include "jobs/kubernetes/cluster.h"
#include "jobs/model/yaml_document.h"

namespace lockstep {
namespace {

class Owner : public KubernetesCluster {
 protected:
  std::string render(const Words& more = {}) const {
    const std::string file = dir_.path() + "/job.yaml";
    EXPECT_EQ(
        run_lockstep(Words{"render", "kubernetes", "--set", "name=rb", "--set", "hosts_count=2", "-o", file} + more)
            .exit_code,
        0);
    return file;
  }

  // As after `kubectl apply`: nothing owns the Service and the Secret.
  void apply_with_kubectl(const std::string& file) {
    for (const YamlDocument& each : parse_yaml_documents(read_text(file), file)) server_.put(each.value);
  }

  bool exists(const std::string& resource, const std::string& name) const {
    return !server_.get(resource, "default", name).is_null();
  }
};

TEST_F(Owner, ApplyMakesTheJobTheOwner) {
  for (const std::string& kind : {std::string("indexed-job"), std::string("jaxjob")}) {
    SCOPED_TRACE(kind);
    const std::string file = render({"--kind", kind, "--set", "network_policy=true"});
    const auto applied = run({"apply", "-f", file});
    EXPECT_EQ(applied.exit_code, 0) << applied.err;
    const Json job = server_.get(kind == "jaxjob" ? "jaxjobs" : "jobs", "default", "rb");
    for (const auto& [resource, name] : {std::pair("secrets", "rb-token"), std::pair("networkpolicies", "rb"),
                                         std::pair("services", kind == "jaxjob" ? "" : "rb")}) {
      if (!*name) continue;
      const Json object = server_.get(resource, "default", name);
      ASSERT_TRUE(object.contains("/metadata/ownerReferences/0/uid"_json_pointer)) << resource;
      EXPECT_EQ(object["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]) << resource;
    }
    // Applying it again changes nothing.
    EXPECT_EQ(run({"apply", "-f", file}).exit_code, 0);
    // The file's objects are gone with the job, which is no error.
    const auto deleted = run({"delete", "-f", file});
    EXPECT_EQ(deleted.exit_code, 0) << deleted.err;
    for (const auto& [resource, name] : {std::pair("secrets", "rb-token"), std::pair("networkpolicies", "rb"),
                                         std::pair("services", "rb"), std::pair("jobs", "rb")})
      EXPECT_FALSE(exists(resource, name)) << resource;
  }
}

TEST_F(Owner, ClaimsOfVolumesStayWithoutTheJob) {
  const std::string file = render();
  FileSystem::real().append(
      file, text_bytes("---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: checkpoints\n  labels:\n"
                       "    app.kubernetes.io/name: lockstep\n    app.kubernetes.io/instance: rb\n"
                       "spec:\n  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: 1Gi}}\n"));
  const auto applied = run({"apply", "-f", file});
  EXPECT_EQ(applied.exit_code, 0) << applied.err;
  out_of({"delete", "rb"});
  EXPECT_FALSE(exists("secrets", "rb-token"));
  EXPECT_TRUE(exists("persistentvolumeclaims", "checkpoints"));
}

TEST_F(Owner, DeleteRemovesWhatKubectlApplied) {
  apply_with_kubectl(render({"--set", "network_policy=true"}));
  EXPECT_EQ(out_of({"delete", "rb"}), "job.batch \"rb\" deleted from default namespace\n");
  for (const auto& [resource, name] : {std::pair("secrets", "rb-token"), std::pair("networkpolicies", "rb"),
                                       std::pair("services", "rb"), std::pair("jobs", "rb")})
    EXPECT_FALSE(exists(resource, name)) << resource;
}

TEST_F(Owner, DeleteKeepsObjectsOfOthers) {
  apply_with_kubectl(render({"--set", "token_secret=shared"}));
  server_.put({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "shared"}}}});
  out_of({"delete", "rb"});
  EXPECT_TRUE(exists("secrets", "shared"));
  EXPECT_FALSE(exists("services", "rb"));
}

TEST_F(Owner, WithoutPermissionTheJobStillStarts) {
  server_.forbid("patch", "secrets");
  const auto applied = run({"apply", "-f", render()});
  EXPECT_EQ(applied.exit_code, 0) << applied.err;
  EXPECT_TRUE(contains(applied.err, "note: kubectl patch: ")) << applied.err;
  EXPECT_TRUE(exists("jobs", "rb"));
}

}  // namespace
}  // namespace lockstep
