#include "jobs/kubernetes/kubectl_text.h"

#include <gtest/gtest.h>

#include "jobs/kubernetes/followed_log.h"

namespace lockstep {
namespace {

using Texts = std::vector<std::string>;

TEST(KubectlText, AllLinesOfTheMessageAreKept) {
  EXPECT_EQ(
      kubectl_error_message("The Job \"rb\" is invalid: \n* spec.completions: Required value: when Indexed\n* "
                            "spec.x: Invalid value: 3: too small\n"),
      "The Job \"rb\" is invalid:\n  * spec.completions: Required value: when Indexed\n  * spec.x: Invalid value: "
      "3: too small");
  EXPECT_EQ(kubectl_error_message("error: no context exists\n"), "error: no context exists");
  EXPECT_EQ(kubectl_error_message(""), "");
}

TEST(KubectlText, LogLinesOfKubectlAreDropped) {
  const std::string noise =
      "E1117 23:59:59.123456    4711 memcache.go:265] couldn't get current server API group list\n";
  EXPECT_EQ(kubectl_error_message(noise + noise + "The connection to the server x was refused\n"),
            "The connection to the server x was refused");
  EXPECT_EQ(kubectl_error_message(noise), "couldn't get current server API group list");
}

TEST(KubectlText, RepeatedObjectsAreDropped) {
  EXPECT_EQ(
      kubectl_error_message("Error from server (Forbidden): error when retrieving current configuration of:\n"
                            "Resource: \"batch/v1, Resource=jobs\"\nName: \"rb\", Namespace: \"x\"\n"
                            "from server for: \"STDIN\": jobs.batch \"rb\" is forbidden: User \"u\" cannot get\n"),
      "jobs.batch \"rb\" is forbidden: User \"u\" cannot get");
  const std::string value(5000, 'x');
  EXPECT_EQ(kubectl_error_message("The Job \"rb\" is invalid: spec.template: Invalid value: T{" + value +
                                  ": 1}: field is immutable"),
            "The Job \"rb\" is invalid: spec.template: field is immutable");
  EXPECT_EQ(immutable_fields("The Job \"rb\" is invalid: spec.template: Invalid value: T{" + value +
                             ": 1}: field is immutable\n"),
            Texts{"spec.template"});
  EXPECT_EQ(immutable_fields("The Job \"rb\" is invalid: \n* spec.completions: Invalid value: 3: field is immutable\n* "
                             "spec.template: Invalid value: T{}: field is immutable\n"),
            (Texts{"spec.completions", "spec.template"}));
  EXPECT_EQ(immutable_fields("The Job \"rb\" is invalid: spec.x: Invalid value: 3: too small"), Texts{});
}

TEST(KubectlText, WarningsAreFound) {
  const std::string err = "Warning: would violate PodSecurity \"restricted\"\nWarning: second\nerror: x\n";
  EXPECT_EQ(kubectl_warnings(err), (Texts{"would violate PodSecurity \"restricted\"", "second"}));
  EXPECT_EQ(kubectl_error_message(err), "error: x");
}

TEST(KubectlText, UnreachableAndForbiddenAreRecognized) {
  EXPECT_TRUE(is_unreachable("The connection to the server 127.0.0.1:1 was refused - did you specify the right host?"));
  EXPECT_TRUE(is_unreachable("Unable to connect to the server: EOF"));
  EXPECT_TRUE(is_unreachable("Error from server (ServiceUnavailable): the server is currently unable"));
  EXPECT_FALSE(is_unreachable("Unable to connect to the server: x509: certificate signed by unknown authority"));
  EXPECT_FALSE(is_unreachable("Error from server (NotFound): jobs.batch \"x\" not found"));
  EXPECT_TRUE(is_forbidden("Error from server (Forbidden): secrets is forbidden: User"));
}

// The output of a log that arrives in these chunks; an empty chunk starts a new connection.
std::string followed(const Texts& chunks) {
  std::string out;
  FollowedLog log([&](std::string_view text) {
    out += text;
    return true;
  });
  for (const std::string& chunk : chunks)
    if (chunk.empty())
      log.start_connection();
    else
      log.add(chunk);
  return out;
}

TEST(FollowedLog, LinesOfEarlierConnectionsAreSkipped) {
  const std::string a = "2026-01-01T00:00:00.1Z one\n", b = "2026-01-01T00:00:00.200000000Z two\n",
                    c = "2026-01-01T00:00:00.200000000Z two\n", d = "2026-01-01T00:00:03Z four\n";
  EXPECT_EQ(followed({"", a + b + c + d}), "one\ntwo\ntwo\nfour\n");
  EXPECT_EQ(followed({"", a + b, "", a + b + c + d}), "one\ntwo\ntwo\nfour\n");
  // Connections end anywhere within timestamps and lines, once or twice.
  const std::string all = a + b + c + d;
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    const std::string part = all.substr(0, cut);
    EXPECT_EQ(followed({"", part + (part.empty() ? "2" : ""), "", all}), "one\ntwo\ntwo\nfour\n") << cut;
    EXPECT_EQ(followed({"", all.substr(0, cut / 2) + "", "", part + "", "", all}), "one\ntwo\ntwo\nfour\n") << cut;
  }
}

TEST(FollowedLog, NoLineIsLostIfTheClockGoesBack) {
  EXPECT_EQ(followed({"", "2026-01-01T00:00:09Z late\n2026-01-01T00:00:01Z early\n"}), "late\nearly\n");
  EXPECT_EQ(followed({"", "no time\n", "at all\n"}), "no time\nat all\n");
}

}  // namespace
}  // namespace lockstep
