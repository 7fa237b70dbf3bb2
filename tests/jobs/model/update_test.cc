#include <gtest/gtest.h>

#include "base/throws.h"
#include "jobs/model/manifests.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

TEST(ReplicaEnv, FieldsAndReferencesAreResolved) {
  const std::string text = with(kFull, "            - name: EMPTY\n", R"(            - name: ME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: SPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: INDEX
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['training.kubeflow.org/replica-index']"}}
            - {name: BOTH, value: "$(SPACE)/$(ME) $(LATER) $$(ME) $x $"}
            - {name: LATER, value: "1"}
            - {name: LEVEL, value: "2"}
)");
  const Manifests read = parse_manifests(text, "job.yaml");
  EXPECT_EQ(read.notes, Words{});
  EXPECT_EQ(replica_env(read.jobs.at(0), 3), (Variables{{"ME", "mnist-worker-3"},
                                                        {"SPACE", "kubeflow"},
                                                        {"INDEX", "3"},
                                                        {"BOTH", "kubeflow/mnist-worker-3 $(LATER) $(ME) $x $"},
                                                        {"LATER", "1"},
                                                        {"LEVEL", "2"}}));
  const Job indexed = parse_one(with(kIndexed, "        ports:", R"(        env:
        - name: RANK
          valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
        ports:)"));
  EXPECT_EQ(replica_env(indexed, 1), (Variables{{"RANK", "1"}}));
}

TEST(ReplicaEnv, ReferencesAreExpandedAsInKubernetes) {
  const Variables env = {{"A", "1"}, {"B", "x y"}, {"A", "2"}};
  EXPECT_EQ(expand_variables("--a=$(A) '$(B)' $(C) $(", env), "--a=2 'x y' $(C) $(");
  EXPECT_EQ(expand_variables("$$(A) $$$(A) ${A} $A", env), "$(A) $2 ${A} $A");
  EXPECT_EQ(expand_variables("", env), "");
}

TEST(UpdateJob, UpdatesMutableFields) {
  Job job = parse_one(kFull);
  EXPECT_EQ(update_job(job, parse_one(kFull)), "unchanged");
  EXPECT_EQ(job.version, 1);
  EXPECT_EQ(update_job(job, parse_one(with(with(kFull, "suspend: true", "suspend: false"), "backoffLimit: 3",
                                           "backoffLimit: 9"))),
            "configured");
  EXPECT_FALSE(job.spec.suspend);
  EXPECT_EQ(job.spec.backoff_limit, 9);
  EXPECT_EQ(job.generation, 2);
  EXPECT_EQ(job.version, 2);
  EXPECT_EQ(job.manifest["spec"]["runPolicy"]["backoffLimit"], 9);
  job = parse_one(kFull);
  EXPECT_EQ(update_job(job, parse_one(with(kFull, "vision", "speech"))), "configured");
  EXPECT_EQ(job.generation, 1);
  EXPECT_EQ(job.labels.at("team"), "speech");
}

TEST(UpdateJob, KeepsSuspendIfNoManifestSetsIt) {
  const std::string text = with(kFull, "    suspend: true\n", "");
  Job job = parse_one(text);
  job.spec.suspend = true;
  EXPECT_EQ(update_job(job, parse_one(text)), "unchanged");
  EXPECT_TRUE(job.spec.suspend);
  EXPECT_EQ(update_job(job, parse_one(with(kFull, "suspend: true", "suspend: false"))), "configured");
  EXPECT_FALSE(job.spec.suspend);
}

TEST(UpdateJob, RejectsChangesOfImmutableFields) {
  const std::pair<const char*, std::string> table[] = {
      {"replicas (4 -> 5)", with(kFull, "replicas: 4", "replicas: 5")},
      {"image (\"me/train:1\" -> \"me/train:2\")", with(kFull, "train:1", "train:2")},
      {"command", with(kFull, "[lockstep]", "[sh]")},
      {"args", with(kFull, "\"8\"", "\"9\"")},
      {"env", with(kFull, "LEVEL", "LEVELS")},
      {"workingDir (\"/data\" -> \"/tmp\")", with(kFull, "/data", "/tmp")},
      {"port (7777 -> 7778)", with(kFull, "7777", "7778")},
      {"kind (JAXJob -> Job)", kIndexed},
  };
  for (const auto& [what, text] : table) {
    Job job = parse_one(kFull);
    EXPECT_THROWS(update_job(job, parse_one(text)), Error,
                  "apply: JAXJob \"mnist\" exists, and its " + std::string(what) +
                      " cannot be changed; delete the job first (lockstep delete mnist -n kubeflow), or give the new "
                      "one another name");
    EXPECT_EQ(job.version, 1);
  }
}

}  // namespace
}  // namespace lockstep
