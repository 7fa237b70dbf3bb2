#include "lockstep/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/data_tokenize.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/runtime_flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

struct DataArguments {
  std::string name;
  std::string dir;
  RuntimeFlags cache;
};

constexpr size_t kMostLines = 8;  // files of a data set that are listed; the others are counted

// Prints events of a download: a line per file and note, and on a terminal a progress line.
class FetchPrinter {
 public:
  void operator()(const DataEvent& event) {
    constexpr double kMega = 1e6;
    switch (event.kind) {
      case DataEvent::Kind::receiving:
        return count(event);
      case DataEvent::Kind::present:
      case DataEvent::Kind::stored:
        if (++files_ > kMostLines) {
          more_bytes_ += event.bytes;
          return;
        }
        return line(fmt::format(
            "{:<24} {:6.2f} MB  md5 ok  {}", event.file, event.bytes / kMega,
            event.kind == DataEvent::Kind::present ? "already present" : fmt::format("from {}", event.source)));
      case DataEvent::Kind::note:
        return print_stderr("{}lockstep: {}\n", erase_progress(), event.text);
    }
  }

  // Prints a line for the files that have none of their own.
  void finish() {
    if (files_ > kMostLines)
      line(fmt::format("and {} more files   {:6.2f} MB  md5 ok", files_ - kMostLines, more_bytes_ / 1e6));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The escape sequence that erases the progress line; empty without a terminal.
  const char* erase_progress() const { return terminal_ ? "\r\x1b[K" : ""; }

  void line(const std::string& text) {
    write_stderr(erase_progress());
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }

  void count(const DataEvent& event) {
    const auto now = Clock::now();
    if (!terminal_ || (event.bytes > 0 && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    const double got = static_cast<double>(event.bytes) / 1e6, all = static_cast<double>(event.total) / 1e6;
    if (event.bytes == 0) {
      write_stderr(fmt::format("\r\x1b[K{:<24} contacting {}", event.file, printable(event.source)));
    } else if (event.total == 0) {
      write_stderr(fmt::format("\r\x1b[K{:<24} {:6.2f} MB  from {}", event.file, got, printable(event.source)));
    } else {
      write_stderr(
          fmt::format("\r\x1b[K{:<24} {:6.2f} of {:.2f} MB  from {}", event.file, got, all, printable(event.source)));
    }
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  Clock::time_point last_ = {};
  size_t files_ = 0;
  int64_t more_bytes_ = 0;
};

int fetch(const DataArguments& arguments) {
  export_flags(arguments.cache);
  FetchPrinter printer;
  const std::string folder = fetch_dataset(
      arguments.name, {.dir = arguments.dir, .progress = [&](const DataEvent& event) { printer(event); }});
  printer.finish();
  fmt::print("{} is in {}\n", arguments.name, folder);
  return 0;
}

// Prints the correct files and the others, and returns the number of missing or damaged files.
size_t print_checks(const std::string& name, const std::vector<DataCheck>& checks) {
  size_t correct = 0, wrong = 0;
  for (const DataCheck& check : checks) {
    const bool ok = check.problem.empty();
    if (++(ok ? correct : wrong) > kMostLines) continue;
    fmt::print("{} {:<24} {}\n", name, check.file, ok ? fmt::format("md5 {} ok", check.md5) : check.problem);
  }
  if (correct > kMostLines) fmt::print("{} and {} more files  md5 ok\n", name, correct - kMostLines);
  if (wrong > kMostLines) fmt::print("{} and {} more files  missing or damaged\n", name, wrong - kMostLines);
  return wrong;
}

bool is_absent(const std::vector<DataCheck>& checks) {
  for (const DataCheck& check : checks)
    if (!check.path.empty()) return false;
  return true;
}

int verify(const DataArguments& arguments) {
  export_flags(arguments.cache);
  const bool all = arguments.name.empty();
  int verified = 0;
  for (const std::string& name : all ? dataset_names() : std::vector<std::string>{arguments.name}) {
    const std::vector<DataCheck> checks = verify_dataset(name, {.dir = arguments.dir});
    if (all && is_absent(checks)) {
      fmt::print("{} is not in the cache\n", name);
      continue;
    }
    if (const size_t wrong = print_checks(name, checks); wrong > 0)
      throw IoError(fmt::format("{} of {} files of {} are missing or damaged; run `lockstep data fetch {}{}`", wrong,
                                checks.size(), name, name, arguments.dir.empty() ? "" : " --dir " + arguments.dir));
    ++verified;
  }
  if (verified == 0) throw IoError("the cache has no data set; run `lockstep data fetch mnist`");
  return 0;
}

int list(const DataArguments& arguments) {
  export_flags(arguments.cache);
  fmt::print("{:<14} {:<7} {:>5} {:>9}  {}\n", "NAME", "KIND", "FILES", "MB", "FOLDER");
  for (const DatasetInfo& info : list_datasets())
    fmt::print("{:<14} {:<7} {:>5} {:>9.2f}  {}\n", info.name, info.kind, info.files,
               static_cast<double>(info.bytes) / 1e6, info.folder.empty() ? "-" : info.folder);
  return 0;
}

}  // namespace

void add_data_command(CLI::App& program, Action& action) {
  CLI::App* data = program.add_subcommand("data", "download and verify data sets, and tokenize text");
  data->require_subcommand(1);
  auto arguments = std::make_shared<DataArguments>();
  const CLI::Validator known = one_of(dataset_names());

  CLI::App* fetcher = data->add_subcommand("fetch", "download a data set and verify its published checksums");
  fetcher->add_option("NAME", arguments->name, "the data set")->required()->check(known);
  fetcher->add_option("--dir", arguments->dir, "folder for the files (default: the cache)")->type_name("DIR");
  add_runtime_flags(*fetcher, arguments->cache, {SettingGroup::cache});
  add_examples(*fetcher, {"lockstep data fetch mnist", "lockstep data fetch fashion-mnist --dir data"});
  fetcher->callback([arguments, &action] { action = [arguments] { return fetch(*arguments); }; });

  CLI::App* verifier = data->add_subcommand("verify", "compare the files of a data set with their published checksums");
  CLI::Option* name =
      verifier->add_option("NAME", arguments->name, "the data set (default: all in the cache)")->check(known);
  verifier->add_option("--dir", arguments->dir, "folder with the files (default: the cache)")
      ->type_name("DIR")
      ->needs(name);
  add_runtime_flags(*verifier, arguments->cache, {SettingGroup::cache});
  add_examples(*verifier, {"lockstep data verify", "lockstep data verify mnist --dir data"});
  verifier->callback([arguments, &action] { action = [arguments] { return verify(*arguments); }; });

  CLI::App* lister = data->add_subcommand("list", "list the named data sets and where they are on this machine");
  add_runtime_flags(*lister, arguments->cache, {SettingGroup::cache});
  add_examples(*lister, {"lockstep data list", "lockstep data list --cache-dir /data/lockstep"});
  lister->callback([arguments, &action] { action = [arguments] { return list(*arguments); }; });
  add_tokenizer_commands(*data, action);
  add_examples(*data, {"lockstep data list", "lockstep data fetch mnist", "lockstep data verify mnist"});
}

}  // namespace lockstep::cli
