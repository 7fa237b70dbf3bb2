// The program `lockstep`: finds the subcommand, runs it, and turns failures into one message and an exit code:
// 0 done, 1 it failed, 2 the command line or a configuration file is wrong, 3 an expectation (--expect) was not met,
// 75 another process or a GPU failed or was lost, and starting again may help.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"
#include "cli/command.h"
#include "jobs/local/local_runner.h"
#include "lane/gpu_patience.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

// What is wrong with the command line, said of the subcommand where it is: `data fetch: no flag --dri; did you mean
// …`.
std::string usage_error(CLI::App& program, const CLI::ParseError& error) {
  CLI::App* app = &program;
  std::string name = program.get_name(), place;
  while (app->remaining().empty() && !app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    name += " " + app->get_name();
    place += (place.empty() ? "" : " ") + app->get_name();
  }
  if (!place.empty()) place += ": ";
  const std::string help = " `" + name + " --help` shows what there is";
  const std::vector<std::string> rest = app->remaining();
  std::vector<std::string> commands, flags;
  for (const CLI::App* command : app->get_subcommands([](CLI::App*) { return true; }))
    commands.push_back(command->get_name());
  for (const CLI::Option* option : app->get_options())
    for (const std::string& flag : option->get_lnames()) flags.push_back("--" + flag);

  const auto flag =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
  if (flag != rest.end()) {
    const std::string bare = flag->substr(0, flag->find('='));
    return place + "no flag " + bare + ";" + suggestion(bare, flags) + help;
  }
  if (!rest.empty() && !commands.empty())
    return place + "no command \"" + rest[0] + "\";" + suggestion(rest[0], commands) + help;
  if (!rest.empty()) return place + "\"" + rest[0] + "\" is one argument too many;" + help;
  if (!commands.empty()) return place + "a command is missing;" + help;
  return place + error.what() + ";" + help;
}

// The parser would take the next word for the value of `--flag=`.
void check_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw UsageError(std::string(word) + " has no value; give one, or leave the flag out");
  }
}

int run(int argc, char** argv) {
  CLI::App program("SPMD training in C++: trains, launches and watches jobs.", "lockstep");
  program.require_subcommand(1);
  program.get_formatter()->column_width(32);
  program.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION, "print the version and exit");
  Action action;
#define COMMAND(name, title)             \
  add_##name##_command(program, action); \
  program.get_subcommand(#name)->group(title);
#include "cli/commands.def"
#undef COMMAND
  try {
    const int words = take_launched_command(argc, argv);
    check_values(words, argv);
    program.parse(words, argv);
  } catch (const CLI::Success& answer) {  // help and version
    return program.exit(answer);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "lockstep: %s\n", usage_error(program, error).c_str());
    return kWrongUsage;
  }
  const int code = action();
  distributed::shutdown();
  return code;
}

}  // namespace
}  // namespace lockstep::cli

namespace {

int run_or_fail(int argc, char** argv) {
  try {
    if (int code = 0; lockstep::is_local_process(argc, argv, code)) return code;
    return lockstep::cli::run(argc, argv);
  } catch (const lockstep::cli::UsageError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return lockstep::cli::kWrongUsage;
  } catch (const lockstep::CommError& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    const int code = lockstep::distributed::failure_code();
    return code != 0 ? code : lockstep::distributed::kRetry;
  } catch (const lockstep::DeviceLost& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    lockstep::distributed::report_failure(error.what(), true);
    return lockstep::distributed::kRetry;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    lockstep::distributed::report_failure(error.what());
    return lockstep::cli::kFailed;
  }
}

// A standard stream that is closed stays one that cannot be used: no file that is opened later takes its number.
void keep_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Whether the reader of a pipe has gone, as `| head -1` does.
bool nobody_reads_stdout() {
  pollfd stream = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & (POLLERR | POLLHUP)) != 0;
}

// Success is one only when all of the output was written.
int with_output_written(int code) {
  const bool fails_now = std::fflush(stdout) != 0;
  const int error = errno;
  if (code != lockstep::cli::kDone || (!fails_now && std::ferror(stdout) == 0) || nobody_reads_stdout()) return code;
  std::fprintf(stderr, "lockstep: standard output could not be written%s%s; what it holds is not all\n",
               fails_now ? ": " : "", fails_now ? std::strerror(error) : "");
  return lockstep::cli::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  keep_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more is a failed write, not the end of the program
  const int code = with_output_written(run_or_fail(argc, argv));
  if (!lockstep::GpuPatience::is_given_up()) return code;
  std::fflush(nullptr);
  std::_Exit(code);  // CUDA's own end would wait for the GPU
}
