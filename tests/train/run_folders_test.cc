#include "train/run_folders.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <regex>
#include <set>
#include <thread>

#include "base/os/host_name.h"
#include "base/os/run_program.h"
#include "base/throws.h"
#include "support/in_folder.h"
#include "train/folder_lock.h"
#include "train/run_origin.h"

namespace lockstep {
namespace {

class Runs : public testing::Test {
 protected:
  // A run in runs/ with this record. `created`: seconds after the first one.
  static void add(const std::string& name, RunRecord record, double created = 0) {
    const std::string folder = "runs/" + name;
    FileSystem::real().make_dirs(folder);
    record.created = record.started = record.updated = 1e9 + created;
    write_run_record(FileSystem::real(), folder, record);
  }
  static RunRecord with_metric(const std::string& dataset, const std::string& metric, double value) {
    RunRecord record{.state = RunState::complete, .dataset = dataset};
    set_evaluated_metrics(record, 1, {{metric, value}});
    return record;
  }
  static std::vector<std::string> names(const std::vector<ListedRun>& runs) {
    std::vector<std::string> out;
    for (const ListedRun& run : runs) out.push_back(run.name);
    return out;
  }
  static std::vector<ListedRun> listed() {
    std::vector<std::string> problems;
    return list_runs(problems);
  }

  InNewFolder here_;
};

TEST_F(Runs, AreNamedByDateTaskAndTheNextNumber) {
  const std::string first = create_run_folder("mlp");
  EXPECT_TRUE(std::regex_match(first, std::regex("runs/20[0-9]{2}-[0-9]{2}-[0-9]{2}-mlp-1"))) << first;
  const std::string base = first.substr(0, first.size() - 1);
  EXPECT_EQ(create_run_folder("mlp"), base + "2");
  FileSystem::real().make_dirs(base + "11");
  FileSystem::real().make_dirs(base + "x99");
  FileSystem::real().remove_tree(base + "1");
  EXPECT_EQ(create_run_folder("mlp"), base + "12");
  EXPECT_TRUE(create_run_folder("my task/é").ends_with("-my-task----1"));
  EXPECT_TRUE(create_run_folder("").ends_with("-run-1"));
}

TEST_F(Runs, ThatStartAtTheSameTimeGetDifferentFolders) {
  constexpr int kThreads = 8, kEach = 20;
  std::vector<std::vector<std::string>> made(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : made)
      threads.emplace_back([&mine] {
        for (int i = 0; i < kEach; ++i) mine.push_back(create_run_folder("mlp"));
      });
  }
  std::set<std::string> all;
  for (const auto& mine : made) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
}

TEST_F(Runs, InAFolderThatIsNotWritableAreAnErrorWithTheRemedies) {
  FileSystem::real().write("runs", {});
  EXPECT_THROWS(create_run_folder("mlp"), IoError,
                "train: cannot create runs in " + std::filesystem::current_path().string() +
                    ": Not a directory; choose "
                    "the folder of the run with --run-dir, or keep nothing with --no-save");
}

TEST_F(Runs, AreFoundByPathByNameAndAsLast) {
  EXPECT_THROWS(find_run("eval", "last"), Error, "eval: there are no runs in runs/; train one first");
  EXPECT_THROWS(find_run("eval", ""), Error, "eval: the name of the run is empty");
  add("b", {}, 1);
  FileSystem::real().write("runs/b/config.yaml", {});
  EXPECT_EQ(find_run("eval", "last"), "runs/b");
  EXPECT_EQ(find_run("eval", "b"), "runs/b");
  EXPECT_EQ(find_run("eval", "runs/b"), "runs/b");
  EXPECT_THROWS(find_run("eval", "c"), Error,
                "eval: c does not exist, and runs/ has no run of that name; `lockstep runs` lists them");
}

TEST_F(Runs, AreListedInTheOrderOfTheirCreation) {
  EXPECT_TRUE(listed().empty());
  add("b", {}, 1);
  add("c", {}, 0);
  add("a", {}, 2);
  FileSystem::real().make_dirs("runs/other");
  EXPECT_EQ(names(listed()), (std::vector<std::string>{"c", "b", "a"}));
}

TEST_F(Runs, ThatAreDamagedAreReported) {
  add("a", {});
  FileSystem::real().make_dirs("runs/b");
  FileSystem::real().append("runs/b/run.json", {});
  std::vector<std::string> problems;
  EXPECT_EQ(names(list_runs(problems)), std::vector<std::string>{"a"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].starts_with("runs/b/run.json")) << problems[0];
}

TEST_F(Runs, TheBestOneHasTheBestMetricOnTheDataOfTheNewestRun) {
  EXPECT_THROWS(find_run("eval", "best"), Error, "eval: no run in runs/ has a metric yet; name a run");
  add("a", with_metric("mnist", "test_accuracy", 0.9), 1);
  add("b", with_metric("mnist", "test_accuracy", 0.8), 2);
  add("c", with_metric("cifar10", "test_accuracy", 0.99), 0);
  add("d", {.dataset = "mnist"}, 3);
  EXPECT_EQ(find_run("eval", "best"), "runs/a");
  const std::vector<ListedRun> runs = listed();
  EXPECT_EQ(best_run(runs, "f1"), nullptr);
  add("e", with_metric("moby-dick", "validation_loss", 2.5), 4);
  add("f", with_metric("moby-dick", "validation_loss", 2.6), 5);
  EXPECT_EQ(find_run("eval", "best"), "runs/e");
  EXPECT_EQ(best_run(listed(), "test_accuracy")->name, "a");
}

TEST_F(Runs, AreLostWhenTheirProcessIsGone) {
  add("a", {.state = RunState::running, .host = own_host_name()});
  add("b", {.state = RunState::running, .host = own_host_name()}, 1);
  add("c", {.state = RunState::running, .host = "another"}, 2);
  add("d", {.state = RunState::complete, .host = own_host_name()}, 3);
  const FolderLock lock("runs/b", {});
  const std::vector<ListedRun> runs = listed();
  EXPECT_EQ(state_of(runs[0]), "lost");
  EXPECT_EQ(state_of(runs[1]), "running");
  EXPECT_EQ(state_of(runs[2]), "lost") << "its record is years old";
  EXPECT_EQ(state_of(runs[3]), "complete");
}

class RestartedRuns : public Runs {
 protected:
  const std::vector<std::string> command_ = {"lockstep", "train"};
  void add_of(const std::string& name, RunState state, std::map<std::string, std::string> jobs, double created = 0) {
    add(name, {.state = state, .command = command_, .jobs = std::move(jobs)}, created);
  }
};

TEST_F(RestartedRuns, AreThoseOfTheSameJobAndCommand) {
  add_of("a", RunState::failed, {{"launch-1", "0"}});
  add_of("b", RunState::failed, {{"launch-2", "0"}}, 1);
  EXPECT_EQ(find_restarted_run({{"launch-2", "1"}}, command_), "runs/b");
  EXPECT_EQ(find_restarted_run({{"launch-3", "1"}}, command_), "");
  EXPECT_EQ(find_restarted_run({{"launch-2", "1"}}, {"lockstep", "train", "--seed", "2"}), "");
  EXPECT_EQ(find_restarted_run({}, command_), "");
}

TEST_F(RestartedRuns, OfARestartedOuterJobAreFoundByIt) {
  add_of("a", RunState::running, {{"launch-1", "0"}, {"slurm-7", "0"}});
  EXPECT_EQ(find_restarted_run({{"launch-2", "0"}, {"slurm-7", "1", true}}, command_), "runs/a");
}

TEST_F(RestartedRuns, AreNotOtherRunsOfTheSameCommandInAScript) {
  add_of("a", RunState::complete, {{"slurm-7", "0"}});
  add_of("b", RunState::stopped, {{"slurm-7", "0"}}, 1);
  EXPECT_EQ(find_restarted_run({{"slurm-7", "0", true}}, command_), "") << "the script trains a third time";
  EXPECT_EQ(find_restarted_run({{"slurm-7", "1", true}}, command_), "runs/a") << "the script starts again";
  add_of("a", RunState::complete, {{"slurm-7", "1"}});
  EXPECT_EQ(find_restarted_run({{"slurm-7", "1", true}}, command_), "runs/b");
}

TEST_F(RestartedRuns, OfAReplicaThatRestartsAloneAreFoundUnlessComplete) {
  add_of("a", RunState::running, {{"job-1", "0"}});
  EXPECT_EQ(find_restarted_run({{"job-1", "0"}}, command_), "runs/a");
  add_of("a", RunState::complete, {{"job-1", "0"}});
  EXPECT_EQ(find_restarted_run({{"job-1", "0"}}, command_), "");
  EXPECT_EQ(find_restarted_run({{"job-1", "1"}}, command_), "runs/a");
}

TEST_F(Runs, RecordTheCommitOfTheirRepository) {
  EXPECT_EQ(git_commit_of(".").commit, "");
  const auto git = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"git", "-c", "user.name=a", "-c", "user.email=a@b"});
    return run_program(words).code == 0;
  };
  try {
    if (!git({"init", "-q"})) GTEST_SKIP() << "git does not work here";
  } catch (const Error&) {
    GTEST_SKIP() << "git is not installed";
  }
  EXPECT_EQ(git_commit_of(".").commit, "") << "there is no commit yet";
  FileSystem::real().append("file", {});
  ASSERT_TRUE(git({"add", "file"}) && git({"commit", "-q", "-m", "a"}));
  FileSystem::real().make_dirs("below");
  const GitCommit clean = git_commit_of("below");
  EXPECT_EQ(clean.commit.size(), 40u) << clean.commit;
  EXPECT_FALSE(clean.modified);
  FileSystem::real().append("new", {});
  EXPECT_FALSE(git_commit_of(".").modified) << "git does not track the new file";
  FileSystem::real().append("file", std::vector<uint8_t>{'x'});
  EXPECT_TRUE(git_commit_of(".").modified);
}

TEST(RunOrigin, TheEnvironmentOfARunHasNoSecrets) {
  EXPECT_EQ(environment_of_run({{"LOCKSTEP_TOKEN", "s"},
                                {"LOCKSTEP_TOKEN_FILE", "s"},
                                {"LOCKSTEP_PLATFORM", "cpu"},
                                {"AWS_SECRET_ACCESS_KEY", "s"},
                                {"SLURM_JOB_ID", "1"},
                                {"SLURM_CONF", "x"},
                                {"HOME", "/"}}),
            (detail::Environment{{"LOCKSTEP_PLATFORM", "cpu"}, {"SLURM_JOB_ID", "1"}}));
}

}  // namespace
}  // namespace lockstep
