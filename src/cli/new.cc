#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/os/environment.h"
#include "cli/command.h"
#include "command/help.h"

namespace lockstep::cli {
namespace {

struct NewArguments {
  std::string name, dir;
};

// A file of a new project. "{{name}}" and other words in double braces are placeholders.
struct ProjectFile {
  std::string_view name, text;
};
constexpr ProjectFile kProjectFiles[] = {
#include "cli/project.inc"
};

void check_project_name(const std::string& name) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  constexpr size_t kMostLetters = 60;  // the name is also that of a job
  const bool good = std::isalpha(static_cast<unsigned char>(name[0])) != 0 && std::ranges::all_of(name, is_word) &&
                    name.back() != '-' && name.back() != '_' && name.size() <= kMostLetters;
  if (!good)
    throw UsageError(
        fmt::format("new: \"{}\" is not the name of a project; use letters, digits, - and _, begin with a "
                    "letter and do not end with - or _, at most {} characters; --dir names its folder",
                    name, kMostLetters));
  // Names that CMake uses for targets of its own.
  for (const std::string_view reserved : {"all", "clean", "test", "install", "help", "package", "lockstep"})
    if (name == reserved) throw UsageError(fmt::format("new: the name \"{}\" is reserved; choose another one", name));
}

// Names of Kubernetes objects have lower-case letters, digits and hyphens.
std::string job_name(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Whether CMake finds packages below the parent of this folder by itself: it looks there for folders of the PATH.
bool is_on_path(const std::string& folder) {
  std::istringstream folders(environment_variable("PATH").value_or(""));
  for (std::string each; std::getline(folders, each, ':');)
    if (each == folder) return true;
  return false;
}

// The option that makes CMake find this lockstep, in its build folder or where it is installed; empty if none is needed.
std::string lockstep_dir_option() {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (FileSystem::real().exists(folder / "lockstepConfig.cmake")) return " -Dlockstep_DIR=" + folder.string();
  return is_on_path(folder) ? "" : " -DCMAKE_PREFIX_PATH=" + folder.parent_path().string();
}

void check_folder(const std::string& dir) {
  FileSystem& files = FileSystem::real();
  if (!files.exists(dir)) return;
  if (!std::filesystem::is_directory(dir)) throw_error("new: {} is a file; give another folder with --dir", dir);
  if (!files.list(dir).empty())
    throw_error("new: the folder {} is not empty; nothing was written: give another one with --dir", dir);
}

int create_project(const NewArguments& arguments) {
  const std::string& name = arguments.name;
  check_project_name(name);
  const std::string dir = arguments.dir.empty() ? name : arguments.dir, option = lockstep_dir_option();
  check_folder(dir);
  FileSystem& files = FileSystem::real();
  files.make_dirs(dir);
  for (const ProjectFile& file : kProjectFiles) {
    std::string text = replace_all(std::string(file.text), "{{name}}", name);
    text = replace_all(replace_all(text, "{{job}}", job_name(name)), "{{lockstep_dir}}", option);
    if (file.name == "main.cc") text = replace_all(text, "my_task", name);
    files.write_atomic(fmt::format("{}/{}", dir, file.name),
                       {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  fmt::print("created {0}; next:\n  cd {0}\n  cmake -B build{1}\n  cmake --build build\n  build/{2} settings.yaml\n",
             dir, option, name);
  return kDone;
}

}  // namespace

void add_new_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("new", "write a CMake project with a task of your own");
  auto arguments = std::make_shared<NewArguments>();
  command->add_option("NAME", arguments->name, "name of the project and its program")->required()->type_name("NAME");
  command->add_option("--dir", arguments->dir, "folder to write, which must be new or empty (default: NAME)")
      ->type_name("DIR");
  add_examples(*command, {"lockstep new my_project", "lockstep new my_project --dir src/my_project"});
  command->callback([arguments, &action] { action = [arguments] { return create_project(*arguments); }; });
}

}  // namespace lockstep::cli
