// The command line of lockstep launch.
#include "support/program.h"

namespace lockstep {
namespace {

TEST(LaunchCommand, WrongCommandLinesNameTheRemedy) {
  const std::string help = "; see `lockstep launch --help`";
  const std::string example = "such as `lockstep launch -n 2 --devices 8 -- train --model mlp`";
  expect_usage_error({"launch", "-n", "2", "train", "--model", "mlp"},
                     "launch: no command after --; add one, " + example);
  expect_usage_error({"launch", "-n", "2", "--"}, "launch: no command after --; add one, " + example);
  expect_usage_error({"launch", "--", "train"},
                     "launch: the number of processes is missing; give -n or --hosts, " + example);
  for (const char* wrong : {"0", "-1", "1025", "two", "2x"})
    expect_usage_error(
        {"launch", std::string("--processes=") + wrong, "--", "train"},
        "launch: --processes: \"" + std::string(wrong) + "\" is not a whole number from 1 to 1024" + help);
  expect_usage_error({"launch", "-n", "2", "--devices", "0", "--", "train"},
                     "launch: --devices: \"0\" is not auto, all or a number from 1 to 131072" + help);
  expect_usage_error({"launch", "-n", "2", "--grace", "-1", "--", "train"},
                     "launch: --grace: \"-1\" is not a time from 0 to 86400 s" + help);
  expect_usage_error({"launch", "-n", "2", "--devcies", "8", "--", "train"},
                     "launch: unknown flag --devcies; did you mean \"--devices\"?" + help.substr(1));
  expect_usage_error({"launch", "-n", "2", "--", "trian"},
                     "launch: unknown command \"trian\"; did you mean \"train\"? to start another program, give its "
                     "path or use --program");
  expect_usage_error({"launch", "-n", "2", "--", "launch"},
                     "launch: launch cannot start itself; give another command after --");
  expect_usage_error({"launch", "-n", "2", "--", "/no/such"},
                     "launch: \"/no/such\" is not an executable file; check the path");
  expect_usage_error({"launch", "-n", "2", "--program", "nosuch"},
                     "launch: \"nosuch\" was not found on the PATH; give the path of the program");
  expect_usage_error({"launch", "--hosts", "a:0", "--", "train"},
                     "launch: --hosts: \"a:0\" has \"0\" slots; give a number from 1 to 1024");
  expect_usage_error({"launch", "--hosts", "a:1024,b", "--", "train"}, "launch: 1025 processes; at most 1024");
  expect_usage_error(
      {"launch", "-n", "3", "--hosts", "a,b", "--", "train"},
      "launch: -n 3: --hosts has only 2 slots; give hosts more slots, such as HOST:4, or start fewer processes");
  expect_usage_error({"launch", "--hosts", "a", "--ssh", " ", "--", "train"},
                     "launch: --ssh is empty; give a command, such as 'ssh -p 2222'");
}

TEST(LaunchCommand, NumberOfProcessesMustBeANumber) {
  const std::string example = "such as `lockstep launch -n 2 --devices 8 -- train --model mlp`";
  expect_usage_error({"launch", "-n"}, "launch: -n needs a number, " + example);
  expect_usage_error({"launch", "-n", "--", "devices"}, "launch: -n needs a number, " + example);
  expect_usage_error({"launch", "--processes", "--no-pin", "--", "devices"},
                     "launch: --processes needs a number, " + example);
  expect_usage_error({"launch", "-np", "2", "--", "devices"},
                     "launch: unknown flag -np; did you mean \"-n\"? " + example);
}

TEST(LaunchCommand, StartedCommandIsCheckedOnceBeforeAnyProcessStarts) {
  expect_usage_error({"launch", "-n", "2", "--", "train", "--modle", "cnn"},
                     "train: unknown flag --modle; did you mean \"--model\"? see `lockstep train --help`");
  const auto refused = [](const std::vector<std::string>& words, const std::string& part) {
    const ProcessResult result = run_lockstep(words);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  refused({"launch", "-n", "2", "--", "train", "--steps=x"}, "train: --steps: ");
  refused({"launch", "-n", "2", "--", "train", "--model", "resnet"}, "train: model: ");
  refused({"launch", "-n", "2", "--", "train", "--model", "resnet", "--print-schedule"}, "train: model: ");
  refused({"launch", "-n", "2", "--", "devices", "extra"}, "devices: unexpected argument \"extra\"");
}

TEST(LaunchCommand, CompletionCoversTheStartedCommand) {
  const ProcessResult result = run_process(
      {"bash", "--norc", "-c",
       "source <('" + program_path() +
           "' completion bash)\nCOMP_WORDS=(lockstep launch -n 2 -- train --learn)\nCOMP_CWORD=6\n_lockstep\n"
           "echo ${COMPREPLY[@]}\nCOMP_WORDS=(lockstep launch --max)\nCOMP_CWORD=2\n_lockstep\necho ${COMPREPLY[@]}"},
      std::chrono::seconds(60));
  EXPECT_EQ(result.output, "--learning-rate\n--max-restarts\n");
}

}  // namespace
}  // namespace lockstep
