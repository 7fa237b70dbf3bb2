#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/command.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "lockstep/distributed.h"
#include "lockstep/lockstep.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct AllreduceArguments {
  DevicesFlags devices;
  bool bench = false;
  uint64_t max_size = 64 << 20;
};

constexpr uint64_t kMinSize = sizeof(float), kMaxSize = uint64_t{1} << 40;

// Replaces a size such as "64MiB" by its number of bytes. Returns an error message, or "".
std::string parse_size(std::string& text) {
  std::string bytes = text;
  uint64_t size = 0;
  try {
    const bool number = CLI::AsSizeValue(false)(bytes).empty() && CLI::detail::lexical_cast(bytes, size);
    const bool negative = text.find('-') != text.npos;
    if (number && !negative && size >= kMinSize && size <= kMaxSize) return text = bytes, "";
  } catch (const CLI::ValidationError&) {
    // Reported below.
  }
  return fmt::format("\"{}\" is not a size from {}B to {}TiB, such as 1MiB", text, kMinSize, kMaxSize >> 40);
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1 << 10) return fmt::format("{} B", bytes);
  if (bytes < 1 << 20) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} MiB", bytes >> 20);
}

// The median time of a call, over as many calls as fit into kBudget seconds, but at least kMin. Process 0 chooses the
// number, because every process must make the same number of calls.
template <class F>
double seconds_per_call(F call) {
  constexpr double kBudget = 0.2;
  constexpr int64_t kMin = 3, kMax = 1000;
  std::vector<double> times;
  const auto measure = [&](int64_t calls) {
    for (int64_t i = 0; i < calls; ++i) {
      const auto begin = Clock::now();
      call();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  call();  // compiles
  const double about = std::max(measure(kMin), 1e-7);
  const auto more = static_cast<int64_t>(std::clamp(kBudget / about, 0.0, static_cast<double>(kMax)));
  return measure(distributed::broadcast_one_to_all(Array(more)).item<int64_t>());
}

// Prints bandwidths as nccl-tests defines them. algbw is bytes per device over time; busbw is algbw times 2(n-1)/n, the
// traffic of each link.
void print_benchmark(uint64_t max_size) {
  const auto all_reduce = jit(shard_map([](Array piece) { return psum(piece, "i"); },
                                        {.mesh = make_mesh({"i"}), .in_specs = {P("i")}, .out_specs = {P()}}));
  const double n = device_count();
  fmt::print("{:>10}  {:>12}  {:>12}  {:>12}\n", "size", "time us", "algbw GB/s", "busbw GB/s");
  for (uint64_t bytes = 4; bytes <= max_size; bytes *= 4) {
    const Array x = ones({device_count() * static_cast<int64_t>(bytes / sizeof(float))});
    const double seconds = seconds_per_call([&] { all_reduce(x); });
    const double bandwidth = static_cast<double>(bytes) / seconds / 1e9;
    fmt::print("{:>10}  {:>12.1f}  {:>12.3f}  {:>12.3f}\n", bytes_text(static_cast<int64_t>(bytes)), seconds * 1e6,
               bandwidth, bandwidth * 2 * (n - 1) / n);
  }
}

int run(const AllreduceArguments& arguments) {
  use_devices(arguments.devices);
  fmt::print("Total devices: {}  |  Devices per task: {}\n", device_count(), local_device_count());
  // Each device holds one element of x, and all of them hold the same y.
  const auto all_reduce = shard_map([](Array piece) { return psum(piece, "i"); },
                                    {.mesh = make_mesh({"i"}), .in_specs = {P("i")}, .out_specs = {P()}});
  const Array y = all_reduce(ones({device_count()}));
  fmt::print("Process {} has y=[{:g}.]\n", process_index(), y.item<double>());
  if (arguments.bench) print_benchmark(arguments.max_size);
  return kDone;
}

}  // namespace

void add_allreduce_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("allreduce", "all-reduce a 1 from every device; --bench measures bandwidth");
  auto arguments = std::make_shared<AllreduceArguments>();
  add_devices_flags(*command, arguments->devices);
  CLI::Option* bench =
      command->add_flag("--bench", arguments->bench, "measure the time and bandwidth of all-reduces of growing arrays");
  command->add_option("--max-size", arguments->max_size, "bytes per device of the largest array (default: 64MiB)")
      ->transform(CLI::Validator(parse_size, ""))
      ->type_name("SIZE")
      ->needs(bench);
  add_examples(*command, {"lockstep allreduce --devices 8", "lockstep launch -n 2 -- allreduce --bench"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
