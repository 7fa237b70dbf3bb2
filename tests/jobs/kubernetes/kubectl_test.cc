// The real kubectl parses our manifests, without a cluster.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "base/os/process.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/kubernetes/variables.h"
#include "jobs/model/yaml_document.h"
#include "base/os/run_program.h"
#include "support/program.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> documents_of(const std::string& kind, const Json& given) {
  std::vector<Json> out;
  for (const YamlDocument& each : parse_yaml_documents(render_manifest({.kind = kind, .variables = given}), kind))
    out.push_back(each.value);
  return out;
}

// The paths where `theirs` lacks or changes a value of `ours`: "/spec/template".
void differences(const Json& ours, const Json& theirs, const std::string& path, std::set<std::string>& out) {
  if (ours.is_object() && theirs.is_object()) {
    for (const auto& [key, value] : ours.items()) {
      if (theirs.contains(key))
        differences(value, theirs[key], path + "/" + key, out);
      else
        out.insert(path + "/" + key);
    }
  } else if (ours.is_array() && theirs.is_array() && ours.size() <= theirs.size()) {
    for (size_t i = 0; i < ours.size(); ++i) differences(ours[i], theirs[i], fmt::format("{}/{}", path, i), out);
  } else if (ours != theirs && (ours.is_string() || theirs != ours.dump())) {  // quantities may become strings
    out.insert(path);
  }
}

// kubectl parses the Job into its built-in types, which drops unknown fields, and prints it again.
TEST(Kubectl, KeepsEveryFieldOfAJob) {
  if (find_program("kubectl").empty()) GTEST_SKIP() << "no kubectl";
  // Fields that are newer than the oldest kubectl still in use (1.20).
  const std::set<std::string> newer = {"/spec/completionMode", "/spec/suspend", "/spec/podFailurePolicy"};
  const Json given = {{"hosts_count", 2},
                      {"gpus", true},
                      {"checkpoint_claim", "disk"},
                      {"active_deadline", 3600},
                      {"ttl", 60},
                      {"backoff", 2},
                      {"namespace", "team"},
                      {"node_selector", {{"pool", "gpu"}}},
                      {"env", {{"NOTE", "yes: \"quoted\" # {{ x }}\n"}}},
                      {"image_pull_policy", "Always"}};
  for (const Json& variables : {Json::object(), given})
    for (const Json& object : documents_of("indexed-job", variables)) {
      if (object["kind"] != "Job") continue;
      const ProgramResult result =
          run_program({"kubectl", "set", "env", "--local", "-f", "-", "-o", "json", "ADDED=1"},
                      {.input = object.dump()});
      ASSERT_EQ(result.code, 0) << result.err;
      const Json read = Json::parse(result.out);
      EXPECT_NE(result.out.find("\"ADDED\""), std::string::npos);
      std::set<std::string> missing;
      differences(object, read, "", missing);
      for (const std::string& each : missing) EXPECT_TRUE(newer.contains(each)) << each;
    }
}

// kubectl accepts kinds that it has no built-in types for.
TEST(Kubectl, AcceptsEveryKind) {
  if (find_program("kubectl").empty()) GTEST_SKIP() << "no kubectl";
  for (const std::string& kind : manifest_kinds()) {
    std::string names;
    for (const Json& each : documents_of(kind, Json::object())) {
      const std::string version = each["apiVersion"], name = each["kind"];
      const size_t slash = version.find('/');
      for (const char c : name) names += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (slash != version.npos) names += "." + version.substr(0, slash);
      names += fmt::format("/{}\n", each["metadata"]["name"].get<std::string>());
    }
    const ProgramResult result = run_program({"kubectl", "label", "--local", "-f", "-", "-o", "name", "added=1"},
                                             {.input = render_manifest({.kind = kind})});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, names) << kind;
  }
}

}  // namespace
}  // namespace lockstep
