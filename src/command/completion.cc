// Completion scripts for shells, generated from the parser, so that they cover every command, flag and value.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command/choice_check.h"
#include "command/commands.h"
#include "command/help.h"
#include "command/help_sections.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

struct CommandWord {
  std::string text, help;
};

// Names that the script looks up when it completes a word.
enum class Lookup { none, runs, jobs };

struct FlagWord {
  std::string text, help;  // "--model"
  bool takes_value = false;
  Words values;  // its fixed values, if any
  Words shorts;  // "-m"
  Lookup lookup = Lookup::none;
};

// A command with the words that can follow it.
struct CommandNode {
  std::string path;  // "lockstep data fetch"
  std::vector<CommandWord> commands;
  std::vector<FlagWord> flags;
  Words arguments;              // fixed values of its positional arguments
  bool has_arguments = false;   // whether it has positional arguments
  bool starts_command = false;  // whether a command of the program follows "--"
  Lookup lookup = Lookup::none;
};

// The fixed values of an option: the words of "{mnist,fashion-mnist}", as the parser describes a list of choices, or the
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

Lookup lookup_of(const CLI::Option& option, const std::string& path) {
  const std::string type = "|" + option.get_type_name() + "|";
  if (type.find("|RUN|") != type.npos) return Lookup::runs;
  if (!option.get_positional()) return Lookup::none;
  const std::string name = option.get_name(true);
  const bool job = name == "JOB" || path == "lockstep describe";
  return job ? Lookup::jobs : Lookup::none;
}

// The shell command that prints the names. Names of runs are offered beside files. compgen expands words, so names with
// characters that mean something to a shell are left out.
const char* command_of(Lookup lookup) {
  return lookup == Lookup::runs   ? "command ls runs 2>/dev/null | grep -x '[A-Za-z0-9._-]*'"
         : lookup == Lookup::jobs ? "lockstep get jobs -o name 2>/dev/null | sed 's|.*/||' | grep -x '[A-Za-z0-9._-]*'"
                                  : "";
}

void collect(const CLI::App& app, const std::string& path, std::vector<CommandNode>& out) {
  CommandNode node;
  node.path = path;
  const auto* const formatter = dynamic_cast<const HelpFormatter*>(app.get_formatter().get());
  node.starts_command = formatter && formatter->usage_end().starts_with("-- ");
  const std::vector<const CLI::App*> commands = listed_commands(app);
  for (const CLI::App* command : commands) node.commands.push_back({command->get_name(), command->get_description()});
  for (const CLI::Option* option : app.get_options()) {
    const Words values = values_of(*option);
    Words shorts;
    for (const std::string& name : option->get_snames()) shorts.push_back(fmt::format("-{}", name));
    for (const std::string& name : option->get_lnames())
      node.flags.push_back({fmt::format("--{}", name), option->get_description(), option->get_items_expected_max() > 0,
                            values, shorts, lookup_of(*option, path)});
    if (!option->get_positional()) continue;
    node.has_arguments = true;
    if (node.lookup == Lookup::none) node.lookup = lookup_of(*option, path);
    if (node.lookup == Lookup::runs && node.arguments.empty()) node.arguments = {"last", "best"};
    node.arguments.insert(node.arguments.end(), values.begin(), values.end());
  }
  out.push_back(std::move(node));
  for (const CLI::App* command : commands) collect(*command, fmt::format("{} {}", path, command->get_name()), out);
}

// The shell pattern that matches a flag of a node under any of its names:
// `"lockstep get --output" | "lockstep get -o"`.
std::string flag_pattern(const CommandNode& node, const FlagWord& flag) {
  std::string out = fmt::format("\"{} {}\"", node.path, flag.text);
  for (const std::string& name : flag.shorts) out += fmt::format(" | \"{} {}\"", node.path, name);
  return out;
}

std::string bash_words(const Words& words, Lookup lookup = Lookup::none) {
  const std::string fixed = fmt::format("{}", fmt::join(words, " "));
  if (lookup == Lookup::none) return fixed;
  return fmt::format("{}{}$({})", fixed, fixed.empty() ? "" : " ", command_of(lookup));
}

const char* bash_files(Lookup lookup) { return lookup == Lookup::runs ? " files=1" : ""; }

// The shell pattern that matches a command and one of its subcommands: `"lockstep train" | "lockstep data" | ...`.
std::string subcommand_pattern(const std::vector<CommandNode>& nodes) {
  std::string out;
  for (const CommandNode& node : nodes)
    for (const CommandWord& command : node.commands)
      out += fmt::format("{}\"{} {}\"", out.empty() ? "" : " | ", node.path, command.text);
  return out;
}

// The name of the shell function for a program: "_my_task" for "my-task".
std::string function_name(const std::string& program) {
  std::string out = "_";
  for (const char c : program)
    out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return out;
}

// The line of a script that restarts the search for words after `lockstep launch --`. Only lockstep has such commands.
std::string restart_line(const std::string& program) {
  return program == "lockstep"
             ? "      \"lockstep launch --\" | \"lockstep submit --\") node=lockstep ;; # a lockstep command follows\n"
             : "";
}

std::string bash_script(const std::string& program, const std::vector<CommandNode>& nodes) {
  std::string choices, values;
  for (const CommandNode& node : nodes) {
    Words flags, words = node.arguments;
    for (const FlagWord& flag : node.flags) flags.push_back(flag.text);
    for (const CommandWord& command : node.commands) words.push_back(command.text);
    if (words.empty() && !node.has_arguments) words = flags;
    choices += fmt::format("    \"{}\") words=\"{}\" flags=\"{}\"{} ;;\n", node.path, bash_words(words, node.lookup),
                           bash_words(flags), bash_files(node.lookup));
    for (const FlagWord& flag : node.flags)
      if (flag.takes_value)
        values += fmt::format("    {}) words=\"{}\" flags={} ;;\n", flag_pattern(node, flag),
                              bash_words(flag.values, flag.lookup), bash_files(flag.lookup));
  }
  return fmt::format(
      R"(# Bash completion for {0}. To enable it: source <({0} completion bash)
{1}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} node="{0}" words= flags= files= i
  # --flag=value arrives in three words.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$node ${{COMP_WORDS[i]}}" in
{2}      {3}) node+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$node" in
{4}  esac
  case "$node $prev" in
{5}  esac
  if [[ $cur == -* ]]; then words=$flags; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ $files && $cur != -* ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi
}}
complete -o default -F {1} {0}
)",
      program, function_name(program), restart_line(program), subcommand_pattern(nodes), choices, values);
}

// 'word:help' for _describe, with colons, backslashes and quotes escaped.
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

// Appends a word after a space.
void append(std::string& words, const std::string& word) {
  if (!words.empty()) words += ' ';
  words += word;
}

// The names of runs or jobs as elements of a list.
std::string zsh_lookup(Lookup lookup) {
  return lookup == Lookup::none ? "" : fmt::format(" ${{(f)\"$({})\"}}", command_of(lookup));
}

// The command that completes the value of a flag.
std::string zsh_values(const FlagWord& flag) {
  if (flag.values.empty() && flag.lookup == Lookup::none) return "_files";
  return fmt::format("compadd -- {}{}{}", bash_words(flag.values), zsh_lookup(flag.lookup),
                     flag.lookup == Lookup::runs ? "; _files" : "");
}

std::string zsh_script(const std::string& program, const std::vector<CommandNode>& nodes) {
  std::string choices, values;
  for (const CommandNode& node : nodes) {
    std::string words, flags;
    for (const CommandWord& command : node.commands) append(words, zsh_entry(command.text, command.help));
    for (const std::string& argument : node.arguments) append(words, zsh_entry(argument, ""));
    for (const FlagWord& flag : node.flags) append(flags, zsh_entry(flag.text, flag.help));
    if (words.empty() && !node.has_arguments) words = flags;
    choices += fmt::format("    \"{}\")\n      choices=({}{})\n      flags=({}){}\n      ;;\n", node.path, words,
                           zsh_lookup(node.lookup), flags, bash_files(node.lookup));
    for (const FlagWord& flag : node.flags)
      if (flag.takes_value)
        values += fmt::format("    {}) {}; return ;;\n", flag_pattern(node, flag), zsh_values(flag));
  }
  return fmt::format(
      R"(#compdef {0}
# Zsh completion for {0}. To enable it: source <({0} completion zsh), after compinit
{1}() {{
  local node="{0}" cur=${{words[CURRENT]}} prev=${{words[CURRENT - 1]}} i
  local files=
  local -a choices flags
  if [[ $cur == --*=* ]]; then
    prev=${{cur%%=*}}
    compset -P '*='
  fi
  for ((i = 2; i < CURRENT; i++)); do
    case "$node ${{words[i]}}" in
{2}      {3}) node+=" ${{words[i]}}" ;;
    esac
  done
  case "$node" in
{4}  esac
  case "$node $prev" in
{5}  esac
  if [[ $cur == -* ]]; then
    _describe -o flag flags
  elif (( $#choices )); then
    _describe choice choices
    if [[ -n $files ]]; then _files; fi
  else
    _files
  fi
}}
if [[ ${{funcstack[1]}} == {1} ]]; then {1} "$@"; else compdef {1} {0}; fi
)",
      program, function_name(program), restart_line(program), subcommand_pattern(nodes), choices, values);
}

// 'text' for fish, with backslashes and quotes escaped.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out += '\'';
}

// The command substitution that prints the names, as the value of `complete -a`; empty if there are none.
std::string fish_names(Lookup lookup) {
  return lookup == Lookup::runs   ? " -a '(command ls runs 2>/dev/null)'"
         : lookup == Lookup::jobs ? " -a '(lockstep get jobs -o name 2>/dev/null | string replace -r \"^.*/\" \"\")'"
                                  : "";
}

// The lines of a node. `when` is the option that limits a line to this node.
std::string fish_lines(const std::string& complete, const CommandNode& node, const std::string& when) {
  std::string out;
  // Without -f, fish offers files, too.
  if (!node.has_arguments || (!node.arguments.empty() && node.lookup != Lookup::runs) || node.lookup == Lookup::jobs)
    out += fmt::format("{}{} -f\n", complete, when);
  for (const CommandWord& command : node.commands)
    out += fmt::format("{}{} -f -a {} -d {}\n", complete, when, command.text, fish_quoted(command.help));
  if (!node.arguments.empty())
    out += fmt::format("{}{} -a {}\n", complete, when, fish_quoted(bash_words(node.arguments)));
  if (const std::string names = fish_names(node.lookup); !names.empty())
    out += fmt::format("{}{}{}\n", complete, when, names);
  for (const FlagWord& flag : node.flags) {
    std::string names = fmt::format("{}{} -l {}", complete, when, flag.text.substr(2));
    for (const std::string& name : flag.shorts) names += fmt::format(" -s {}", name.substr(1));
    const char* const value = !flag.takes_value ? "" : flag.values.empty() ? " -r -F" : " -x";
    out += fmt::format("{}{} -d {}\n", names, value, fish_quoted(flag.help));
    // In a line of their own, the values do not repeat the help.
    if (!flag.values.empty()) out += fmt::format("{} -x -a {}\n", names, fish_quoted(bash_words(flag.values)));
    if (flag.lookup != Lookup::none) out += fmt::format("{}{}\n", names, fish_names(flag.lookup));
  }
  return out;
}

std::string fish_script(const std::string& program, const std::vector<CommandNode>& nodes) {
  std::string commands, lines, restart;
  for (const CommandNode& node : nodes) {
    if (node.starts_command)
      restart += fmt::format("            case \"{} --\" # a command follows\n                set node {}\n", node.path,
                             program);
    for (const CommandWord& command : node.commands) commands += fmt::format(" \"{} {}\"", node.path, command.text);
    lines += fish_lines(fmt::format("complete -c {}", program), node,
                        fmt::format(" -n 'test ({}_node) = \"{}\"'", function_name(program), node.path));
  }
  const std::string cases =
      commands.empty() ? "" : fmt::format("            case{}\n                set node \"$node $word\"\n", commands);
  return fmt::format(
      R"(# Fish completion for {0}. To enable it: {0} completion fish | source
# Prints the command that is being completed, with its subcommands.
function {1}_node
    set -l node {0}
    set -l words (commandline -opc)
    for word in $words[2..-1]
        switch "$node $word"
{2}{3}        end
    end
    echo $node
end
{4})",
      program, function_name(program), restart, cases, lines);
}

std::string script_for(const std::string& shell, const std::string& program, const std::vector<CommandNode>& nodes) {
  if (shell == "bash") return bash_script(program, nodes);
  return shell == "zsh" ? zsh_script(program, nodes) : fish_script(program, nodes);
}

}  // namespace

void add_completion_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("completion", "print the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "the shell")->required()->check(one_of({"bash", "zsh", "fish"}));
  const std::string& name = program.get_name();
  add_examples(*command, {fmt::format("source <({} completion bash)     # in ~/.bashrc", name),
                          fmt::format("source <({} completion zsh)      # in ~/.zshrc, after compinit", name),
                          fmt::format("{} completion fish | source      # in ~/.config/fish/config.fish", name)});
  command->callback([shell, &program, &action] {
    action = [shell, &program] {
      std::vector<CommandNode> nodes;
      const std::string& program_name = program.get_name();
      collect(program, program_name, nodes);
      fmt::print("{}", script_for(*shell, program_name, nodes));
      return kDone;
    };
  });
}

}  // namespace lockstep::cli
