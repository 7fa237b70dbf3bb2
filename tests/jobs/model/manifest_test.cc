#include "jobs/model/manifest.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "jobs/model/manifests.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

TEST(Manifest, ParsesEveryFieldOfAJaxJob) {
  const Manifests read = parse_manifests(kFull, "job.yaml");
  ASSERT_EQ(read.jobs.size(), 1U);
  EXPECT_EQ(read.notes, Words{});
  const Job& job = read.jobs[0];
  EXPECT_EQ(job.kind, JobKind::jax_job);
  EXPECT_EQ(job.name, "mnist");
  EXPECT_EQ(job.namespace_name, "kubeflow");
  EXPECT_EQ(job.labels, (std::map<std::string, std::string>{{"team", "vision"}}));
  EXPECT_EQ(job.spec.replicas, 4);
  EXPECT_EQ(job.spec.restart, RestartPolicy::exit_code);
  EXPECT_EQ(job.spec.clean, CleanPodPolicy::all);
  EXPECT_EQ(job.spec.ttl_after_finished, 60);
  EXPECT_EQ(job.spec.active_deadline, 3600);
  EXPECT_EQ(job.spec.backoff_limit, 3);
  EXPECT_TRUE(job.spec.suspend);
  EXPECT_EQ(job.spec.container.image, "me/train:1");
  EXPECT_EQ(job.spec.container.command, (Words{"lockstep"}));
  EXPECT_EQ(job.spec.container.args, (Words{"train", "--devices", "8"}));
  EXPECT_EQ(job.spec.container.folder, "/data");
  EXPECT_EQ(job.spec.container.env, (Variables{{"LEVEL", "1"}, {"EMPTY", ""}}));
  EXPECT_EQ(job.spec.container.port, 7777);
  EXPECT_EQ(job.manifest["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"][0]["value"],
            "1");
}

TEST(Manifest, OmittedFieldsHaveTheOperatorsDefaults) {
  const Job job = parse_one(
      "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: a}\nspec:\n  jaxReplicaSpecs:\n    Worker:\n"
      "      template: {spec: {containers: [{name: jax, image: i}]}}\n");
  JobSpec expected;
  expected.container.image = "i";
  EXPECT_TRUE(job.spec == expected);
  EXPECT_EQ(job.spec.replicas, 1);
  EXPECT_EQ(job.spec.restart, RestartPolicy::never);
  EXPECT_EQ(job.spec.container.port, 6666);
  EXPECT_EQ(job.namespace_name, "default");
  EXPECT_FALSE(job.spec.backoff_limit.has_value());
}

TEST(Manifest, ParsesAnIndexedJob) {
  const Job job = parse_one(kIndexed);
  EXPECT_EQ(job.kind, JobKind::indexed_job);
  EXPECT_EQ(job.spec.replicas, 2);
  EXPECT_EQ(job.spec.backoff_limit, 0);
  EXPECT_EQ(job.spec.restart, RestartPolicy::never);
  EXPECT_EQ(job.spec.container.port, 8080);
  EXPECT_EQ(parse_one(with(kIndexed, "  backoffLimit: 0\n", "")).spec.backoff_limit, 6);
  EXPECT_EQ(parse_one(with(kIndexed, "Never", "OnFailure")).spec.restart, RestartPolicy::on_failure);
  const Job limited = parse_one(with(kIndexed, "  backoffLimit: 0\n",
                                     "  activeDeadlineSeconds: 5\n  ttlSecondsAfterFinished: 6\n  suspend: true\n"));
  EXPECT_EQ(limited.spec.active_deadline, 5);
  EXPECT_EQ(limited.spec.ttl_after_finished, 6);
  EXPECT_TRUE(limited.spec.suspend);
}

TEST(Manifest, AcceptsJson) {
  const Job job = parse_one(parse_one(kFull).manifest.dump(2));
  EXPECT_TRUE(job.spec == parse_one(kFull).spec);
  EXPECT_TRUE(parse_one(parse_one(kFull).manifest.dump(1, '\t')).spec == parse_one(kFull).spec);
}

TEST(Manifest, AcceptsSeveralDocumentsAndLists) {
  const std::string service = "apiVersion: v1\nkind: Service\nmetadata: {name: mysvc}\nspec: {clusterIP: None}\n";
  const Manifests read = parse_manifests(service + "---\n" + kIndexed + "---\n" + kFull, "both.yaml");
  ASSERT_EQ(read.jobs.size(), 2U);
  EXPECT_EQ(read.jobs[0].name, "myjob");
  EXPECT_EQ(read.jobs[1].name, "mnist");
  EXPECT_EQ(read.notes, (Words{"both.yaml:1: Service \"mysvc\" is ignored (Kubernetes only)"}));
  nlohmann::ordered_json list = {{"kind", "List"}, {"apiVersion", "v1"}};
  list["items"] = {parse_one(kFull).manifest, parse_one(kIndexed).manifest};
  EXPECT_EQ(parse_manifests(list.dump(), "list.json").jobs.size(), 2U);
}

TEST(Manifest, AFileMayHaveNoJobs) {
  for (const char* kind : {"Service", "Secret", "ConfigMap", "Namespace", "PersistentVolumeClaim"}) {
    const Manifests read = parse_manifests("kind: " + std::string(kind) + "\n", "a.yaml");
    EXPECT_TRUE(read.jobs.empty());
    EXPECT_EQ(read.notes, (Words{"a.yaml:1: " + std::string(kind) + " is ignored (Kubernetes only)"}));
  }
}

TEST(Manifest, AnchorsAreResolved) {
  const Job job =
      parse_one(with(with(kFull, "env:\n", "env: &env\n"),
                     "            ports:", "            - {name: MORE, value: !!str 5}\n            ports:"));
  EXPECT_EQ(job.spec.container.env.back(), (std::pair<std::string, std::string>("MORE", "5")));
}

TEST(Manifest, OptionsSetTheDefaultNamespaceAndTheSuffix) {
  const std::string text = with(with(kFull, "  namespace: kubeflow\n", ""), "  name: mnist", "  generateName: mnist-");
  const Manifests read = parse_manifests(text, "job.yaml", {.namespace_name = "mine", .suffix = "x7k2p"});
  EXPECT_EQ(read.jobs.at(0).name, "mnist-x7k2p");
  EXPECT_EQ(read.jobs.at(0).namespace_name, "mine");
  EXPECT_EQ(parse_manifests(kFull, "job.yaml", {.namespace_name = "mine"}).jobs.at(0).namespace_name, "kubeflow");
  EXPECT_THROWS(
      parse_one(text), Error,
      "job.yaml:4: metadata.generateName is set instead of name; applying the manifest twice would create two jobs: "
      "give the job a name");
}

TEST(Manifest, IgnoredFieldsAreNoted) {
  const std::string text = with(kFull, "            resources:", R"(            - {name: web, containerPort: 80}
            envFrom: [{configMapRef: {name: x}}]
            volumeMounts: [{name: data, mountPath: /data}]
            resources:)");
  std::string more = with(text, "            - name: EMPTY\n", R"(            - name: KEY
              valueFrom: {secretKeyRef: {name: s, key: k}}
            - name: NODE
              valueFrom:
                fieldRef: {fieldPath: spec.nodeName}
            - name: INDEX
              valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
            - {name: LOCKSTEP_TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}} # generated by other runners
)");
  more = with(more, "          containers:\n", R"(          restartPolicy: Always
          initContainers: [{name: prepare, image: i}]
          containers:
          - {name: proxy, image: envoy}
)");
  more = with(more, "    suspend: true\n", "    schedulingPolicy: {minAvailable: 2}\n");
  const Manifests read = parse_manifests(more, "job.yaml");
  const std::string containers = "spec.jaxReplicaSpecs.Worker.template.spec.containers";
  EXPECT_EQ(
      read.notes,
      (Words{
          "job.yaml:24: container \"proxy\" is ignored here: only the one that trains runs",
          "job.yaml:22: spec.jaxReplicaSpecs.Worker.template.spec.initContainers is ignored here",
          "job.yaml:34: KEY is not set: its value comes from secretKeyRef, which is available on Kubernetes only",
          "job.yaml:36: NODE is not set: its value comes from spec.nodeName, which is available on Kubernetes only",
          "job.yaml:39: INDEX is not set: its value comes from "
          "metadata.annotations['batch.kubernetes.io/job-completion-index'], which is available on Kubernetes only",
          "job.yaml:45: " + containers + "[1].envFrom is ignored here: its variables are available on Kubernetes only",
          "job.yaml:46: " + containers + "[1].volumeMounts is ignored here",
          "job.yaml:21: spec.jaxReplicaSpecs.Worker.template.spec.restartPolicy is ignored: "
          "spec.jaxReplicaSpecs.Worker.restartPolicy, ExitCode, applies",
          "job.yaml:14: spec.runPolicy.schedulingPolicy is ignored here"}));
  EXPECT_EQ(read.jobs.at(0).spec.container.env, (Variables{{"LEVEL", "1"}}));
  EXPECT_EQ(read.jobs.at(0).spec.container.port, 7777);
  EXPECT_EQ(parse_manifests(with(kIndexed, "  backoffLimit: 0\n", "  podReplacementPolicy: Failed\n"), "j").notes,
            (Words{"j:9: spec.podReplacementPolicy is ignored here"}));
}

// A replacement in a valid manifest, and the error it must cause.
struct BadChange {
  const char *from, *to, *message;
};

void expect_rejected(const std::string& valid, std::initializer_list<BadChange> table) {
  for (const BadChange& row : table) {
    SCOPED_TRACE(std::string(row.from) + " -> " + row.to);
    EXPECT_THROWS(parse_manifests(with(valid, row.from, row.to), "job.yaml"), Error, row.message);
  }
}

TEST(Manifest, ErrorsInAJaxJobNameTheLineAndTheRemedy) {
  expect_rejected(
      kFull,
      {
          {"replicas: 4", "replicas: 0",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicas is 0; give a whole number from 1 to 4096"},
          {"- name: EMPTY", "- {name: LOCKSTEP_TOKEN, value: secret}\n            - name: EMPTY",
           "containers[0].env[1].value is a secret that anyone who can view the job can read; remove "
           "LOCKSTEP_TOKEN (every job generates its own), or on Kubernetes take it from a Secret "
           "(valueFrom.secretKeyRef)"},
          {"replicas: 4", "replicas: 10000",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicas is 10000; give a whole number from 1 to 4096: each "
           "replica is a process connected to all others; more than 4096 are not supported"},
          {"replicas: 4", "replicas: \"4\"", "replicas is \"4\"; give a whole number from 1 to 4096 without quotes"},
          {"replicas: 4", "replicas: 2.5", "replicas is 2.5; give a whole number"},
          {"replicas: 4", "replicas: 99999999999999999999", "replicas is 1e+20; give a whole number"},
          {"replicas: 4", "replicas: 18446744073709551615", "replicas is 18446744073709551615; give a whole number"},
          {"replicas: 4", "replicas: [4]", "replicas is a list; give a whole number"},
          {"replicas: 4", "replicsa: 4",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicsa is an unknown field; did you mean "
           "\"replicas\"?"},
          {"restartPolicy: ExitCode", "restartPolcy: ExitCode",
           "job.yaml:18: spec.jaxReplicaSpecs.Worker.restartPolcy is an unknown field; did you mean "
           "\"restartPolicy\"?"},
          {"ExitCode", "Onfailure",
           "job.yaml:18: spec.jaxReplicaSpecs.Worker.restartPolicy is \"Onfailure\"; choose Never, OnFailure, Always "
           "or ExitCode; did you mean \"OnFailure\"?"},
          {"ExitCode", "5", "restartPolicy is 5; choose Never, OnFailure, Always or ExitCode"},
          {"cleanPodPolicy: All", "cleanPodPolicy: Some",
           "job.yaml:10: spec.runPolicy.cleanPodPolicy is \"Some\"; choose None, Running or All"},
          {"ttlSecondsAfterFinished: 60", "ttlSecondsAfterFinished: -1",
           "job.yaml:11: spec.runPolicy.ttlSecondsAfterFinished is -1; give a whole number from 0 to 2147483647: "
           "seconds after the end; omit it to keep the job"},
          {"3600", "0",
           "job.yaml:12: spec.runPolicy.activeDeadlineSeconds is 0; give a whole number from 1 to 2147483647: seconds "
           "after the start; omit it for no deadline"},
          {"backoffLimit: 3", "backoffLimit: -3",
           "job.yaml:13: spec.runPolicy.backoffLimit is -3; give a whole number from 0 to 2147483647: restarts before "
           "the job fails"},
          {"suspend: true", "suspend: yes", "job.yaml:14: spec.runPolicy.suspend is \"yes\"; write true or false"},
          {"backoffLimit: 3", "backofLimit: 3",
           "job.yaml:13: spec.runPolicy.backofLimit is an unknown field; did you mean \"backoffLimit\"?"},
          {"spec:\n  runPolicy:", "spec:\n  backoffLimit: 3\n  runPolicy:",
           "job.yaml:9: spec.backoffLimit is in the wrong place; move it to spec.runPolicy"},
          {"spec:\n  runPolicy:", "spec:\n  replicas: 3\n  runPolicy:",
           "job.yaml:9: spec.replicas is in the wrong place; move it to spec.jaxReplicaSpecs.Worker"},
          {"spec:\n  runPolicy:", "spec:\n  zebra: 3\n  runPolicy:",
           "job.yaml:9: spec.zebra is an unknown field; known fields: jaxReplicaSpecs, runPolicy"},
          {"    Worker:\n", "    Master: {}\n    Worker:\n",
           "job.yaml:15: spec.jaxReplicaSpecs has Master, Worker; a JAXJob has one replica type, Worker: all "
           "replicas run the same program"},
          {"    Worker:\n", "    Workers:\n",
           "spec.jaxReplicaSpecs has Workers and no Worker; a JAXJob has one replica type, Worker"},
          {"- name: jax\n", "- name: main\n",
           "job.yaml:21: spec.jaxReplicaSpecs.Worker.template.spec.containers has no container called jax, only "
           "\"main\"; rename the one that trains to jax"},
          {"- name: jax\n            image", "- image", "containers[0] has no name; every container has one"},
          {"            image: me/train:1\n", "",
           "job.yaml:22: spec.jaxReplicaSpecs.Worker.template.spec.containers[0] has no image; Kubernetes needs one"},
          {"me/train:1", "\"\"", "containers[0].image is empty; give the name of an image"},
          {"image: me/train:1", "imagee: me/train:1", "imagee is an unknown field; did you mean \"image\"?"},
          {"command: [lockstep]", "command: lockstep",
           "job.yaml:24: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].command is \"lockstep\"; expected "
           "a list: write one line with `- ` for each element"},
          {"\"8\"]", "8]",
           "job.yaml:25: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].args[2] is 8; expected a string: "
           "write it in quotes, \"8\""},
          {"value: \"1\"", "value: 1",
           "job.yaml:29: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].env[0].value is 1; expected a "
           "string: write it in quotes, \"1\""},
          {"value: \"1\"", "value: {a: 1}", "env[0].value is a map; expected a string"},
          {"value: \"1\"", "valeu: \"1\"", "env[0].valeu is an unknown field; did you mean \"value\"?"},
          {"value: \"1\"", "value: \"1\"\n              valueFrom: {fieldRef: {fieldPath: metadata.name}}",
           "env[0] has both value and valueFrom for LEVEL; remove one"},
          {"value: \"1\"", "valueFrom: {fieldRef: {}}", "valueFrom.fieldRef has no fieldPath; such as metadata.name"},
          {"- name: LEVEL\n              value", "- value", "env[0] has no name; give the variable a name"},
          {"name: LEVEL", "name: A=B", "env[0].name is \"A=B\"; use only visible ASCII characters other than ="},
          {"containerPort: 7777", "containerPort: 70000",
           "ports[0].containerPort is 70000; give a whole number from 1 to 65535"},
          {"              containerPort: 7777\n", "", "ports[0] has no containerPort; give the number of the port"},
          {"      template:\n        spec:", "      template:\n        spce:",
           "template.spce is an unknown field; did you mean \"spec\"?"},
          {"name: mnist", "name: Mnist",
           "job.yaml:4: metadata.name \"Mnist\" is not a DNS-1035 label; use lowercase letters, digits and -, begin "
           "with a letter, end with a letter or digit, at most 63 characters"},
          {"name: mnist", "name: 1mnist", "\"1mnist\" is not a DNS-1035 label"},
          {"name: mnist", "name: mnist-", "\"mnist-\" is not a DNS-1035 label"},
          {"name: mnist", "name: mn_ist", "\"mn_ist\" is not a DNS-1035 label"},
          {"name: mnist", "name: a.b", "\"a.b\" is not a DNS-1035 label"},
          {"name: mnist", "name: \"\"", "\"\" is not a DNS-1035 label"},
          {"name: mnist", "name: 5", "job.yaml:4: metadata.name is 5; expected a string: write it in quotes, \"5\""},
          {"name: mnist", "name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffff",
           "is too long: the replica name aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffff-worker-3 has 64 "
           "characters, the limit is 63; shorten it by 1"},
          {"namespace: kubeflow", "namespace: Kube",
           "job.yaml:5: metadata.namespace \"Kube\" is not a DNS-1123 label; use lowercase letters, digits and -"},
          {"team: vision", "team: 1",
           "job.yaml:7: metadata.labels.team is 1; expected a string: write it in quotes, \"1\""},
          {"  labels:\n    team: vision\n", "  labels: x\n",
           "job.yaml:6: metadata.labels is not a map; write lines such as"},
          {"  name: mnist\n", "", "job.yaml:3: metadata has no name; give the job one"},
          {"  name: mnist", "  naem: mnist", "metadata.naem is an unknown field; did you mean \"name\"?"},
          {"kubeflow.org/v1", "kubeflow.org/v2",
           "job.yaml:1: apiVersion is \"kubeflow.org/v2\"; a JAXJob needs kubeflow.org/v1"},
          {"apiVersion: kubeflow.org/v1\n", "", "job.yaml:1: the manifest has no apiVersion; a JAXJob needs"},
          {"kind: JAXJob\n", "",
           "job.yaml:1: the manifest has no kind; a manifest begins with `apiVersion: kubeflow.org/v1` and"},
          {"spec:\n  runPolicy", "spce:\n  runPolicy", "spce is an unknown field; did you mean \"spec\"?"},
          {"kind: JAXJob", "kind: JaxJob", "\"JaxJob\" (kubeflow.org/v1) is not supported; supported: JAXJob"},
          {"kind: JAXJob", "kind: JaxJob", "did you mean \"JAXJob\"?"},
          {"kind: JAXJob", "kind: PyTorchJob",
           "job.yaml:2: kind \"PyTorchJob\" (kubeflow.org/v1) is not supported; supported: JAXJob "
           "(kubeflow.org/v1), Job (batch/v1); ignored: Service, Secret, ConfigMap, Namespace, PersistentVolumeClaim, "
           "ServiceAccount, Role, RoleBinding, NetworkPolicy; `lockstep render` writes manifests of other kinds for a "
           "cluster"},
      });
}

TEST(Manifest, MissingFieldsAreNamed) {
  const std::string head = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: a}\n";
  const std::pair<const char*, const char*> table[] = {
      {"", "job.yaml:1: the manifest has no spec; it describes the job: spec.jaxReplicaSpecs.Worker"},
      {"spec: {}", "job.yaml:4: spec has no jaxReplicaSpecs; it describes the replicas"},
      {"spec: {jaxReplicaSpecs: {}}", "spec.jaxReplicaSpecs has no replica type; a JAXJob has one"},
      {"spec: {jaxReplicaSpecs: 5}", "spec.jaxReplicaSpecs is 5; expected a map with the field Worker"},
      {"spec: {jaxReplicaSpecs: {Worker: {}}}",
       "Worker has no template; it describes the pod: template.spec.containers"},
      {"spec: {jaxReplicaSpecs: {Worker: [1]}}", "spec.jaxReplicaSpecs.Worker is a list; expected a map"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {}}}}", "template has no spec; it describes the pod"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {spec: {}}}}}",
       "template.spec has no containers; give one called jax, with its image"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {spec: {containers: []}}}}}",
       "containers is empty; give a container called jax"},
  };
  for (const auto& [spec, message] : table) EXPECT_THROWS(parse_one(head + spec), Error, message);
  EXPECT_THROWS(parse_one("apiVersion: kubeflow.org/v1\nkind: JAXJob\nspec:\n  jaxReplicaSpecs:\n    Worker:\n"
                          "      template: {spec: {containers: [{name: jax, image: i}]}}\n"),
                Error, "the manifest has no metadata; give the job a name: metadata.name");
}

TEST(Manifest, ErrorsInAnIndexedJobNameTheLineAndTheRemedy) {
  expect_rejected(
      kIndexed,
      {
          {"  completionMode: Indexed\n", "",
           "job.yaml:5: spec has no completionMode; write `completionMode: Indexed`: every replica needs its index"},
          {"Indexed", "NonIndexed",
           "job.yaml:6: spec.completionMode is \"NonIndexed\"; write `completionMode: Indexed`"},
          {"Indexed", "indexed", "is \"indexed\"; choose Indexed or NonIndexed; did you mean \"Indexed\"?"},
          {"completions: 2", "completions: 4",
           "job.yaml:8: spec.completions is 4 and parallelism is 2; make them equal: all replicas run at once"},
          {"  completions: 2\n", "", "spec has no completions; set it to the value of parallelism"},
          {"parallelism: 2", "parallelism: 10000", "job.yaml:7: spec.parallelism is 10000; give a whole number from 1"},
          {"restartPolicy: Never", "restartPolicy: Always",
           "job.yaml:13: spec.template.spec.restartPolicy is \"Always\"; choose Never or OnFailure"},
          {"      restartPolicy: Never\n", "", "spec.template.spec has no restartPolicy; choose Never or OnFailure"},
          {"backoffLimit: 0", "backofLimit: 0", "spec.backofLimit is an unknown field; did you mean"},
          {"name: myjob", "name: My.Job",
           "job.yaml:4: metadata.name \"My.Job\" is not a DNS subdomain name; use lowercase letters, digits, - and ., "
           "begin and end with a letter or digit, at most 63 characters"},
          {"name: myjob", "name: a..b", "\"a..b\" is not a DNS subdomain name"},
          {"batch/v1", "batch/v1beta1", "apiVersion is \"batch/v1beta1\"; a Job needs batch/v1"},
          {"      - name: main\n        image: python\n        ports:\n        - containerPort: 8080\n", "        []\n",
           "spec.template.spec.containers is empty; give a container"},
          {"spec:\n  completionMode: Indexed", "speck:\n  completionMode: Indexed",
           "speck is an unknown field; did you mean \"spec\"?"},
      });
  EXPECT_EQ(parse_one(with(kIndexed, "myjob", "1.my-job")).name, "1.my-job");
  EXPECT_THROWS(parse_one("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n"), Error,
                "the manifest has no spec; it describes the job: completions, parallelism, template");
}

TEST(Manifest, RejectsTextThatIsNotAManifest) {
  EXPECT_THROWS(parse_one(""), Error,
                "job.yaml: no objects found; a manifest begins with `apiVersion: kubeflow.org/v1`");
  EXPECT_THROWS(parse_one("# nothing\n---\n"), Error, "job.yaml: no objects found");
  EXPECT_THROWS(parse_one("hello world\n"), Error, "job.yaml:1: the manifest is not a map; a manifest begins with");
  EXPECT_THROWS(parse_one("- 1\n- 2\n"), Error, "job.yaml:1: the manifest is not a map");
  EXPECT_THROWS(parse_one("a: [1\nb: 2"), Error, "not YAML: ");
  EXPECT_THROWS(parse_one("kind: [x]\n"), Error, "job.yaml:1: kind is a list; expected a string");
  EXPECT_THROWS(parse_one("kind: List\n"), Error, "the manifest has no items; a List needs a list of objects");
  EXPECT_THROWS(parse_one("kind: TrainJob\n"), Error, "kind \"TrainJob\" (without apiVersion) is not supported");
  EXPECT_THROWS(parse_one(kFull + "---\n" + kFull), Error,
                "job.yaml:37: the manifest is the second job called mnist in kubeflow");
}

TEST(Manifest, LongValuesAreTruncatedInMessages) {
  EXPECT_THROWS(parse_one(with(kFull, "replicas: 4", "replicas: " + std::string(58, 'x') + "ééé")), Error,
                "replicas is \"" + std::string(58, 'x') + "...; give a whole number");
}

}  // namespace
}  // namespace lockstep
