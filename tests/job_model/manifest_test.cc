#include "jobs/model/manifest.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "job_model/manifests.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

TEST(Manifest, AJaxJobIsRead) {
  const Manifests read = parse_manifests(kFull, "job.yaml");
  ASSERT_EQ(read.jobs.size(), 1U);
  EXPECT_EQ(read.notes, Words{});
  const Job& job = read.jobs[0];
  EXPECT_EQ(job.kind, JobKind::jax_job);
  EXPECT_EQ(job.name, "mnist");
  EXPECT_EQ(job.space, "kubeflow");
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

TEST(Manifest, WhatIsLeftOutHasTheDefaultsOfTheOriginal) {
  const Job job =
      one("apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: a}\nspec:\n  jaxReplicaSpecs:\n    Worker:\n"
          "      template: {spec: {containers: [{name: jax, image: i}]}}\n");
  JobSpec expected;
  expected.container.image = "i";
  EXPECT_TRUE(job.spec == expected);
  EXPECT_EQ(job.spec.replicas, 1);
  EXPECT_EQ(job.spec.restart, RestartPolicy::never);
  EXPECT_EQ(job.spec.container.port, 6666);
  EXPECT_EQ(job.space, "default");
  EXPECT_FALSE(job.spec.backoff_limit.has_value());
}

TEST(Manifest, AnIndexedJobIsRead) {
  const Job job = one(kIndexed);
  EXPECT_EQ(job.kind, JobKind::indexed_job);
  EXPECT_EQ(job.spec.replicas, 2);
  EXPECT_EQ(job.spec.backoff_limit, 0);
  EXPECT_EQ(job.spec.restart, RestartPolicy::never);
  EXPECT_EQ(job.spec.container.port, 8080);
  EXPECT_EQ(one(with(kIndexed, "  backoffLimit: 0\n", "")).spec.backoff_limit, 6);
  EXPECT_EQ(one(with(kIndexed, "Never", "OnFailure")).spec.restart, RestartPolicy::on_failure);
  const Job limited = one(with(kIndexed, "  backoffLimit: 0\n",
                               "  activeDeadlineSeconds: 5\n  ttlSecondsAfterFinished: 6\n  suspend: true\n"));
  EXPECT_EQ(limited.spec.active_deadline, 5);
  EXPECT_EQ(limited.spec.ttl_after_finished, 6);
  EXPECT_TRUE(limited.spec.suspend);
}

TEST(Manifest, JsonIsReadToo) {
  const Job job = one(one(kFull).manifest.dump(2));
  EXPECT_TRUE(job.spec == one(kFull).spec);
  EXPECT_TRUE(one(one(kFull).manifest.dump(1, '\t')).spec == one(kFull).spec);
}

TEST(Manifest, SeveralDocumentsAndListsAreRead) {
  const std::string service = "apiVersion: v1\nkind: Service\nmetadata: {name: mysvc}\nspec: {clusterIP: None}\n";
  const Manifests read = parse_manifests(service + "---\n" + kIndexed + "---\n" + kFull, "both.yaml");
  ASSERT_EQ(read.jobs.size(), 2U);
  EXPECT_EQ(read.jobs[0].name, "myjob");
  EXPECT_EQ(read.jobs[1].name, "mnist");
  EXPECT_EQ(read.notes, (Words{"both.yaml:1: Service \"mysvc\" is read over: it is of use on Kubernetes only"}));
  nlohmann::ordered_json list = {{"kind", "List"}, {"apiVersion", "v1"}};
  list["items"] = {one(kFull).manifest, one(kIndexed).manifest};
  EXPECT_EQ(parse_manifests(list.dump(), "list.json").jobs.size(), 2U);
}

TEST(Manifest, AFileMayHoldNoJobAtAll) {
  for (const char* kind : {"Service", "Secret", "ConfigMap", "Namespace", "PersistentVolumeClaim"}) {
    const Manifests read = parse_manifests("kind: " + std::string(kind) + "\n", "a.yaml");
    EXPECT_TRUE(read.jobs.empty());
    EXPECT_EQ(read.notes, (Words{"a.yaml:1: " + std::string(kind) + " is read over: it is of use on Kubernetes only"}));
  }
}

TEST(Manifest, AnchorsAreResolved) {
  const Job job = one(with(with(kFull, "env:\n", "env: &env\n"),
                           "            ports:", "            - {name: MORE, value: !!str 5}\n            ports:"));
  EXPECT_EQ(job.spec.container.env.back(), (std::pair<std::string, std::string>("MORE", "5")));
}

TEST(Manifest, OptionsGiveTheNamespaceAndTheSuffix) {
  const std::string text = with(with(kFull, "  namespace: kubeflow\n", ""), "  name: mnist", "  generateName: mnist-");
  const Manifests read = parse_manifests(text, "job.yaml", {.space = "mine", .suffix = "x7k2p"});
  EXPECT_EQ(read.jobs.at(0).name, "mnist-x7k2p");
  EXPECT_EQ(read.jobs.at(0).space, "mine");
  EXPECT_EQ(parse_manifests(kFull, "job.yaml", {.space = "mine"}).jobs.at(0).space, "kubeflow");
  EXPECT_THROWS(
      one(text), Error,
      "job.yaml:4: metadata.generateName is there instead of name; applying it twice would make two jobs: give "
      "the job a name");
}

TEST(Manifest, WhatIsNotUsedIsNoted) {
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
            - {name: LOCKSTEP_TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}} # a job here makes its own
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
      (Words{"job.yaml:24: container \"proxy\" is not run here: only the one that trains is",
             "job.yaml:22: spec.jaxReplicaSpecs.Worker.template.spec.initContainers is not used here",
             "job.yaml:34: KEY is not set: its value comes from secretKeyRef, which is only known on Kubernetes",
             "job.yaml:36: NODE is not set: its value comes from spec.nodeName, which is only known on Kubernetes",
             "job.yaml:39: INDEX is not set: its value comes from "
             "metadata.annotations['batch.kubernetes.io/job-completion-index'], which is only known on Kubernetes",
             "job.yaml:45: " + containers + "[1].envFrom is not used here: its variables are only known on Kubernetes",
             "job.yaml:46: " + containers + "[1].volumeMounts is not used here",
             "job.yaml:21: spec.jaxReplicaSpecs.Worker.template.spec.restartPolicy is not used: that of "
             "spec.jaxReplicaSpecs.Worker counts, which is ExitCode",
             "job.yaml:14: spec.runPolicy.schedulingPolicy is not used here"}));
  EXPECT_EQ(read.jobs.at(0).spec.container.env, (Variables{{"LEVEL", "1"}}));
  EXPECT_EQ(read.jobs.at(0).spec.container.port, 7777);
  EXPECT_EQ(parse_manifests(with(kIndexed, "  backoffLimit: 0\n", "  podReplacementPolicy: Failed\n"), "j").notes,
            (Words{"j:9: spec.podReplacementPolicy is not used here"}));
}

// A change of a good manifest, and what is said about it.
struct Bad {
  const char *from, *to, *message;
};

void expect_refused(const std::string& good, std::initializer_list<Bad> table) {
  for (const Bad& row : table) {
    SCOPED_TRACE(std::string(row.from) + " -> " + row.to);
    EXPECT_THROWS(parse_manifests(with(good, row.from, row.to), "job.yaml"), Error, row.message);
  }
}

TEST(Manifest, MistakesInAJaxJobAreNamedWithTheirLine) {
  expect_refused(
      kFull,
      {
          {"replicas: 4", "replicas: 0",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicas is 0; give a whole number from 1 to 4096"},
          {"- name: EMPTY", "- {name: LOCKSTEP_TOKEN, value: secret}\n            - name: EMPTY",
           "containers[0].env[1].value is a secret that everybody who may look at the job could read; leave "
           "LOCKSTEP_TOKEN out, for a job makes its own, or on Kubernetes take it from a Secret "
           "(valueFrom.secretKeyRef)"},
          {"replicas: 4", "replicas: 10000",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicas is 10000; give a whole number from 1 to 4096: each is a "
           "process of one SPMD program, in which all speak with all, and more than 4096 are not tried"},
          {"replicas: 4", "replicas: \"4\"", "replicas is \"4\"; give a whole number from 1 to 4096 without quotes"},
          {"replicas: 4", "replicas: 2.5", "replicas is 2.5; give a whole number"},
          {"replicas: 4", "replicas: 99999999999999999999", "replicas is 1e+20; give a whole number"},
          {"replicas: 4", "replicas: 18446744073709551615", "replicas is 18446744073709551615; give a whole number"},
          {"replicas: 4", "replicas: [4]", "replicas is a list; give a whole number"},
          {"replicas: 4", "replicsa: 4",
           "job.yaml:17: spec.jaxReplicaSpecs.Worker.replicsa is no field that is known there; did you mean "
           "\"replicas\"?"},
          {"restartPolicy: ExitCode", "restartPolcy: ExitCode",
           "job.yaml:18: spec.jaxReplicaSpecs.Worker.restartPolcy is no field that is known there; did you mean "
           "\"restartPolicy\"?"},
          {"ExitCode", "Onfailure",
           "job.yaml:18: spec.jaxReplicaSpecs.Worker.restartPolicy is \"Onfailure\"; choose Never, OnFailure, Always "
           "or "
           "ExitCode; did you mean \"OnFailure\"?"},
          {"ExitCode", "5", "restartPolicy is 5; choose Never, OnFailure, Always or ExitCode"},
          {"cleanPodPolicy: All", "cleanPodPolicy: Some",
           "job.yaml:10: spec.runPolicy.cleanPodPolicy is \"Some\"; choose None, Running or All"},
          {"ttlSecondsAfterFinished: 60", "ttlSecondsAfterFinished: -1",
           "job.yaml:11: spec.runPolicy.ttlSecondsAfterFinished is -1; give a whole number from 0 to 2147483647: "
           "seconds "
           "after the end; leave it out to keep the job"},
          {"3600", "0",
           "job.yaml:12: spec.runPolicy.activeDeadlineSeconds is 0; give a whole number from 1 to 2147483647: seconds "
           "from "
           "the start on; leave it out for no deadline"},
          {"backoffLimit: 3", "backoffLimit: -3",
           "job.yaml:13: spec.runPolicy.backoffLimit is -3; give a whole number from 0 to 2147483647: restarts until "
           "the "
           "job has failed"},
          {"suspend: true", "suspend: yes", "job.yaml:14: spec.runPolicy.suspend is \"yes\"; write true or false"},
          {"backoffLimit: 3", "backofLimit: 3",
           "job.yaml:13: spec.runPolicy.backofLimit is no field that is known there; did you mean \"backoffLimit\"?"},
          {"spec:\n  runPolicy:", "spec:\n  backoffLimit: 3\n  runPolicy:",
           "job.yaml:9: spec.backoffLimit is in the wrong place; it belongs to spec.runPolicy"},
          {"spec:\n  runPolicy:", "spec:\n  replicas: 3\n  runPolicy:",
           "job.yaml:9: spec.replicas is in the wrong place; it belongs to spec.jaxReplicaSpecs.Worker"},
          {"spec:\n  runPolicy:", "spec:\n  zebra: 3\n  runPolicy:",
           "job.yaml:9: spec.zebra is no field that is known there; those are jaxReplicaSpecs, runPolicy"},
          {"    Worker:\n", "    Master: {}\n    Worker:\n",
           "job.yaml:15: spec.jaxReplicaSpecs has Master, Worker; a JAXJob has one type of replica, Worker: all run "
           "the "
           "same program"},
          {"    Worker:\n", "    Workers:\n",
           "spec.jaxReplicaSpecs has Workers and no Worker; a JAXJob has one type of replica, Worker"},
          {"- name: jax\n", "- name: main\n",
           "job.yaml:21: spec.jaxReplicaSpecs.Worker.template.spec.containers has no container called jax, but "
           "\"main\"; "
           "call the one that trains jax"},
          {"- name: jax\n            image", "- image", "containers[0] has no name; every container has one"},
          {"            image: me/train:1\n", "",
           "job.yaml:22: spec.jaxReplicaSpecs.Worker.template.spec.containers[0] has no image; Kubernetes needs one"},
          {"me/train:1", "\"\"", "containers[0].image is empty; give the name of an image"},
          {"image: me/train:1", "imagee: me/train:1",
           "imagee is no field that is known there; did you mean \"image\"?"},
          {"command: [lockstep]", "command: lockstep",
           "job.yaml:24: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].command is \"lockstep\"; a list is "
           "wanted: one line with `- ` for each element"},
          {"\"8\"]", "8]",
           "job.yaml:25: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].args[2] is 8; text is wanted: write "
           "it "
           "in quotes, \"8\""},
          {"value: \"1\"", "value: 1",
           "job.yaml:29: spec.jaxReplicaSpecs.Worker.template.spec.containers[0].env[0].value is 1; text is wanted: "
           "write "
           "it in quotes, \"1\""},
          {"value: \"1\"", "value: {a: 1}", "env[0].value is a map; text is wanted"},
          {"value: \"1\"", "valeu: \"1\"", "env[0].valeu is no field that is known there; did you mean \"value\"?"},
          {"value: \"1\"", "value: \"1\"\n              valueFrom: {fieldRef: {fieldPath: metadata.name}}",
           "env[0] has both value and valueFrom for LEVEL; remove one"},
          {"value: \"1\"", "valueFrom: {fieldRef: {}}", "valueFrom.fieldRef has no fieldPath; such as metadata.name"},
          {"- name: LEVEL\n              value", "- value", "env[0] has no name; give the variable a name"},
          {"name: LEVEL", "name: A=B",
           "env[0].name is \"A=B\"; the name of a variable is made of visible ASCII without ="},
          {"containerPort: 7777", "containerPort: 70000",
           "ports[0].containerPort is 70000; give a whole number from 1 to 65535"},
          {"              containerPort: 7777\n", "", "ports[0] has no containerPort; give the number of the port"},
          {"      template:\n        spec:", "      template:\n        spce:",
           "template.spce is no field that is known there; did you mean \"spec\"?"},
          {"name: mnist", "name: Mnist",
           "job.yaml:4: metadata.name \"Mnist\" is no DNS-1035 label; use small letters, digits and -, begin with a "
           "letter, end with a letter or digit, 63 characters at most"},
          {"name: mnist", "name: 1mnist", "\"1mnist\" is no DNS-1035 label"},
          {"name: mnist", "name: mnist-", "\"mnist-\" is no DNS-1035 label"},
          {"name: mnist", "name: mn_ist", "\"mn_ist\" is no DNS-1035 label"},
          {"name: mnist", "name: a.b", "\"a.b\" is no DNS-1035 label"},
          {"name: mnist", "name: \"\"", "\"\" is no DNS-1035 label"},
          {"name: mnist", "name: 5", "job.yaml:4: metadata.name is 5; text is wanted: write it in quotes, \"5\""},
          {"name: mnist", "name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffff",
           "is too long: the replica aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffff-worker-3 has 64 "
           "characters "
           "and 63 is the most; shorten it by 1"},
          {"namespace: kubeflow", "namespace: Kube",
           "job.yaml:5: metadata.namespace \"Kube\" is no DNS-1123 label; use small letters, digits and -"},
          {"team: vision", "team: 1",
           "job.yaml:7: metadata.labels.team is 1; text is wanted: write it in quotes, \"1\""},
          {"  labels:\n    team: vision\n", "  labels: x\n",
           "job.yaml:6: metadata.labels is no map; write lines such as"},
          {"  name: mnist\n", "", "job.yaml:3: metadata has no name; give the job one"},
          {"  name: mnist", "  naem: mnist", "metadata.naem is no field that is known there; did you mean \"name\"?"},
          {"kubeflow.org/v1", "kubeflow.org/v2",
           "job.yaml:1: apiVersion is \"kubeflow.org/v2\"; that of a JAXJob is kubeflow.org/v1"},
          {"apiVersion: kubeflow.org/v1\n", "", "job.yaml:1: the manifest has no apiVersion; that of a JAXJob is"},
          {"kind: JAXJob\n", "",
           "job.yaml:1: the manifest has no kind; a manifest begins with `apiVersion: kubeflow.org/v1` and"},
          {"spec:\n  runPolicy", "spce:\n  runPolicy", "spce is no field that is known there; did you mean \"spec\"?"},
          {"kind: JAXJob", "kind: JaxJob", "\"JaxJob\" (kubeflow.org/v1) is none that runs here; those are JAXJob"},
          {"kind: JAXJob", "kind: JaxJob", "did you mean \"JAXJob\"?"},
          {"kind: JAXJob", "kind: PyTorchJob",
           "job.yaml:2: kind \"PyTorchJob\" (kubeflow.org/v1) is none that runs here; those are JAXJob "
           "(kubeflow.org/v1) "
           "and Job (batch/v1), with Service, Secret, ConfigMap, Namespace, PersistentVolumeClaim, ServiceAccount, "
           "Role, RoleBinding, NetworkPolicy read over; `lockstep render` writes the manifests of others for a "
           "cluster"},
      });
}

TEST(Manifest, MissingPartsAreNamed) {
  const std::string head = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: a}\n";
  const std::pair<const char*, const char*> table[] = {
      {"", "job.yaml:1: the manifest has no spec; it describes the job: spec.jaxReplicaSpecs.Worker"},
      {"spec: {}", "job.yaml:4: spec has no jaxReplicaSpecs; it describes the replicas"},
      {"spec: {jaxReplicaSpecs: {}}", "spec.jaxReplicaSpecs has no type of replica; a JAXJob has one"},
      {"spec: {jaxReplicaSpecs: 5}", "spec.jaxReplicaSpecs is 5; a map is wanted, with the field Worker"},
      {"spec: {jaxReplicaSpecs: {Worker: {}}}",
       "Worker has no template; it describes the pod: template.spec.containers"},
      {"spec: {jaxReplicaSpecs: {Worker: [1]}}", "spec.jaxReplicaSpecs.Worker is a list; a map is wanted"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {}}}}", "template has no spec; it describes the pod"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {spec: {}}}}}",
       "template.spec has no containers; give one called jax, with its image"},
      {"spec: {jaxReplicaSpecs: {Worker: {template: {spec: {containers: []}}}}}",
       "containers is empty; give a container called jax"},
  };
  for (const auto& [spec, message] : table) EXPECT_THROWS(one(head + spec), Error, message);
  EXPECT_THROWS(one("apiVersion: kubeflow.org/v1\nkind: JAXJob\nspec:\n  jaxReplicaSpecs:\n    Worker:\n"
                    "      template: {spec: {containers: [{name: jax, image: i}]}}\n"),
                Error, "the manifest has no metadata; give the job a name: metadata.name");
}

TEST(Manifest, MistakesInAnIndexedJobAreNamedWithTheirLine) {
  expect_refused(
      kIndexed,
      {
          {"  completionMode: Indexed\n", "",
           "job.yaml:5: spec has no completionMode; write `completionMode: Indexed`: replicas must know their index"},
          {"Indexed", "NonIndexed",
           "job.yaml:6: spec.completionMode is \"NonIndexed\"; write `completionMode: Indexed`"},
          {"Indexed", "indexed", "is \"indexed\"; choose Indexed or NonIndexed; did you mean \"Indexed\"?"},
          {"completions: 2", "completions: 4",
           "job.yaml:8: spec.completions is 4 and parallelism is 2; all replicas run at once, so make them equal"},
          {"  completions: 2\n", "", "spec has no completions; give their number, equal to that of parallelism"},
          {"parallelism: 2", "parallelism: 10000", "job.yaml:7: spec.parallelism is 10000; give a whole number from 1"},
          {"restartPolicy: Never", "restartPolicy: Always",
           "job.yaml:13: spec.template.spec.restartPolicy is \"Always\"; choose Never or OnFailure"},
          {"      restartPolicy: Never\n", "", "spec.template.spec has no restartPolicy; choose Never or OnFailure"},
          {"backoffLimit: 0", "backofLimit: 0", "spec.backofLimit is no field that is known there; did you mean"},
          {"name: myjob", "name: My.Job",
           "job.yaml:4: metadata.name \"My.Job\" is no name in DNS; use small letters, digits, - and ., begin and end "
           "with a letter or digit, 63 characters at most"},
          {"name: myjob", "name: a..b", "\"a..b\" is no name in DNS"},
          {"batch/v1", "batch/v1beta1", "apiVersion is \"batch/v1beta1\"; that of a Job is batch/v1"},
          {"      - name: main\n        image: python\n        ports:\n        - containerPort: 8080\n", "        []\n",
           "spec.template.spec.containers is empty; give a container"},
          {"spec:\n  completionMode: Indexed", "speck:\n  completionMode: Indexed",
           "speck is no field that is known there; did you mean \"spec\"?"},
      });
  EXPECT_EQ(one(with(kIndexed, "myjob", "1.my-job")).name, "1.my-job");
  EXPECT_THROWS(one("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n"), Error,
                "the manifest has no spec; it describes the job: completions, parallelism, template");
}

TEST(Manifest, WhatIsNoManifestIsRefused) {
  EXPECT_THROWS(one(""), Error,
                "job.yaml: there is nothing in it; a manifest begins with `apiVersion: kubeflow.org/v1`");
  EXPECT_THROWS(one("# nothing\n---\n"), Error, "job.yaml: there is nothing in it");
  EXPECT_THROWS(one("hello world\n"), Error, "job.yaml:1: the manifest is no map; a manifest begins with");
  EXPECT_THROWS(one("- 1\n- 2\n"), Error, "job.yaml:1: the manifest is no map");
  EXPECT_THROWS(one("a: [1\nb: 2"), Error, "not YAML: ");
  EXPECT_THROWS(one("kind: [x]\n"), Error, "job.yaml:1: kind is a list; text is wanted");
  EXPECT_THROWS(one("kind: List\n"), Error, "the manifest has no items; a List holds objects");
  EXPECT_THROWS(one("kind: TrainJob\n"), Error, "kind \"TrainJob\" (without apiVersion) is none that runs here");
  EXPECT_THROWS(one(kFull + "---\n" + kFull), Error,
                "job.yaml:37: the manifest is the second job called mnist in kubeflow");
}

TEST(Manifest, LongValuesAreCutInMessages) {
  EXPECT_THROWS(one(with(kFull, "replicas: 4", "replicas: " + std::string(58, 'x') + "ééé")), Error,
                "replicas is \"" + std::string(58, 'x') + "...; give a whole number");
}

}  // namespace
}  // namespace lockstep
