// Valid manifests, and helpers to modify and parse them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "jobs/model/manifest.h"

namespace lockstep {

// A JAXJob with every field that Lockstep reads. Tests assert its line numbers.
inline const std::string kFull = R"(apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  name: mnist
  namespace: kubeflow
  labels:
    team: vision
spec:
  runPolicy:
    cleanPodPolicy: All
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 3
    suspend: true
  jaxReplicaSpecs:
    Worker:
      replicas: 4
      restartPolicy: ExitCode
      template:
        spec:
          containers:
          - name: jax
            image: me/train:1
            command: [lockstep]
            args: [train, --devices, "8"]
            workingDir: /data
            env:
            - name: LEVEL
              value: "1"
            - name: EMPTY
            ports:
            - name: jaxjob-port
              containerPort: 7777
            resources:
              limits: {cpu: 2}
)";

inline const std::string kIndexed = R"(apiVersion: batch/v1
kind: Job
metadata:
  name: myjob
spec:
  completionMode: Indexed
  parallelism: 2
  completions: 2
  backoffLimit: 0
  template:
    spec:
      subdomain: mysvc
      restartPolicy: Never
      containers:
      - name: main
        image: python
        ports:
        - containerPort: 8080
)";

// The text with the first occurrence of `from` replaced by `to`.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t position = text.find(from);
  EXPECT_NE(position, text.npos) << from;
  return text.replace(position, from.size(), to);
}

// Parses the first job of a manifest.
inline Job parse_one(const std::string& text) { return parse_manifests(text, "job.yaml").jobs.at(0); }

}  // namespace lockstep
