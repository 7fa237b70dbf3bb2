#include "data/npm.h"

#include <fmt/format.h>

#include <filesystem>
#include <future>
#include <string_view>

#include "base/file.h"
#include "base/os/process.h"
#include "base/os/run_program.h"
#include "base/start_thread.h"

namespace lockstep::detail {
namespace {

constexpr size_t kNpmOutput = 64 * 1024;
constexpr std::chrono::milliseconds kNpmPoll(200);

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

// The line of npm's output with the reason: the first error line, else the last line.
std::string npm_reason(std::string_view output) {
  for (std::string_view sign : {"npm error ", "npm ERR! "}) {
    const size_t at = output.find(sign);
    if (at != std::string_view::npos) return std::string(output.substr(at, output.find('\n', at) - at));
  }
  return last_line(output);
}

// Runs a program in another thread and calls `poll` meanwhile.
ProgramResult run_polled(const std::vector<std::string>& argv, const ProgramOptions& options,
                         const std::function<void()>& poll) {
  std::promise<ProgramResult> promise;
  std::future<ProgramResult> result = promise.get_future();
  std::thread thread = start_thread([&] {
    try {
      promise.set_value(run_program(argv, options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  std::exception_ptr error;
  while (result.wait_for(kNpmPoll) != std::future_status::ready) {
    try {
      if (!error) poll();
    } catch (...) {
      error = std::current_exception();
    }
  }
  thread.join();
  if (error) std::rethrow_exception(error);
  return result.get();
}

// Bytes of all files below a folder that another program is writing; files that disappear count as nothing.
int64_t bytes_below(const std::string& folder) {
  namespace fs = std::filesystem;
  int64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (const auto size = at->is_regular_file(ignored) ? at->file_size(ignored) : 0; !ignored)
      sum += static_cast<int64_t>(size);
  }
  return sum;
}

}  // namespace

void run_npm(const std::string& npm, const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
             const std::function<void()>& poll) {
  const std::string program = find_program(npm);
  if (program.empty()) throw IoError(fmt::format("{} is not on the PATH", npm));
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const ProgramOptions options{.deadline = deadline,
                               .return_at_deadline = true,
                               .merge_streams = true,
                               .max_output = kNpmOutput,
                               .keep_tail = true};
  const ProgramResult result = poll ? run_polled(argv, options, poll) : run_program(argv, options);
  if (result.timed_out)
    throw IoError(
        fmt::format("npm did not finish within {} s and was killed", std::chrono::duration<double>(deadline).count()));
  if (result.code != 0)
    throw IoError(fmt::format("npm failed with exit code {}: {}", result.code, npm_reason(result.out)));
}

std::string pack_with_npm(const std::string& npm, const std::string& package, const std::string& folder,
                          std::chrono::milliseconds deadline, const std::function<void(int64_t bytes)>& received) {
  const std::string cache = folder + "/npm-cache";
  const auto poll = [&] {
    if (received) received(bytes_below(cache));
  };
  run_npm(npm,
          {"pack", package, "--pack-destination", folder, "--cache", cache, "--ignore-scripts", "--no-update-notifier",
           "--loglevel=error"},
          deadline, poll);
  FileSystem::real().remove_tree(cache);
  for (const std::string& name : FileSystem::real().list(folder))
    if (name.ends_with(".tgz")) return folder + "/" + name;
  throw IoError(fmt::format("npm wrote no archive of {} into {}", package, folder));
}

}  // namespace lockstep::detail
