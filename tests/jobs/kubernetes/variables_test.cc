#include "jobs/kubernetes/variables.h"

#include <gtest/gtest.h>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json complete(const Json& given, const std::string& kind = "indexed-job") {
  return complete_variables(given, {.kind = kind, .make_token = [] { return std::string("made-token-0123456789"); }});
}

TEST(Variables, HostsAndDevicesAreEnough) {
  const Json all = complete({{"hosts_count", 2}, {"local_device_count", 2}});
  EXPECT_EQ(all["name"], "lockstep");
  EXPECT_EQ(all["service"], "lockstep");
  EXPECT_EQ(all["gpu_count"], 0);
  EXPECT_EQ(all["port"], 55527);
  EXPECT_EQ(all["args"], Json::array({"train"}));
  EXPECT_EQ(all["token_secret"], "lockstep-token");
  EXPECT_EQ(all["token"], "made-token-0123456789");
  EXPECT_EQ(all["env"], Json::array());
}

TEST(Variables, DerivedVariablesFollowFromTheGivenOnes) {
  EXPECT_EQ(complete({{"gpus", true}, {"local_device_count", 4}})["gpu_count"], 4);
  EXPECT_EQ(complete({{"gpus", 3}})["gpu_count"], 3);
  EXPECT_EQ(complete({{"gpus", 0}})["gpu_count"], 0);
  EXPECT_EQ(complete({{"hosts_count", 3}, {"backoff", 2}})["backoff_limit"], 6);
  EXPECT_EQ(complete({{"name", "a"}, {"service", "b"}})["service"], "b");
  EXPECT_EQ(complete(Json::object(), "jaxjob")["port"], 6666);
  EXPECT_EQ(complete(Json::object(), "jaxjob")["container"], "jax");
  EXPECT_EQ(complete(Json::object(), "trainjob")["command"], Json::array({"lockstep"}));
  EXPECT_EQ(complete({{"cpu", 2}})["cpu"], "2");
  EXPECT_EQ(complete({{"env", {{"A", "1"}}}})["env"], Json::array({{{"name", "A"}, {"value", "1"}}}));
  EXPECT_EQ(complete({{"name", "run"}, {"checkpoint_claim", "disk"}})["args"],
            Json::array({"train", "--checkpoint-dir", "/checkpoints/run"}));
  EXPECT_EQ(complete({{"args", {"train", "--epochs", "8"}}, {"checkpoint_claim", "disk"}})["args"].size(), 3u);
}

TEST(Variables, AnExistingSecretNeedsNoToken) {
  const Json all = complete({{"token_secret", "ours"}});
  EXPECT_EQ(all["token_secret"], "ours");
  EXPECT_FALSE(all.contains("token"));
  EXPECT_EQ(complete({{"token", "0123456789abcdef"}})["token"], "0123456789abcdef");
}

TEST(Variables, InvalidValuesAreRejected) {
  const auto expect = [](const Json& given, const std::string& message, const std::string& kind = "indexed-job") {
    SCOPED_TRACE(given.dump());
    EXPECT_THROWS(complete(given, kind), Error, message);
  };
  expect({{"hosts_cuont", 2}},
         "variables: unknown variable \"hosts_cuont\"; did you mean \"hosts_count\"? known: hosts_count, ");
  expect({{"hosts_count", 0}}, "variables: hosts_count is 0; use a whole number from 1 to 4096");
  expect({{"hosts_count", "2"}}, "variables: hosts_count is \"2\"; use a whole number from 1 to 4096");
  expect({{"hosts_count", 1.5}}, "variables: hosts_count is 1.5; use a whole number");
  expect({{"hosts_count", 18446744073709551615u}}, "use a whole number from 1 to 4096");
  expect({{"port", 70000}}, "variables: port is 70000; use a whole number from 1 to 65535");
  expect({{"suspend", "yes"}}, "variables: suspend is \"yes\"; use true or false");
  for (const char* image : {"", "a b", "a\nb", "-a", "a;b", "a\033b"})
    expect({{"image", image}}, "; use an image name without spaces");
  for (const char* image : {"lockstep", "lockstep:0.1.0", "r.example:5000/a/b_c:1@sha256:00ff"})
    EXPECT_NO_THROW(complete({{"image", image}}));
  for (const char* name : {"", "A", "1a", "a_b", "a-", "-a", "a.b"})
    expect({{"name", name}}, "use at most 63 lowercase letters, digits and hyphens, starting with a letter");
  expect({{"name", std::string(64, 'a')}}, "use at most 63 lowercase letters");
  expect({{"name", std::string(47, 'a')}}, "it has 47 characters; use at most 46, because pod names add a suffix");
  EXPECT_NO_THROW(complete({{"name", std::string(46, 'a')}}));
  for (const char* text : {"", "x", "1.", ".5", "1.2.3", "2gb", "0", "-1", "0.0"})
    expect({{"memory", text}}, "use a quantity such as 2, \"500m\" or \"2Gi\"");
  for (const char* text : {"1", "500m", "2Gi", "1.5", "64M"}) EXPECT_NO_THROW(complete({{"memory", text}}));
  expect({{"cpu", 0}}, "variables: cpu is 0; use a quantity");
  expect({{"args", "train"}}, "variables: args is \"train\"; use a list of strings");
  expect({{"args", {1, 2}}}, "variables: args is [1,2]; use a list of strings");
  expect({{"env", {{"A", 1}}}}, "variables: env is {\"A\":1}; use an object of strings");
  for (const char* name : {"", "1 a", "1a", "a b", "a=b"})
    expect({{"env", {{name, "x"}}}}, "which is not a valid variable name; use letters, digits and _ - .");
  expect({{"env", {{"A", std::string(1, '\0')}}}}, "env has a NUL character in the value of \"A\"");
  expect({{"env", {{"LOCKSTEP_TOKEN", "x"}}}},
         "env has LOCKSTEP_TOKEN, which would be readable in the job's manifest; set token or token_secret instead");
  expect({{"env", {{"LOCKSTEP_NUM_PROCESSES", "3"}}}}, "which the manifest sets; set hosts_count instead");
  for (const char* key : {"", "a b", "-a", "a/b/c", "A.example/b", "/b", "a/", "a..b/c"})
    expect({{"node_selector", {{key, "c"}}}},
           "which is not a valid label key; use at most 63 letters, digits and - _ .");
  expect({{"node_selector", {{"a", "b c"}}}}, "node_selector has \"b c\" for a, which is not a valid label value");
  EXPECT_NO_THROW(complete({{"node_selector", {{"topology.kubernetes.io/zone", "a-1"}, {"gpu", ""}, {"A_b.c", "d"}}}}));
  expect({{"gpu_resource", "a b"}}, "use a resource name such as nvidia.com/gpu");
  expect({{"token", "x"}}, "token: the variable token has 1 character; a token has 16 to 1024");
  expect({{"token", "0123456789 0123456789"}}, "has characters other than letters, digits and punctuation");
  expect({{"gpus", "all"}}, "variables: gpus is \"all\"; use true, false or a number from 0 to 1024");
  expect({{"gpus", -1}}, "use true, false or a number from 0 to 1024");
  expect({{"image_pull_policy", "often"}}, "image_pull_policy is \"often\"; use Always, IfNotPresent or Never");
  expect({{"checkpoint_path", "data"}},
         "checkpoint_path is \"data\"; use an absolute path without colons, such as /checkpoints");
  for (const char* path : {"/tmp", "/tmp/", "/dev/shm", "/var/run/secrets/lockstep"})
    expect({{"checkpoint_claim", "c"}, {"checkpoint_path", path}},
           "is the mount path of two volumes; mount c elsewhere");
  expect({{"volumes", {"a:/data", "b:/data/"}}},
         "variables: /data is the mount path of two volumes; mount b elsewhere");
  for (const char* volume : {"a", "a:", ":/data", "a:data", "A:/data", "a:/", "a:/x:rw"})
    expect({{"volumes", {volume}}}, "use a list of CLAIM:PATH, such as [\"data:/data:ro\"]");
  expect({{"volumes", "a:/data"}}, "use a list of CLAIM:PATH");
  for (const char* name : {"", "A", "a_b", "-a", "a.b"})
    expect({{"namespace", name}}, "use at most 63 lowercase letters, digits and hyphens");
  for (const char* name : {"", "A", "a_b", "-a", "a..b"})
    expect({{"token_secret", name}}, "use at most 253 lowercase letters, digits, hyphens and dots");
  EXPECT_NO_THROW(complete({{"namespace", "1team"}, {"token_secret", "my.secret"}, {"checkpoint_claim", "pvc.v1"}}));
  for (const char* ports : {"", "7000", "7000-", "7001-7000", "0-5", "1-65536", "a-b"})
    expect({{"data_ports", ports}}, "use a range of ports such as 61000-64999");
  expect({{"network_policy", true}, {"data_ports", nullptr}}, "network_policy is true, but data_ports is null");
  expect({{"affinity", 1}}, "use an object, as the field of the pod has it");
  expect({{"tolerations", {{"key", "x"}}}}, "use a list of objects, as the field of the pod has them");
  expect({{"image_pull_secrets", "x"}}, "use a list of names, such as [\"registry\"]");
  expect({{"labels", {{"app.kubernetes.io/instance", "x"}}}}, "which the manifest sets; set name instead");
  expect({{"labels", {{"a", "b c"}}}}, "labels has \"b c\" for a, which is not a valid label value");
  expect({{"annotations", {{"a b", "c"}}}}, "annotations has \"a b\", which is not a valid annotation key");
  expect({{"env", {{"LOCKSTEP_DATA_PORTS", "1-2"}}}}, "which the manifest sets; set data_ports instead");
  expect({{"restart_policy", "Always"}}, "restart_policy is \"Always\"; use OnFailure or ExitCode", "jaxjob");
  expect({{"hosts_count", nullptr}}, "hosts_count is null; use a whole number");
  expect({{"token", "x"}, {"token_secret", "y"}}, "variables: token and token_secret are both set");
  expect({{"user", 0}}, "variables: user is 0; use a whole number from 1 to");
  expect(
      {{"ttl", 5}},
      "variables: kind trainjob has no variable ttl; remove it, or choose another --kind (indexed-job jaxjob jobset)",
      "trainjob");
  expect({{"runtime", "x"}}, "variables: kind indexed-job has no variable runtime");
  EXPECT_THROWS(complete(Json::array()), Error, "variables: expected an object");
}

TEST(Variables, AUserTemplateMayHaveOtherVariables) {
  EXPECT_EQ(complete_variables({{"colour", "red"}}, {.allow_unknown = true})["colour"], "red");
  EXPECT_THROWS(complete_variables({{"hosts_count", 0}}, {.allow_unknown = true}), Error, "hosts_count is 0");
}

TEST(Variables, AssignmentsAreJsonOrStrings) {
  Json all = {{"hosts_count", 2}};
  for (const char* each : {"hosts_count=3", "name=mnist", "args=[\"train\"]", "gpus=true", "image=a=b", "service="})
    set_variable(all, each);
  EXPECT_EQ(all, Json({{"hosts_count", 3},
                       {"name", "mnist"},
                       {"args", Json::array({"train"})},
                       {"gpus", true},
                       {"image", "a=b"},
                       {"service", ""}}));
  EXPECT_THROWS(set_variable(all, "hosts_count"), Error,
                "variables: \"hosts_count\" is not NAME=VALUE; write it as in hosts_count=2");
  EXPECT_THROWS(set_variable(all, "=3"), Error, "variables: \"=3\" is not NAME=VALUE");
  EXPECT_THROWS(set_variable(all, "env={\"A\":\"1\",\"A\":\"2\"}"), Error,
                "variables: env: the key \"A\" occurs twice in one object; remove one");
}

TEST(Variables, DeeplyNestedValuesAreRejected) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  deep += "1" + std::string(100'000, '}');
  Json all = Json::object();
  EXPECT_THROWS(set_variable(all, "node_selector=" + deep), Error, "variables: node_selector: more than 16 objects");
  EXPECT_THROWS(parse_variables("{\"node_selector\":" + deep + "}", "v.json"), Error, "v.json: more than 16 objects");
}

TEST(Variables, FilesAreJsonObjects) {
  EXPECT_EQ(parse_variables("{\"hosts_count\": 2}\n", "v.json")["hosts_count"], 2);
  EXPECT_THROWS(parse_variables("{\n\"a\": 1,\n}", "v.json"), Error, "v.json:3: invalid JSON");
  EXPECT_THROWS(parse_variables("", "v.json"), Error, "v.json:1: invalid JSON");
  EXPECT_THROWS(parse_variables("{\"name\": \"a\", \"name\": \"b\"}", "v.json"), Error,
                "v.json: the key \"name\" occurs twice in one object; remove one");
  EXPECT_THROWS(parse_variables("[1]", "v.json"), Error, "v.json: expected an object, such as {\"hosts_count\": 2}");
}

}  // namespace
}  // namespace lockstep
