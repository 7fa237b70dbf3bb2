#include "board/server.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/file.h"
#include "base/os/host_name.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "board/access.h"
#include "cli/command.h"
#include "command/help.h"
#include "command/number_check.h"
#include "command/runtime_flags.h"
#include "http/access.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct BoardArguments {
  std::string runs = kRunsFolder, host = "127.0.0.1", token;
  int port = 0;
  bool no_token = false;
  RuntimeFlags runtime;
};

int board_command(const BoardArguments& arguments) {
  if (arguments.no_token && !arguments.token.empty())
    throw UsageError("board: --token and --no-token contradict each other; give one of them");
  if (arguments.no_token && !http::is_loopback(arguments.host))
    throw UsageError(
        fmt::format("board: --no-token lets every machine that reaches {} delete jobs; use a token, or --host "
                    "127.0.0.1",
                    printable(arguments.host)));
  if (!arguments.token.empty() && !board::is_valid_token(arguments.token))
    throw UsageError("board: --token: use 1 to 256 letters, digits, \"-\", \"_\" and \".\"");
  const std::string token = arguments.no_token ? "" : arguments.token.empty() ? board::new_token() : arguments.token;
  export_flags(arguments.runtime);
  board::Server server({.runs = arguments.runs, .host = arguments.host, .port = arguments.port, .token = token});
  const std::string host = arguments.host.find(':') == std::string::npos ? arguments.host : "[" + arguments.host + "]";
  fmt::print("http://{}:{}/{}\n", host, server.port(), token.empty() ? "" : "?token=" + token);
  fmt::print("Open this address in a browser; it shows the runs in {}. Ctrl-C stops the board.\n",
             printable(arguments.runs));
  if (http::is_loopback(arguments.host))
    fmt::print("From another machine, first run there: ssh -N -L {0}:127.0.0.1:{0} {1}\n", server.port(),
               printable(own_host_name()));
  std::fflush(stdout);
  if (!FileSystem::real().exists(arguments.runs))
    print_stderr("lockstep: board: {} does not exist yet; its runs are shown when it does\n", arguments.runs);
  server.run();
  return kDone;
}

}  // namespace

void add_board_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("board", "serve a web page with the curves of runs and with jobs");
  auto arguments = std::make_shared<BoardArguments>();
  command->add_option("--runs", arguments->runs, "the folder of runs (default: runs)")->type_name("DIR");
  command->add_option("--port", arguments->port, "port to listen on (default: a free one)")
      ->type_name("N")
      ->check(integer_between(0, 65535));
  command->add_option("--host", arguments->host, "address to listen on (default: 127.0.0.1, this machine only)")
      ->type_name("ADDRESS");
  command->add_option("--token", arguments->token, "secret that the page requires (default: a random one)")
      ->type_name("TEXT");
  command->add_flag("--no-token", arguments->no_token,
                    "require no secret: every user of this machine can open the page");
  add_runtime_flags(*command, arguments->runtime, {SettingGroup::jobs});
  add_examples(*command, {"lockstep board", "lockstep board --runs experiments --port 8080"});
  command->callback([arguments, &action] { action = [arguments] { return board_command(*arguments); }; });
}

}  // namespace lockstep::cli
