#include "guides/guide.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "base/file.h"
#include "support/program.h"
#include "support/text_file.h"

namespace lockstep::guides {
namespace {

std::string normalized(std::string text) {
  // Longest first: a date contains numbers.
  static const std::vector<std::regex> kinds = [] {
    std::vector<std::regex> out;
    for (const char* each :
         {"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z",
          "[0-9]+ examples/s", "[0-9]+\\.[0-9]+", "\\b([0-9]+[dhms])+\\b", "\\b[0-9]+ s\\b"})
      out.emplace_back(each);
    return out;
  }();
  for (const std::regex& each : kinds) text = std::regex_replace(text, each, "#");
  text = std::regex_replace(text, std::regex("[ \t]+"), " ");
  return std::regex_replace(text, std::regex("^ | $"), "");
}

}  // namespace

std::vector<std::string> all_pages() {
  namespace fs = std::filesystem;
  std::vector<std::string> out = {"CHANGELOG.md", "CONTRIBUTING.md", "README.md"};
  for (const fs::directory_entry& each : fs::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/docs"))
    if (each.path().extension() == ".md") out.push_back(fs::relative(each.path(), LOCKSTEP_SOURCE_DIR).string());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Step> read_guide(const std::string& text) {
  enum class Inside { prose, other, commands } inside = Inside::prose;
  std::vector<Step> out;
  std::istringstream in(text);
  int number = 0, begin = 0;
  bool mnist = false, has_command = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("```")) {
      if (inside == Inside::commands && !has_command)
        throw std::runtime_error("line " + std::to_string(begin) + ": a block to be run has no command");
      if (inside != Inside::prose) {
        inside = Inside::prose;
        continue;
      }
      mnist = line == "```sh mnist";
      inside = mnist || line == "```sh" ? Inside::commands : Inside::other;
      begin = number;
      has_command = false;
    } else if (inside == Inside::commands && line.starts_with("$ ")) {
      out.push_back({line.substr(2), {}, number, mnist});
      has_command = true;
    } else if (inside == Inside::commands && has_command) {
      Step& last = out.back();
      if (last.shown.empty() && last.command.ends_with('\\'))
        last.command += "\n" + line;
      else if (!line.empty())
        last.shown.push_back(line);
    } else if (inside == Inside::commands && !line.empty()) {
      throw std::runtime_error("line " + std::to_string(number) + ": \"" + line + "\" comes before any command");
    }
  }
  if (inside != Inside::prose) throw std::runtime_error("line " + std::to_string(begin) + ": a block is not closed");
  return out;
}

bool is_shown_as(const std::string& printed, const std::string& shown) {
  const std::string text = normalized(printed), pattern = normalized(shown);
  // The parts between the dots must occur in order: the first at the start, the last at the end.
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.compare(i, 3, "...") == 0) {
      pieces.emplace_back();
      i += 2;
    } else {
      pieces.back() += pattern[i];
    }
  }
  if (pieces.size() == 1) return text == pattern;
  if (!text.starts_with(pieces.front())) return false;
  size_t at = pieces.front().size();
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const size_t found = text.find(pieces[i], at);
    if (found == text.npos) return false;
    at = found + pieces[i].size();
  }
  return text.size() >= at + pieces.back().size() && text.ends_with(pieces.back());
}

std::vector<Outcome> run_guide(const std::vector<Step>& steps) {
  const TempDir dir;
  const std::string home = dir.path() + "/home", outputs = dir.path() + "/outputs";
  FileSystem::real().make_dirs(home);
  FileSystem::real().make_dirs(outputs);
  std::filesystem::create_directory_symlink(LOCKSTEP_SOURCE_DIR "/examples", home + "/examples");
  std::filesystem::create_directory_symlink(LOCKSTEP_SOURCE_DIR "/deploy", home + "/deploy");
  const bool has_mnist = run_lockstep({"data", "verify", "mnist"}).exit_code == 0;

  std::string script =
      "cd '" + home + "'\nexport PATH='" LOCKSTEP_BINARY_DIR "':\"$PATH\"\nexport LOCKSTEP_STATE_DIR='" + dir.path() +
      "/state' LOCKSTEP_DAEMON_IDLE=1 lockstep_DIR='" LOCKSTEP_BINARY_DIR "'\nunset LOCKSTEP_ON\ncode=0\n";
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].needs_mnist && !has_mnist) continue;
    const std::string file = outputs + "/" + std::to_string(i);
    // Each command sees the exit code of the previous one as $?.
    script += "(exit $code)\n{\n" + steps[i].command + "\n} >" + file + " 2>&1 </dev/null\ncode=$?\necho $code >" +
              file + ".code\n";
  }
  script += "lockstep delete --all -A >/dev/null 2>&1\n";
  const std::string path = dir.path() + "/script";
  FileSystem::real().write(path, std::vector<uint8_t>(script.begin(), script.end()));
  const ProcessResult result = run_process({"bash", "--norc", path}, std::chrono::minutes(4));
  if (result.timed_out) throw std::runtime_error("the guide timed out: " + result.output);

  std::vector<Outcome> out(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string file = outputs + "/" + std::to_string(i);
    if (!FileSystem::real().exists(file + ".code")) continue;
    out[i] = {std::stoi(read_text(file + ".code")), read_text(file)};
  }
  if (!has_mnist) std::fprintf(stderr, "MNIST is not on this machine: commands that need it are skipped\n");
  return out;
}

}  // namespace lockstep::guides
