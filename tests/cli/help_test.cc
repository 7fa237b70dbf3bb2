// Help, documentation and completion cover every command and flag. Help fits the terminal.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/file.h"
#include "base/os/process.h"
#include "base/runtime_settings.h"
#include "support/in_folder.h"
#include "support/program.h"
#include "support/variable.h"
#include "train/config.h"

namespace lockstep {
namespace {

using Command = std::vector<std::string>;

// The help depends on the width of the terminal; each text is printed once.
const std::string& help_of(Command command) {
  static std::map<std::pair<std::string, Command>, std::string> known;
  const char* const columns = std::getenv("COLUMNS");
  const auto [at, missing] = known.try_emplace({columns ? columns : "", command});
  if (!missing) return at->second;
  command.emplace_back("--help");
  const ProcessResult result = run_lockstep(command);
  EXPECT_EQ(result.exit_code, 0);
  return at->second = result.output;
}

// Collects the program's commands from the titles and lists of its help.
void collect(const Command& command, std::vector<Command>& out) {
  out.push_back(command);
  std::istringstream lines(help_of(command));
  bool listed = false;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, std::regex("(Commands|Training|Jobs|Diagnostics|Program):"))) {
      listed = true;
    } else if (line.ends_with(':')) {
      listed = false;
    } else if (listed && std::regex_search(line, match, std::regex("^  ([a-z]+)  "))) {
      Command next = command;
      next.push_back(match[1]);
      collect(next, out);
    }
  }
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> out;
    collect({}, out);
    return out;
  }();
  return all;
}

// All flags that the text mentions.
std::set<std::string> flags_of(const std::string& text) {
  const std::regex flag("--[a-z][a-z0-9-]*");
  std::set<std::string> out;
  for (std::sregex_iterator each(text.begin(), text.end(), flag), end; each != end; ++each) out.insert(each->str());
  return out;
}

// The flags that a help text describes, without those of examples and descriptions.
std::set<std::string> described_flags(const std::string& help) {
  std::set<std::string> out;
  std::istringstream lines(help);
  std::smatch match;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, match, std::regex("^  (?:-[a-zA-Z], )?(--[a-z][a-z0-9-]*)"))) out.insert(match[1]);
  return out;
}

std::string words_of(const Command& command) {
  std::string out = "lockstep";
  for (const std::string& word : command) out += ' ' + word;
  return out;
}

TEST(Help, EveryCommandIsListed) {
  std::set<std::string> found;
  for (const Command& command : commands())
    if (command.size() == 1) found.insert(command[0]);
  const std::set<std::string> defined = {
#define COMMAND(name, title) #name,
#include "cli/commands.def"
#undef COMMAND
  };
  EXPECT_EQ(found, defined);
}

TEST(Help, TrainHasAFlagForEverySettingWithItsDefault) {
  // Lines may be wrapped between any two words.
  const std::string help = std::regex_replace(help_of({"train"}), std::regex("\\s+"), " ");
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(flags_of(help).contains(key.flag())) << key.flag();
    EXPECT_NE(help.find(std::string(key.help)), std::string::npos) << key.help;
    EXPECT_NE(help.find(std::string(key.group) + ":"), std::string::npos) << key.group;
  }
  EXPECT_NE(help.find("(default: 0.001)"), std::string::npos);
  EXPECT_NE(help.find("Exit codes: 0 success 1 the run failed"), std::string::npos) << help;
}

// The help as printed with this value of COLUMNS.
std::string help_at(int columns, Command command) {
  const ScopedVariable variable("COLUMNS", std::to_string(columns));
  return help_of(std::move(command));
}

TEST(Help, FitsInEightyColumnsWithoutATerminal) {
  const ScopedVariable unset("COLUMNS", std::nullopt);
  for (const Command& command : commands()) {
    std::istringstream lines(help_of(command));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << words_of(command) << ": " << line;
      EXPECT_FALSE(line.ends_with(' ')) << words_of(command) << ": " << line;
    }
  }
}

TEST(Help, WrapsAtTheWidthOfTheTerminalBetweenWords) {
  const auto joined = [](const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), ""); };
  const auto longest = [](const std::string& text) {
    size_t out = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) out = std::max(out, line.size());
    return out;
  };
  const std::string wide = help_at(200, {"train"}), narrow = help_at(60, {"train"});
  EXPECT_GT(longest(wide), 80u);
  EXPECT_LE(longest(wide), 200u);
  EXPECT_EQ(joined(wide), joined(narrow));
  // Whole words move to the next line. Lists of values are split after a bar.
  std::set<std::string> words;
  std::istringstream in(wide);
  for (std::string word; in >> word;) words.insert(word);
  std::istringstream split(narrow);
  for (std::string word; split >> word;)
    EXPECT_TRUE(
        words.contains(word) || word.find('|') != word.npos ||
        std::any_of(words.begin(), words.end(), [&](const std::string& each) { return each.ends_with("|" + word); }))
        << word;
}

TEST(Help, EveryCommandEndsWithTwoExamples) {
  for (const Command& command : commands()) {
    const std::string help = help_of(command);
    const size_t begin = help.rfind("\nExamples:\n");
    ASSERT_NE(begin, std::string::npos) << words_of(command);
    const std::string examples = help.substr(begin + 11);
    EXPECT_GE(std::count(examples.begin(), examples.end(), '\n'), 2) << words_of(command);
    EXPECT_EQ(examples.find("\n\n"), std::string::npos) << words_of(command);
    EXPECT_NE(examples.find("lockstep"), std::string::npos) << words_of(command);
  }
}

TEST(Help, LongListsOfFlagsAreGrouped) {
  for (const Command& command : commands()) {
    const std::string help = help_of(command);
    if (described_flags(help).size() <= 15) continue;
    const auto titles = std::count_if(help.begin() + 1, help.end(), [before = ' '](char c) mutable {
      const bool title = before == ':' && c == '\n';
      before = c;
      return title;
    });
    EXPECT_GE(titles, 4) << words_of(command);
  }
}

std::string reference_page(const std::string& name) {
  const std::vector<uint8_t> bytes =
      FileSystem::real().read_file(LOCKSTEP_SOURCE_DIR "/docs/reference/" + name + ".md");
  return {bytes.begin(), bytes.end()};
}

TEST(Help, EnvironmentPageHasARowForEveryRuntimeSetting) {
  const std::string page = reference_page("environment");
  for (const detail::RuntimeSetting& each : detail::runtime_settings()) {
    const std::string metavar = std::regex_replace(std::string(each.metavar), std::regex("\\|"), "\\|");
    const std::string row =
        fmt::format("\n| `{}` | `{}{}{}` | {} | {} | {} |\n", each.variable, each.flag, metavar.empty() ? "" : " ",
                    metavar, each.option.empty() ? "" : fmt::format("`{}`", each.option), each.initial, each.help);
    EXPECT_NE(page.find(row), page.npos) << "docs/reference/environment.md lacks" << row;
  }
}

TEST(Help, DocumentationHasEveryCommandAndFlag) {
  std::string text;
  for (const char* page : {"commands", "settings", "job-commands", "diagnostic-commands"})
    text += reference_page(page) + "\n## \n";  // ends the last section of the page
  const std::set<std::string> runtime_flags = flags_of(reference_page("environment"));
  for (const Command& command : commands()) {
    const size_t begin = text.find("\n## `" + words_of(command) + "`");
    ASSERT_NE(begin, std::string::npos) << words_of(command);
    const std::string section = text.substr(begin, text.find("\n## ", begin + 1) - begin);
    const std::string help = help_of(command);
    const auto described = described_flags(help), mentioned = flags_of(help), written = flags_of(section);
    const bool has_runtime_flags = section.find("(environment.md") != section.npos;
    for (const std::string& flag : described)
      EXPECT_TRUE(flag == "--help" || written.contains(flag) || (has_runtime_flags && runtime_flags.contains(flag)))
          << words_of(command) << " " << flag;
    for (const std::string& flag : written)
      EXPECT_TRUE(flag == "--help" || mentioned.contains(flag)) << words_of(command) << " " << flag;
  }
}

// The path of a file with the output of `lockstep completion bash`.
const std::string& bash_completion() {
  static const TempDir dir;
  static const std::string path = [] {
    const std::string script = RunningProgram({program_path(), "completion", "bash"}).wait().out,
                      file = dir.path() + "/lockstep";
    FileSystem::real().write(file, std::vector<uint8_t>(script.begin(), script.end()));
    return file;
  }();
  return path;
}

// What bash offers after these words, the last of which is being typed, as completion sees them.
std::set<std::string> bash_offers(const Command& words) {
  std::string quoted;
  for (const std::string& word : words) quoted += " '" + word + "'";
  const std::string script = "source '" + bash_completion() +
                             "'\n"
                             "complete -p lockstep | grep -q -- '-F _lockstep' || exit 9\n"
                             "COMP_WORDS=(lockstep" +
                             quoted +
                             ")\n"
                             "COMP_CWORD=" +
                             std::to_string(words.size()) +
                             "\n"
                             "_lockstep\n"
                             "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const ProcessResult result = run_process({"bash", "--norc", "-c", script}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  std::istringstream lines(result.output);
  std::set<std::string> out;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) out.insert(line);
  return out;
}

using Offers = std::set<std::string>;

TEST(Completion, BashOffersCommandsFlagsAndValues) {
  EXPECT_EQ(bash_offers({"tr"}), (Offers{"train"}));
  EXPECT_EQ(bash_offers({"d"}), (Offers{"data", "delete", "describe", "devices", "doctor"}));
  EXPECT_EQ(bash_offers({"get", ""}), (Offers{"all", "events", "jaxjobs", "jobs", "pods"}));
  EXPECT_EQ(bash_offers({"get", "pods", "-o", ""}), (Offers{"json", "name", "wide", "yaml"}));
  EXPECT_EQ(bash_offers({"logs", "--on", "s"}), (Offers{"slurm"}));
  EXPECT_EQ(bash_offers({"data", ""}), (Offers{"fetch", "list", "tokenize", "train-tokenizer", "verify"}));
  EXPECT_EQ(bash_offers({"data", "fetch", ""}), (Offers{"mnist", "fashion-mnist", "cifar10", "moby-dick", "sotu"}));
  EXPECT_EQ(bash_offers({"data", "fetch", "--d"}), (Offers{"--dir"}));
  EXPECT_EQ(bash_offers({"train", "--learn"}), (Offers{"--learning-rate"}));
  EXPECT_EQ(bash_offers({"train", "--model", ""}), (Offers{"mlp", "mlp1024", "cnn", "vit", "resnet18", "gpt"}));
  EXPECT_EQ(bash_offers({"train", "--model", "=", "c"}), (Offers{"cnn"}));
  EXPECT_EQ(bash_offers({"train", "--model", "="}), (Offers{"mlp", "mlp1024", "cnn", "vit", "resnet18", "gpt"}));
  EXPECT_EQ(bash_offers({"train", "--devices", "a"}), (Offers{"auto", "all"}));
  EXPECT_EQ(bash_offers({"train", "--batch-size", "1"}), Offers());
  EXPECT_EQ(bash_offers({"completion", ""}), (Offers{"bash", "fish", "zsh"}));
  EXPECT_EQ(bash_offers({"ma"}), Offers()) << "a hidden command";
  EXPECT_EQ(bash_offers({"xyzzy"}), Offers());
}

TEST(Completion, BashOffersTheNamesOfRunsAndJobs) {
  const InNewFolder here;
  const ScopedVariable state("LOCKSTEP_STATE_DIR", here.path() + "/state"), on("LOCKSTEP_ON", std::nullopt),
      idle("LOCKSTEP_DAEMON_IDLE", "1"), path("PATH", std::string(LOCKSTEP_BINARY_DIR) + ":" + ::getenv("PATH"));
  FileSystem::real().make_dirs("runs/2026-01-31-mlp-1");
  FileSystem::real().make_dirs("runs/$(touch expanded)");
  FileSystem::real().make_dirs("checkpoints");
  for (const Command& command : {Command{"eval"}, {"inspect"}, {"runs", "show"}, {"runs", "delete"}}) {
    Command words = command;
    words.emplace_back("");
    EXPECT_EQ(bash_offers(words), (Offers{"last", "best", "2026-01-31-mlp-1", "runs", "checkpoints"}))
        << words_of(command);
  }
  EXPECT_EQ(bash_offers({"train", "--resume", "2"}), (Offers{"2026-01-31-mlp-1"}));
  EXPECT_EQ(bash_offers({"train", "--init-from", "c"}), (Offers{"checkpoints"}));
  EXPECT_EQ(bash_offers({"logs", ""}), Offers());
  ASSERT_EQ(run_lockstep({"submit", "--name", "quick", "--", "version"}).exit_code, 0);
  for (const char* command : {"logs", "delete", "describe", "wait"})
    EXPECT_EQ(bash_offers({command, "q"}), (Offers{"quick"})) << command;
  run_lockstep({"delete", "quick"});
  EXPECT_FALSE(FileSystem::real().exists("expanded"));
}

TEST(Completion, BashOffersEveryFlagOfEveryCommand) {
  for (Command command : commands()) {
    const std::set<std::string> flags = described_flags(help_of(command));
    command.emplace_back("--");
    const Offers offers = bash_offers(command);
    for (const std::string& flag : offers) EXPECT_TRUE(flags.contains(flag)) << words_of(command) << " " << flag;
    EXPECT_TRUE(offers.contains("--help")) << words_of(command);
  }
  const Offers train = bash_offers({"train", "--"});
  for (const ConfigKey& key : config_keys()) EXPECT_TRUE(train.contains(key.flag())) << key.flag();
}

// The functions of zsh's completion system that the script calls, made to print what they are given.
constexpr const char* kZshPrinters = R"(
compdef() { :; }
compset() { :; }
compadd() { shift; print -l -- "$@"; }
_files() { print files; }
_describe() { local name=${@[-1]}; print -l -- "${(@P)name}"; }
)";

TEST(Completion, ZshOffersCommandsFlagsAndValues) {
  if (find_program("zsh").empty()) GTEST_SKIP() << "zsh is not installed";
  const InNewFolder dir;
  const std::string script = RunningProgram({program_path(), "completion", "zsh"}).wait().out;
  const std::string file = dir.path() + "/_lockstep";
  FileSystem::real().write(file, std::vector<uint8_t>(script.begin(), script.end()));
  EXPECT_EQ(run_process({"zsh", "-n", file}, std::chrono::seconds(60)).output, "");
  const auto offers = [&](const std::string& typed, int current) {
    return run_process({"zsh", "-f", "-c",
                        kZshPrinters + ("source " + file + "; words=(lockstep " + typed +
                                        "); CURRENT=" + std::to_string(current) + "; _lockstep")},
                       std::chrono::seconds(60))
        .output;
  };
  EXPECT_NE(offers("''", 2).find("data:download and verify data sets, and tokenize text\n"), std::string::npos)
      << offers("''", 2);
  EXPECT_EQ(offers("train --model ''", 4), "mlp\nmlp1024\ncnn\nvit\nresnet18\ngpt\n");
  EXPECT_EQ(offers("train --model=c", 3), "mlp\nmlp1024\ncnn\nvit\nresnet18\ngpt\n");
  EXPECT_EQ(offers("train --log-dir ''", 4), "files\n");
  EXPECT_EQ(offers("inspect ''", 3), "last:\nbest:\nfiles\n");
  EXPECT_NE(offers("train --", 3).find("--learning-rate:peak learning rate"), std::string::npos);
  EXPECT_NE(offers("data fetch ''", 4).find("mnist:\n"), std::string::npos);
}

TEST(Completion, FishOffersCommandsFlagsAndValues) {
  if (find_program("fish").empty()) GTEST_SKIP() << "fish is not installed";
  const TempDir dir;
  const std::string file = dir.path() + "/lockstep.fish";
  const std::string script = RunningProgram({program_path(), "completion", "fish"}).wait().out;
  FileSystem::real().write(file, std::vector<uint8_t>(script.begin(), script.end()));
  std::ofstream(dir.path() + "/a file");
  // Prints the offers for each line, with its number. One process, since fish takes a while to start.
  const std::vector<std::string> typed = {"lockstep da",
                                          "lockstep train --model ",
                                          "lockstep train --model=c",
                                          "lockstep data fetch cif",
                                          "lockstep get pods -o ",
                                          "lockstep train --learning-r",
                                          "lockstep inspect a",
                                          "lockstep launch -- tra",
                                          "lockstep doctor ",
                                          "lockstep ma"};
  std::string commands = "source " + file + "; cd " + dir.path();
  for (size_t i = 0; i < typed.size(); ++i)
    commands += fmt::format("; complete -C '{}' | string replace -r '^' '{} '", typed[i], i);
  const ProcessResult result = run_process({"env", "HOME=" + dir.path(), "XDG_CONFIG_HOME=" + dir.path(),
                                            "XDG_DATA_HOME=" + dir.path(), "fish", "-N", "-c", commands},
                                           std::chrono::seconds(60));
  EXPECT_EQ(result.output,
            "0 data\tdownload and verify data sets, and tokenize text\n"
            "1 cnn\n1 gpt\n1 mlp\n1 mlp1024\n1 resnet18\n1 vit\n"
            "2 --model=cnn\n"
            "3 cifar10\n"
            "4 json\n4 name\n4 wide\n4 yaml\n"
            "5 --learning-rate\tpeak learning rate (default: 0.001)\n"
            "6 a file\n"
            "7 train\ttrain, evaluate and save a model\n");
}

}  // namespace
}  // namespace lockstep
