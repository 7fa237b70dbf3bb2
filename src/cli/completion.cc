// Completion scripts, made from the parser itself, so that they know every command, flag and value there is.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/choice_check.h"
#include "cli/command.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

struct Word {
  std::string text, help;
};

struct Flag {
  std::string text, help;  // "--model"
  bool takes_value = false;
  Words values;  // those that can be listed
  Words shorts;  // "-m"
};

// A command, by its words: "lockstep data fetch".
struct Node {
  std::string path;
  std::vector<Word> commands;
  std::vector<Flag> flags;
  Words arguments;             // values of its positional arguments that can be listed
  bool has_arguments = false;  // it has positional arguments
};

// The values of an option: of "{mnist,fashion-mnist}", which is how the parser describes a list to choose from, or the
// lower-case words of "auto|all|N".
Words values_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  char separator = '|';
  if (const size_t open = type.find('{'), close = type.find('}'); open != type.npos && close != type.npos) {
    type = type.substr(open + 1, close - open - 1);
    separator = ',';
  } else if (type.find('|') == type.npos) {
    return {};
  }
  Words out(1);
  for (const char c : type)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  std::erase_if(out, [](const std::string& word) {
    return std::any_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  });
  return out;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Node>& out) {
  Node node;
  node.path = path;
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) node.commands.push_back({command->get_name(), command->get_description()});
  for (const CLI::Option* option : app.get_options()) {
    const Words values = values_of(*option);
    Words shorts;
    for (const std::string& name : option->get_snames()) shorts.push_back(fmt::format("-{}", name));
    for (const std::string& name : option->get_lnames())
      node.flags.push_back(
          {fmt::format("--{}", name), option->get_description(), option->get_items_expected_max() > 0, values, shorts});
    if (!option->get_positional()) continue;
    node.has_arguments = true;
    node.arguments.insert(node.arguments.end(), values.begin(), values.end());
  }
  out.push_back(std::move(node));
  for (const CLI::App* command : commands) collect(*command, fmt::format("{} {}", path, command->get_name()), out);
}

// A case pattern that is true behind a flag of a node, by any of its names: `"lockstep get --output" | "lockstep get
// -o"`.
std::string behind(const Node& node, const Flag& flag) {
  std::string out = fmt::format("\"{} {}\"", node.path, flag.text);
  for (const std::string& name : flag.shorts) out += fmt::format(" | \"{} {}\"", node.path, name);
  return out;
}

std::string bash_words(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

// A case pattern that is true below the commands' parents: the words that lead from one node to the next.
std::string steps(const std::vector<Node>& nodes) {
  std::string out;
  for (const Node& node : nodes)
    for (const Word& command : node.commands)
      out += fmt::format("{}\"{} {}\"", out.empty() ? "" : " | ", node.path, command.text);
  return out;
}

std::string bash_script(const std::vector<Node>& nodes) {
  std::string choices, values;
  for (const Node& node : nodes) {
    Words flags, words = node.arguments;
    for (const Flag& flag : node.flags) flags.push_back(flag.text);
    for (const Word& command : node.commands) words.push_back(command.text);
    if (words.empty() && !node.has_arguments) words = flags;
    choices +=
        fmt::format("    \"{}\") words=\"{}\" flags=\"{}\" ;;\n", node.path, bash_words(words), bash_words(flags));
    for (const Flag& flag : node.flags)
      if (flag.takes_value)
        values += fmt::format("    {}) words=\"{}\" flags= ;;\n", behind(node, flag), bash_words(flag.values));
  }
  return fmt::format(
      R"(# Completion of lockstep for bash. To use it: source <(lockstep completion bash)
_lockstep() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} node=lockstep words= flags= i
  # --flag=value arrives in three words.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$node ${{COMP_WORDS[i]}}" in
      "lockstep launch --") node=lockstep ;; # a command of its own follows
      {}) node+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$node" in
{}  esac
  case "$node $prev" in
{}  esac
  if [[ $cur == -* ]]; then words=$flags; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _lockstep lockstep
)",
      steps(nodes), choices, values);
}

// 'word:help' for _describe, in which colons, backslashes and quotes must not be taken for what they are not.
std::string zsh_entry(const std::string& word, const std::string& help) {
  std::string out = fmt::format("'{}:", word);
  for (const char c : help) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out += '\'';
}

// With a space in between.
void append(std::string& words, const std::string& word) {
  if (!words.empty()) words += ' ';
  words += word;
}

std::string zsh_script(const std::vector<Node>& nodes) {
  std::string choices, values;
  for (const Node& node : nodes) {
    std::string words, flags;
    for (const Word& command : node.commands) append(words, zsh_entry(command.text, command.help));
    for (const std::string& argument : node.arguments) append(words, zsh_entry(argument, ""));
    for (const Flag& flag : node.flags) append(flags, zsh_entry(flag.text, flag.help));
    if (words.empty() && !node.has_arguments) words = flags;
    choices += fmt::format("    \"{}\")\n      choices=({})\n      flags=({})\n      ;;\n", node.path, words, flags);
    for (const Flag& flag : node.flags)
      if (flag.takes_value)
        values += fmt::format("    {}) {}; return ;;\n", behind(node, flag),
                              flag.values.empty() ? "_files" : fmt::format("compadd -- {}", bash_words(flag.values)));
  }
  return fmt::format(
      R"(#compdef lockstep
# Completion of lockstep for zsh. To use it: source <(lockstep completion zsh), after compinit
_lockstep() {{
  local node=lockstep cur=${{words[CURRENT]}} prev=${{words[CURRENT - 1]}} i
  local -a choices flags
  if [[ $cur == --*=* ]]; then
    prev=${{cur%%=*}}
    compset -P '*='
  fi
  for ((i = 2; i < CURRENT; i++)); do
    case "$node ${{words[i]}}" in
      "lockstep launch --") node=lockstep ;; # a command of its own follows
      {}) node+=" ${{words[i]}}" ;;
    esac
  done
  case "$node" in
{}  esac
  case "$node $prev" in
{}  esac
  if [[ $cur == -* ]]; then
    _describe -o flag flags
  elif (( $#choices )); then
    _describe choice choices
  else
    _files
  fi
}}
if [[ ${{funcstack[1]}} == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)",
      steps(nodes), choices, values);
}

}  // namespace

void add_completion_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("completion", "print a script that completes commands in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "which shell; `source <(lockstep completion bash)` turns it on")
      ->required()
      ->check(one_of({"bash", "zsh"}));
  command->callback([shell, &program, &action] {
    action = [shell, &program] {
      std::vector<Node> nodes;
      collect(program, "lockstep", nodes);
      fmt::print("{}", *shell == "bash" ? bash_script(nodes) : zsh_script(nodes));
      return kDone;
    };
  });
}

}  // namespace lockstep::cli
