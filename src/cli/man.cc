// `lockstep man DIR`: writes the manual pages, when packages are made. Hidden: users read the pages with man.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "base/runtime_settings.h"
#include "cli/command.h"
#include "command/help.h"
#include "command/man_page.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

ManSection environment_section() {
  ManSection out{"Environment", "A flag takes precedence over the variable.", {}};
  for (const detail::RuntimeSetting& each : detail::runtime_settings())
    out.rows.emplace_back(std::string(each.variable), fmt::format("{} (default: {})", each.help, each.initial));
  return out;
}

int write_pages(const CLI::App& program, const std::string& folder) {
  FileSystem& files = FileSystem::real();
  files.make_dirs(folder);
  for (const ManPage& page : man_pages(program, "lockstep " LOCKSTEP_VERSION, {environment_section()}))
    files.write(fmt::format("{}/{}.1", folder, page.name), std::vector<uint8_t>(page.text.begin(), page.text.end()));
  return kDone;
}

}  // namespace

void add_man_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("man", "write the manual pages to a folder")->group("");
  auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "the folder")->required();
  add_examples(*command, {"lockstep man share/man/man1", "man -l share/man/man1/lockstep.1"});
  command->callback(
      [folder, &program, &action] { action = [folder, &program] { return write_pages(program, *folder); }; });
}

}  // namespace lockstep::cli
