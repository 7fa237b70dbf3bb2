// `lockstep version`: the version, the build and the libraries that it finds on this machine.
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/file.h"
#include "base/os/http.h"
#include "lockstep/version.h"
#include "support/program.h"

namespace lockstep {
namespace {

nlohmann::json version_json(const Words& variables = {}) {
  const ProcessResult result =
      run_process(Words{"env"} + variables + Words{program_path(), "version", "-o", "json"}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return nlohmann::json::parse(result.output);
}

// Broken files in place of libcurl, in a folder that the dynamic linker searches first.
std::string folder_without_curl(const TempDir& dir) {
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) std::ofstream(dir.path() + "/" + name) << "x";
  return "LD_LIBRARY_PATH=" + dir.path();
}

TEST(Version, TextHasTheSameContentsAsJson) {
  const nlohmann::json json = version_json();
  const std::string text = run_lockstep({"version"}).output;
  EXPECT_EQ(text.find("lockstep " LOCKSTEP_VERSION "\n  commit "), 0u) << text;
  EXPECT_EQ(json["version"], LOCKSTEP_VERSION);
  const std::string commit = json["commit"];
  EXPECT_TRUE(std::regex_match(commit, std::regex("unknown|[0-9a-f]{12,40}(-dirty)?"))) << commit;
  for (const char* key : {"commit", "build_type", "compiler", "machine"})
    EXPECT_NE(text.find(json[key].get<std::string>()), std::string::npos) << key << " in\n" << text;
  EXPECT_EQ(json["features"].size(), 7u);
  for (const auto& [name, feature] : json["features"].items()) {
    EXPECT_NE(text.find("\n  " + name + " "), std::string::npos) << name << " in\n" << text;
    EXPECT_EQ(feature["available"].get<bool>(), !feature["used"].get<std::string>().empty()) << name;
    EXPECT_EQ(feature["available"].get<bool>(), feature["reason"].get<std::string>().empty()) << name;
  }
  EXPECT_NE(json["features"]["matrix products"]["used"].get<std::string>().find("OpenBLAS"), std::string::npos);
#ifdef LOCKSTEP_WITH_MPI
  EXPECT_TRUE(json["features"]["collectives over MPI"]["available"].get<bool>());
#endif
}

TEST(Version, MissingCurlIsReportedAndDownloadsSayWhatToInstall) {
  if (http_library().empty()) GTEST_SKIP() << "built without libcurl";
  const TempDir dir;
  const std::string broken = folder_without_curl(dir);
  EXPECT_EQ(version_json({broken})["features"]["HTTPS"]["reason"], "not available: libcurl is missing");
  EXPECT_TRUE(version_json()["features"]["HTTPS"]["available"].get<bool>());
  const ProcessResult result = run_process(
      {"env", broken, "PATH=/nonexistent", program_path(), "data", "fetch", "mnist", "--dir", dir.path() + "/data"},
      std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("cannot load libcurl (" + dir.path() + "/libcurl.so.4: "), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("); install the package libcurl4"), std::string::npos) << result.output;
}

TEST(Version, OutputFormatIsChecked) {
  expect_usage_error({"version", "-o", "xml"},
                     "version: --output: \"xml\" is not one of text, json; see `lockstep version --help`");
}

}  // namespace
}  // namespace lockstep
