// Golden tests of cluster detection: environments/*.env with the expected results; see environments/README.md.
#include "cluster/detect.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/throws.h"
#include "cluster/variables.h"
#include "support/variable.h"

namespace lockstep::detail {
namespace {

struct Case {
  std::string file, title;
  distributed::Options options;
  LaunchEnvironment launch;
  std::string answer, error;
  std::vector<std::string> results;
};

void set_option(distributed::Options& options, const std::string& name, const std::string& value) {
  if (name == "coordinator_address") {
    options.coordinator_address = value;
  } else if (name == "num_processes") {
    options.num_processes = std::stoi(value);
  } else if (name == "process_id") {
    options.process_id = std::stoi(value);
  } else if (name == "coordinator_bind_address") {
    options.coordinator_bind_address = value;
  } else if (name == "cluster_detection_method") {
    options.cluster_detection_method = value;
  } else if (name == "local_device_ids") {
    std::istringstream ids(value);
    for (std::string id; std::getline(ids, id, ',');) options.local_device_ids.push_back(std::stoi(id));
  } else {
    ADD_FAILURE() << "no option " << name;
  }
}

std::string after(const std::string& line, size_t n) { return line.size() > n ? line.substr(n) : ""; }

void read_line(const std::string& line, Case& out) {
  if (line.starts_with("host ")) {
    out.launch.host_name = after(line, 5);
  } else if (line.starts_with("full-host ")) {
    out.launch.full_host_name = after(line, 10);
  } else if (line.starts_with("option ")) {
    const size_t space = line.find(' ', 7);
    set_option(out.options, line.substr(7, space - 7), line.substr(space + 1));
  } else if (line.starts_with("> ")) {
    out.answer = after(line, 2);
  } else if (line.starts_with("! ")) {
    out.error = after(line, 2);
  } else if (line.starts_with("? ")) {
    out.results.push_back(after(line, 2));
  } else if (const size_t equals = line.find('='); equals != line.npos) {
    EXPECT_TRUE(out.launch.environment.emplace(line.substr(0, equals), line.substr(equals + 1)).second) << line;
  } else {
    ADD_FAILURE() << out.file << ": " << line;
  }
}

std::vector<Case> all_cases() {
  const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/cluster/environments";
  std::vector<Case> out;
  for (const std::string& file : FileSystem::real().list(folder)) {
    if (!file.ends_with(".env")) continue;
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(folder + "/" + file);
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("== ")) {
        out.emplace_back();
        out.back().file = file;
        out.back().title = after(line, 3);
      } else if (!line.empty()) {
        read_line(line, out.back());
      }
    }
  }
  return out;
}

std::string summary(const ClusterInfo& info) { return info.method + ": " + to_string(info); }

TEST(Detect, GoldenEnvironments) {
  const std::vector<Case> cases = all_cases();
  ASSERT_GT(cases.size(), 100u);
  for (const Case& each : cases) {
    SCOPED_TRACE(each.file + ": " + each.title);
    ASSERT_NE(each.answer.empty(), each.error.empty());
    std::string answer, error;
    try {
      answer = summary(detect(each.options, each.launch));
    } catch (const Error& failure) {
      error = failure.what();
    }
    EXPECT_EQ(answer, each.answer);
    EXPECT_EQ(error, each.error);
    std::set<std::string> logged;
    for (const DetectorResult& result : run_detectors(each.options, each.launch).results)
      logged.insert(result.detector + ": " + result.reason);
    for (const std::string& result : each.results) EXPECT_TRUE(logged.contains(result)) << result;
  }
}

TEST(Detect, EveryDetectorHasGoldenAnswersAndErrors) {
  std::set<std::string> answered;
  for (const Case& each : all_cases()) answered.insert(each.answer.substr(0, each.answer.find(':')));
  for (const std::string& name : detector_names()) EXPECT_TRUE(answered.contains(name)) << name;
}

// Removes or corrupts each variable of every complete environment in turn. Then another detector may succeed, or the
// error names the variable; but the same detector never returns other numbers.
TEST(Detect, IncompleteEnvironmentIsNeverDetected) {
  for (const Case& each : all_cases()) {
    if (each.answer.empty() || each.answer.starts_with("none")) continue;
    SCOPED_TRACE(each.file + ": " + each.title);
    const ClusterInfo complete = detect(each.options, each.launch);
    for (const auto& [name, value] : each.launch.environment) {
      SCOPED_TRACE(name);
      LaunchEnvironment less = each.launch;
      less.environment.erase(name);
      try {
        const ClusterInfo info = detect(each.options, less);
        if (info.method == complete.method) {
          EXPECT_EQ(info.process_count, complete.process_count);
          EXPECT_EQ(info.process_id, complete.process_id);
        }
      } catch (const Error& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("initialize: ")) << error.what();
      }
      LaunchEnvironment corrupted = each.launch;
      corrupted.environment[name] = "?!";
      try {
        const ClusterInfo info = detect(each.options, corrupted);
        if (info.method == complete.method) {
          EXPECT_EQ(info.process_count, complete.process_count);
          EXPECT_EQ(info.process_id, complete.process_id);
        }
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Detect, ResultsReportPartiallySetAndInvalidVariables) {
  LaunchEnvironment launch;
  launch.environment = {{"SLURM_JOB_ID", "1"}, {"PMI_RANK", "x"}, {"PMI_SIZE", "2"}};
  const Detection detection = run_detectors({}, launch);
  EXPECT_FALSE(detection.chosen);
  EXPECT_EQ(detection.problem, "initialize: PMI_RANK is \"x\"; set it to an integer of at least 0, or unset it");
  for (const DetectorResult& result : detection.results) {
    EXPECT_EQ(result.partially_set, result.detector == "slurm") << result.detector;
    EXPECT_EQ(result.invalid, result.detector == "pmi") << result.detector;
    EXPECT_EQ(result.found.has_value(), result.detector == "none") << result.detector;
  }
}

TEST(Detect, UnknownMethodIsRefused) {
  distributed::Options options;
  options.cluster_detection_method = "slrum";
  try {
    detect(options, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "initialize: cluster_detection_method: unknown value \"slrum\"; choose explicit, jax, jaxjob, slurm, "
                 "ompi, pmi, jobset, kubernetes, torchrun or none; did you mean \"slurm\"?");
  }
}

TEST(Detect, FullNameIsReadFromHosts) {
  const char* const hosts =
      "# Kubernetes-managed hosts file.\n"
      "127.0.0.1\tlocalhost\n"
      "10.1.2.2 myjob-10.mysvc.default.svc.cluster.local myjob-10\n"
      "10.1.2.3\tmyjob-1.mysvc.default.svc.cluster.local\tmyjob-1 # this one\n"
      "#10.1.2.4 lonely.else lonely\n"
      "10.1.2.4 lonely\n";
  EXPECT_EQ(full_name_in_hosts(hosts, "myjob-1"), "myjob-1.mysvc.default.svc.cluster.local");
  EXPECT_EQ(full_name_in_hosts(hosts, "lonely"), "");
  EXPECT_EQ(full_name_in_hosts("", "myjob-1"), "");
}

TEST(Detect, LaunchEnvironmentIsThatOfThisProcess) {
  const ScopedVariable variable("LOCKSTEP_TEST_VARIABLE", "a=b");
  const LaunchEnvironment launch = read_launch_environment();
  EXPECT_EQ(launch.environment.at("LOCKSTEP_TEST_VARIABLE"), "a=b");
  EXPECT_FALSE(launch.host_name.empty());
}

TEST(Detect, OptionsOverrideTheirVariables) {
  const ScopedVariable port("LOCKSTEP_COORDINATOR_PORT", "1"), token("LOCKSTEP_TOKEN", "x");
  distributed::Options options;
  EXPECT_EQ(read_launch_environment(options).environment.at("LOCKSTEP_COORDINATOR_PORT"), "1");
  options.coordinator_port = 2;
  options.token_file = "secret";
  options.insecure = true;
  const Environment environment = read_launch_environment(options).environment;
  EXPECT_EQ(environment.at("LOCKSTEP_COORDINATOR_PORT"), "2");
  EXPECT_EQ(environment.at("LOCKSTEP_TOKEN_FILE"), "secret");
  EXPECT_EQ(environment.count("LOCKSTEP_TOKEN"), 0u);
  EXPECT_EQ(environment.at("LOCKSTEP_INSECURE"), "1");
  options.coordinator_port = 65536;
  EXPECT_THROWS(read_launch_environment(options), Error,
                "initialize: coordinator_port is 65536; ports are numbers from 1 to 65535");
}

}  // namespace
}  // namespace lockstep::detail
