#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "base/names.h"
#include "cli/render.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/number_check.h"
#include "jobs/slurm/script.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

constexpr int kWarning = 120;     // seconds before the time limit
constexpr int kMaxRequeues = 10;  // default of --max-requeues

// Named layouts, as in the guides of clusters: GxNypz is x GPUs on y nodes with z processes.
struct NamedLayout {
  const char* name;
  int nodes, tasks_per_node, gpus_per_node;
  const char* command;
};
constexpr std::array<NamedLayout, 4> kLayouts = {{{"G4N1p4", 1, 4, 4, "devices"},
                                                  {"G4N2p2", 2, 1, 2, "devices"},
                                                  {"G4N2p4", 2, 2, 2, "devices"},
                                                  {"allreduce", 2, 4, 4, "allreduce"}}};

struct RenderSlurmArguments {
  std::string shape;
  std::optional<int> nodes, tasks_per_node, gpus_per_node, cpus_per_task;
  bool cpu = false;
  SlurmScript script;
  std::string runtime, program;
  std::vector<std::string> environment;
  bool requeue = false;
  std::optional<int> max_requeues, signal_seconds;
  std::vector<std::string> words;
};

std::vector<std::string> commands() {
  return {
#define COMMAND(name, ...) #name,
#include "cli/commands.def"
#undef COMMAND
  };
}

// Returns the program and its arguments. In a container image lockstep is on the PATH; otherwise the script uses the
// path of this program.
std::vector<std::string> argv_of(const RenderSlurmArguments& arguments, std::vector<std::string> words) {
  const std::string self = arguments.script.image.empty() ? std::string(std::filesystem::read_symlink("/proc/self/exe"))
                                                          : std::string("lockstep");
  if (!arguments.program.empty()) {
    words.insert(words.begin(), arguments.program);
  } else if (words.empty()) {
    throw UsageError(
        "render slurm: no command after --; add one, such as `lockstep render slurm --nodes 2 -- train --model mlp`");
  } else if (words[0] == "lockstep") {
    check_command_line({words.begin() + 1, words.end()});
    words[0] = self;
  } else if (words[0].find('/') == std::string::npos) {
    const std::vector<std::string> names = commands();
    if (std::ranges::find(names, words[0]) == names.end())
      throw UsageError(
          fmt::format("render slurm: unknown command \"{}\";{} to run another program, give its path or use --program",
                      words[0], suggestion(words[0], names)));
    check_command_line(words);
    words.insert(words.begin(), self);
  }
  return words;
}

// The message about a memory size that Slurm would refuse; empty if it is valid.
std::string check_memory(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = std::string_view(text).substr(digits);
  const bool known = unit.empty() || (std::string_view("KMGTkmgt").find(unit[0]) != std::string_view::npos &&
                                      (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "b"));
  return digits > 0 && known ? "" : fmt::format("\"{}\" is not a size such as 16G or 500M", text);
}

std::pair<std::string, std::string> variable(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos)
    throw UsageError(fmt::format("render slurm: --env: \"{}\" is not NAME=VALUE", text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

SlurmScript script_of(const RenderSlurmArguments& arguments) {
  SlurmScript script = arguments.script;
  std::vector<std::string> words = arguments.words;
  int tasks_per_node = 1;
  if (!arguments.shape.empty()) {
    const NamedLayout& shape = *std::ranges::find(kLayouts, arguments.shape, &NamedLayout::name);
    script.nodes = shape.nodes;
    tasks_per_node = shape.tasks_per_node;
    script.gpus_per_node = arguments.cpu ? 0 : shape.gpus_per_node;
    script.cpus_per_task = 4;
    if (script.name.empty()) script.name = shape.name;
    if (script.time.empty()) script.time = "00:05:00";
    if (words.empty() && arguments.program.empty()) words = {shape.command};
    // Virtual devices replace the GPUs of a process.
    if (const int devices = shape.gpus_per_node / tasks_per_node; arguments.cpu && devices > 1)
      script.env.emplace_back("LOCKSTEP_NUM_CPU_DEVICES", std::to_string(devices));
  }
  script.nodes = arguments.nodes.value_or(std::max(script.nodes, 1));
  script.tasks_per_node = arguments.tasks_per_node.value_or(tasks_per_node);
  script.gpus_per_node = arguments.gpus_per_node.value_or(script.gpus_per_node);
  script.cpus_per_task = arguments.cpus_per_task.value_or(script.cpus_per_task);
  script.tasks = script.nodes * script.tasks_per_node;
  if (script.name.empty()) script.name = "lockstep";
  if (!arguments.runtime.empty()) script.runtime = parse_slurm_runtime(arguments.runtime, "render slurm");
  if (!script.image.empty() && arguments.runtime.empty()) script.runtime = SlurmRuntime::apptainer;
  for (const std::string& each : arguments.environment) script.env.push_back(variable(each));
  script.command = argv_of(arguments, words);

  if (arguments.max_requeues && !arguments.requeue)
    throw UsageError("render slurm: --max-requeues has no effect without --requeue; add --requeue or omit it");
  script.requeue = arguments.requeue ? Requeue::transient : Requeue::never;
  if (arguments.requeue) script.max_requeues = arguments.max_requeues.value_or(kMaxRequeues);
  // SIGUSR1 kills a program that does not handle it, so only programs known to handle it get the warning by default.
  const bool handles_warning = arguments.requeue || (arguments.program.empty() && script.command.size() > 1 &&
                                                     !words.empty() && script.command[1] == "train");
  script.signal_seconds = arguments.signal_seconds.value_or(handles_warning ? kWarning : 0);
  return script;
}

int run(const RenderSlurmArguments& arguments) {
  fmt::print("{}", or_usage_error([&] { return render_slurm(script_of(arguments), "render slurm"); }));
  return kDone;
}

void add_number_flag(CLI::App& command, const char* name, std::optional<int>& value, int low, const char* help) {
  command.add_option(name, value, help)->check(integer_between(low, 1'000'000))->type_name("N");
}

void add_text_flag(CLI::App& command, const char* name, std::string& value, const char* type, const char* help) {
  command.add_option(name, value, help)->type_name(type);
}

// Adds a flag that may be repeated, with one value each time.
void add_repeated_flag(CLI::App& command, const char* name, std::vector<std::string>& values, const char* type,
                       const char* help) {
  command.add_option(name, values, help)->type_name(type)->take_all()->allow_extra_args(false);
}

// The nodes, processes and hardware that Slurm allocates.
void add_resource_flags(CLI::App& command, RenderSlurmArguments& arguments) {
  std::vector<std::string> shapes;
  for (const NamedLayout& each : kLayouts) shapes.push_back(each.name);
  command
      .add_option("--shape", arguments.shape,
                  "a named layout: 4 GPUs on 1 node with 4 processes (G4N1p4), on 2 nodes with 2 (G4N2p2) or 4 "
                  "(G4N2p4), 8 on 2 nodes with 8 (allreduce); the other flags override it")
      ->type_name("NAME")
      ->check(one_of(shapes));
  command.add_flag("--cpu", arguments.cpu, "use virtual CPU devices instead of the GPUs of the shape");
  add_number_flag(command, "--nodes", arguments.nodes, 1, "number of nodes (default: 1)");
  add_number_flag(command, "--tasks-per-node", arguments.tasks_per_node, 1, "processes on each node (default: 1)");
  add_number_flag(command, "--gpus-per-node", arguments.gpus_per_node, 0,
                  "GPUs on each node, divided equally among its processes (default: 0)");
  add_number_flag(command, "--cpus-per-task", arguments.cpus_per_task, 1,
                  "cores of each process (default: Slurm's; 4 with --shape)");
  SlurmScript& script = arguments.script;
  command.add_option("--mem", script.memory, "memory on each node, such as 16G (default: Slurm's)")
      ->type_name("SIZE")
      ->check(check_memory, "");
  add_text_flag(command, "--time", script.time, "TIME",
                "time limit, such as 1:30:00 or 2-12 (default: Slurm's; 00:05:00 with --shape)");
  add_text_flag(command, "--partition", script.partition, "NAME", "the partition (default: Slurm's)");
  add_text_flag(command, "--account", script.account, "NAME", "account to charge (default: Slurm's)");
  add_text_flag(command, "--constraint", script.constraint, "FEATURES", "features that nodes must have, such as a100");
}

void add_batch_flags(CLI::App& command, SlurmScript& script) {
  add_text_flag(command, "--job-name", script.name, "NAME",
                "name of the job (default: that of the shape, else lockstep)");
  add_text_flag(command, "--output", script.output, "PATTERN", "file for the output (default: slurm-%j.out)");
  add_repeated_flag(command, "--sbatch", script.sbatch, "OPTION",
                    "another option of sbatch, such as --sbatch=--mail-type=END; may be repeated");
}

// The modules, container and variables that the program runs with.
void add_environment_flags(CLI::App& command, RenderSlurmArguments& arguments) {
  SlurmScript& script = arguments.script;
  add_repeated_flag(command, "--module", script.modules, "NAME", "environment module to load; may be repeated");
  add_text_flag(command, "--container", script.image, "IMAGE",
                "container image to run in; '$NAME' is a variable that a module sets");
  add_text_flag(command, "--runtime", arguments.runtime, "NAME",
                "container runtime: apptainer, singularity or pyxis (default: apptainer)");
  add_text_flag(command, "--mpi", script.mpi, "NAME",
                "use MPI for collectives, with this value of srun's --mpi, such as pmix");
  add_repeated_flag(command, "--env", arguments.environment, "NAME=VALUE",
                    "environment variable of the processes; may be repeated");
}

void add_requeue_flags(CLI::App& command, RenderSlurmArguments& arguments) {
  command.add_flag("--requeue", arguments.requeue,
                   "resume from the last checkpoint after a timeout or a transient failure");
  add_number_flag(command, "--max-requeues", arguments.max_requeues, 0, "most restarts of --requeue (default: 10)");
  add_number_flag(
      command, "--signal-seconds", arguments.signal_seconds, 0,
      "seconds before the time limit at which training saves a checkpoint and stops (default: 120; 0: never)");
}

}  // namespace

void add_render_slurm_command(CLI::App& render, Action& action) {
  CLI::App* command = render.add_subcommand("slurm", "print the batch script of a job for sbatch");
  command->formatter(std::make_shared<HelpFormatter>("-- COMMAND [ARGUMENTS]"));
  auto arguments = std::make_shared<RenderSlurmArguments>();
  arguments->script.name.clear();
  add_resource_flags(*command, *arguments);
  add_batch_flags(*command, arguments->script);
  add_environment_flags(*command, *arguments);
  add_requeue_flags(*command, *arguments);
  add_text_flag(*command, "--program", arguments->program, "PATH", "a program to run instead of lockstep");
  command->add_option("COMMAND", arguments->words,
                      "after --: the lockstep command that each process runs, such as train, or the path of a program");
  group_flags(*command, "Resources",
              {"--shape", "--cpu", "--nodes", "--tasks-per-node", "--gpus-per-node", "--cpus-per-task", "--mem",
               "--time", "--partition", "--account", "--constraint"});
  group_flags(*command, "Job",
              {"--job-name", "--output", "--sbatch", "--requeue", "--max-requeues", "--signal-seconds"});
  group_flags(*command, "Program", {"--program", "--env", "--module", "--container", "--runtime", "--mpi"});
  add_examples(*command, {"lockstep render slurm --shape G4N2p2 -- devices | sbatch",
                          "lockstep render slurm --nodes 2 --requeue -- train run.yaml | sbatch"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
