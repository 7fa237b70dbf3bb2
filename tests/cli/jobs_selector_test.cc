// Label selectors work as in Kubernetes.
#include <gtest/gtest.h>

#include "jobs/selector.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

bool matches(const char* selector, const Labels& labels) { return Selector::parse(selector).matches(labels); }

TEST(JobSelector, SelectsByEqualityAndSets) {
  const Labels labels = {{"app", "x"}, {"example.com/tier", "front"}, {"empty", ""}};
  for (const char* right :
       {"", " ", "app=x", "app==x", " app = x ", "app=x,example.com/tier=front", "app!=y", "other!=x", "app in (y, x)",
        "app notin (y,z)", "other notin (x)", "app", "!other", "empty=", "empty in ()", "app=x,!other,empty"})
    EXPECT_TRUE(matches(right, labels)) << right;
  for (const char* wrong : {"app=y", "app!=x", "app=x,other", "!app", "app in (y)", "app notin (x)", "other=x", "app="})
    EXPECT_FALSE(matches(wrong, labels)) << wrong;
}

void expect_selector_refused(const char* selector, const std::string& what) {
  try {
    Selector::parse(selector);
    ADD_FAILURE() << selector;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "selector \"" + std::string(selector) + "\": " + what +
                                "; write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY or !KEY, separated by commas");
  }
}

TEST(JobSelector, ErrorsNameThePosition) {
  expect_selector_refused("=x", "a key is missing before \"=x\"");
  expect_selector_refused("a=b,", "a key is missing at the end");
  expect_selector_refused("a=b c", "\",\" is missing before \"c\"");
  expect_selector_refused("a within (b)", "\"within\" is neither in nor notin before \" (b)\"");
  expect_selector_refused("a in b", "\"(\" is missing before \"b\"");
  expect_selector_refused("a in (b", "\")\" is missing at the end");
}

TEST(JobSelector, PodsOfAJaxJobHaveKubeflowsLabels) {
  Job job;
  job.name = "jaxjob-mnist";
  job.manifest = nlohmann::ordered_json::parse(
      R"({"spec": {"jaxReplicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"team": "vision"}}}}}}})");
  const std::string worker = "training.kubeflow.org/job-name=jaxjob-mnist,training.kubeflow.org/replica-type=worker,";
  EXPECT_TRUE(matches((worker + "training.kubeflow.org/replica-index=0").c_str(), pod_labels(job, 0)));
  EXPECT_FALSE(matches((worker + "training.kubeflow.org/replica-index=0").c_str(), pod_labels(job, 1)));
  EXPECT_TRUE(matches("training.kubeflow.org/operator-name=jaxjob-controller,team=vision", pod_labels(job, 1)));
  EXPECT_TRUE(matches("training.kubeflow.org/job-role=master", pod_labels(job, 0)));
  EXPECT_FALSE(matches("training.kubeflow.org/job-role", pod_labels(job, 1)));
}

TEST(JobSelector, PodsOfAnIndexedJobHaveKubernetesLabels) {
  Job job;
  job.kind = JobKind::indexed_job;
  job.name = "myjob";
  job.uid = "u-1";
  EXPECT_TRUE(matches("job-name=myjob,batch.kubernetes.io/job-name=myjob,controller-uid=u-1", pod_labels(job, 1)));
  EXPECT_TRUE(matches("batch.kubernetes.io/job-completion-index in (1)", pod_labels(job, 1)));
}

}  // namespace
}  // namespace lockstep
