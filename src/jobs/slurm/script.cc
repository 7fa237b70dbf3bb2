#include "jobs/slurm/script.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/names.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int kWaitSeconds = 120;         // srun --wait: for the other tasks, after the first one has ended
constexpr int kMaxSignalSeconds = 65535;  // limit of sbatch --signal

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool has_only(std::string_view text, std::string_view signs) {
  return std::ranges::all_of(text, [&](char c) { return is_letter_or_digit(c) || signs.find(c) != signs.npos; });
}

// Checks a value for a line #SBATCH, where Slurm has its own rules for quotes and comments.
void check_header(std::string_view source, std::string_view what, std::string_view value) {
  if (!has_only(value, "_-./:,@%+=[]&|*()!{}~^"))
    throw_error(
        "{}: {} is \"{}\"; remove characters that an #SBATCH line cannot hold, such as spaces, quotes, $, # and \\",
        source, what, value);
}

void check_at_least(std::string_view source, std::string_view what, int value, int least) {
  if (value < least) throw_error("{}: {} is {}; the minimum is {}", source, what, value, least);
}

void check_layout(const SlurmScript& script, std::string_view source) {
  check_at_least(source, "the number of tasks", script.tasks, 1);
  check_at_least(source, "the number of nodes", script.nodes, 0);
  check_at_least(source, "tasks per node", script.tasks_per_node, 0);
  check_at_least(source, "cpus per task", script.cpus_per_task, 0);
  check_at_least(source, "gpus per node", script.gpus_per_node, 0);
  check_at_least(source, "gpus per task", script.gpus_per_task, 0);
  if (script.nodes > script.tasks)
    throw_error("{}: {} for {} would leave nodes idle; request fewer nodes", source, counted(script.nodes, "node"),
                counted(script.tasks, "task"));
  if (script.nodes > 0 && script.tasks_per_node > 0 && script.nodes * script.tasks_per_node != script.tasks)
    throw_error("{}: {} with {} each are {}, not {}; correct one of these numbers", source,
                counted(script.nodes, "node"), counted(script.tasks_per_node, "task"),
                counted(script.nodes * script.tasks_per_node, "task"), script.tasks);
  if (script.gpus_per_node > 0 && script.gpus_per_task > 0)
    throw_error("{}: gpus per node and gpus per task are both set; set only one of them", source);
  if (script.gpus_per_node > 0 && script.tasks_per_node > 0 && script.gpus_per_node % script.tasks_per_node != 0)
    throw_error("{}: {} for {} on each node; the number of GPUs must be a multiple of the number of tasks", source,
                counted(script.gpus_per_node, "GPU"), counted(script.tasks_per_node, "task"));
}

void check_times(const SlurmScript& script, std::string_view source) {
  if (script.signal_seconds < 0 || script.signal_seconds > kMaxSignalSeconds)
    throw_error("{}: the signal is requested {} s before the time limit; use 0 (no signal) to {}", source,
                script.signal_seconds, kMaxSignalSeconds);
  if (script.time.empty()) return;
  const std::optional<seconds> time = parse_slurm_time(script.time, source);
  if (time && script.signal_seconds > 0 && *time <= seconds(script.signal_seconds))
    throw_error(
        "{}: the time limit is {} s, but the signal is requested {} s before it; raise the time limit or "
        "lower the signal's seconds",
        source, time->count(), script.signal_seconds);
}

void check_words(const SlurmScript& script, std::string_view source) {
  const auto check = [&](const char* what, const std::string& value) { check_header(source, what, value); };
  if (script.name.empty()) throw_error("{}: the job name is empty; set one", source);
  check("the job name", script.name);
  check("the partition", script.partition);
  check("the account", script.account);
  check("the constraint", script.constraint);
  check("the output", script.output);
  check("the memory", script.memory);
  check("the memory per cpu", script.memory_per_cpu);
  check("the MPI type", script.mpi);
  for (const std::string& option : script.sbatch) {
    if (!option.starts_with("--") || option.size() < 3)
      throw_error("{}: \"{}\" is not an sbatch option; write it as in --mail-type=END", source, option);
    check("the sbatch option", option);
  }
  if (script.image.empty() != (script.runtime == SlurmRuntime::none))
    throw_error("{}: {}", source,
                script.image.empty()
                    ? "a container runtime is set, but no image; set both or neither"
                    : "an image is set, but no container runtime; choose apptainer, singularity or pyxis");
  if (script.command.empty() && script.per_task.empty())
    throw_error("{}: no command; add the command that the tasks run", source);
  LOCKSTEP_CHECK(script.per_task.empty() || static_cast<int>(script.per_task.size()) == script.tasks);
}

// env NAME=VALUE... COMMAND. Sets variables of any name without changing the script's own environment.
std::vector<std::string> words_of(const std::vector<std::pair<std::string, std::string>>& env,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> out;
  if (!env.empty()) out.push_back("env");
  for (const auto& [name, value] : env) out.push_back(name + "=" + value);
  out.insert(out.end(), command.begin(), command.end());
  return out;
}

std::string line_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

std::vector<std::string> command_of(const SlurmScript& script) {
  if (script.per_task.empty()) return words_of(script.env, script.command);
  // `exec` replaces the shell, so that signals reach the program itself.
  std::string choice = "case $SLURM_PROCID in\n";
  for (size_t i = 0; i < script.per_task.size(); ++i)
    choice += fmt::format("{}) exec {} ;;\n", i, line_of(words_of(script.per_task[i].env, script.per_task[i].command)));
  return {"bash", "-c", choice + "esac"};
}

// The image argument of the runtime. "$JAX_IMAGE" stays a variable. An image that is not a file is in a registry; Pyxis
// separates the registry by #, the others need docker://.
std::string image_word(const std::string& image, SlurmRuntime runtime) {
  const bool variable =
      image.size() > 1 && image[0] == '$' && has_only(image.substr(1), "_") && !(image[1] >= '0' && image[1] <= '9');
  if (variable) return fmt::format("\"{}\"", image);
  const bool file = image.starts_with('/') || image.starts_with('.') || image.ends_with(".sif") ||
                    image.ends_with(".sqsh") || image.find("://") != image.npos || image.find('#') != image.npos;
  if (file) return shell_word(image);
  if (runtime != SlurmRuntime::pyxis) return shell_word("docker://" + image);
  const size_t slash = image.find('/');
  const bool registry = slash != image.npos && image.substr(0, slash).find_first_of(".:") != image.npos;
  return shell_word(registry ? image.substr(0, slash) + "#" + image.substr(slash + 1) : image);
}

// Escapes % in a file name, which Slurm would expand.
std::string file_pattern(const std::string& path) {
  std::string out;
  for (const char c : path) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

class ScriptWriter {
 public:
  explicit ScriptWriter(const SlurmScript& script) : script_(script) {}

  std::string write() {
    header();
    begin();
    run();
    end();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void option(const char* name, const std::string& value) {
    if (!value.empty()) line("#SBATCH --{}={}", name, value);
  }
  void option(const char* name, int value) {
    if (value > 0) line("#SBATCH --{}={}", name, value);
  }

  void header() {
    line("#!/bin/bash");
    option("job-name", script_.name);
    option("nodes", script_.nodes);
    option("ntasks", script_.tasks);
    option("ntasks-per-node", script_.tasks_per_node);
    option("cpus-per-task", script_.cpus_per_task);
    option("gpus-per-node", script_.gpus_per_node);
    option("gpus-per-task", script_.gpus_per_task);
    option("mem", script_.memory);
    option("mem-per-cpu", script_.memory_per_cpu);
    option("time", script_.time);
    option("partition", script_.partition);
    option("account", script_.account);
    option("constraint", script_.constraint);
    option("output", script_.output);
    for (const std::string& each : script_.sbatch) line("#SBATCH {}", each);
    if (script_.requeue == Requeue::never) {
      line("#SBATCH --no-requeue");
    } else {
      line("# The job may be requeued; the output of earlier starts is kept.");
      line("#SBATCH --requeue");
      line("#SBATCH --open-mode=append");
    }
    if (script_.signal_seconds > 0) {
      line(
          "# Slurm sends SIGUSR1 to the tasks of srun (not to this script: that would need \"B:\") {} s before the "
          "time",
          script_.signal_seconds);
      line("# limit. Training then saves a checkpoint after the same step in all processes and exits with code 75.");
      line("#SBATCH --signal=USR1@{}", script_.signal_seconds);
    }
    line("");
  }

  void begin() {
    line("set -euo pipefail");
    if (!script_.logs.empty()) {
      line("attempt=$(({} + ${{SLURM_RESTART_COUNT:-0}}))", script_.first_attempt);
      line("echo \"lockstep: attempt $attempt\"");
    }
    if (!script_.folder.empty()) line("cd -- {}", shell_word(script_.folder));
    line("scontrol show job \"$SLURM_JOB_ID\"");
    if (!script_.modules.empty()) {
      line("\nset +u  # module scripts use unset variables");
      for (const std::string& module : script_.modules) line("module load {}", shell_word(module));
      line("set -u");
    }
    line("\n# The secret that a process needs to join the job; a new one for every start.");
    line("LOCKSTEP_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')");
    line("export LOCKSTEP_TOKEN");
  }

  void run() {
    line(
        "\n# Each process detects its rank and its GPUs. When one fails, the others stop, report the cause and exit "
        "with a");
    line(
        "# code that tells whether to retry. --kill-on-bad-exit=1 would kill them before that. srun kills processes "
        "that");
    line("# still run {} s later.", kWaitSeconds);
    line("status=0");
    std::string srun = "srun --unbuffered --export=ALL --ntasks=\"$SLURM_NTASKS\" --nodes=\"$SLURM_JOB_NUM_NODES\"";
    if (script_.cpus_per_task > 0) srun += fmt::format(" --cpus-per-task={}", script_.cpus_per_task);
    line("{} \\", srun);
    line("  --kill-on-bad-exit=0 --wait={} \\", kWaitSeconds);
    if (!script_.mpi.empty()) line("  --mpi={} \\", script_.mpi);
    if (!script_.logs.empty())
      line("  --output={}\"/$attempt-%t.log\" --open-mode=truncate \\", shell_word(file_pattern(script_.logs)));
    container();
    line("  {} || status=$?", line_of(command_of(script_)));
  }

  void container() {
    const std::string image = image_word(script_.image, script_.runtime);
    const bool gpus = script_.gpus_per_node > 0 || script_.gpus_per_task > 0;
    switch (script_.runtime) {
      case SlurmRuntime::none:
        return;
      case SlurmRuntime::apptainer:
      case SlurmRuntime::singularity:
        return line("  {} exec {}{} \\", script_.runtime == SlurmRuntime::apptainer ? "apptainer" : "singularity",
                    gpus ? "--nv " : "", image);
      case SlurmRuntime::pyxis:
        return line("  --container-image={} --container-mounts=\"$PWD:$PWD\" --container-workdir=\"$PWD\" \\", image);
    }
  }

  void end() {
    if (script_.requeue != Requeue::never) requeue();
    if (!script_.logs.empty()) line("echo \"$status\" >{}/ended", shell_word(script_.logs));
    line("exit \"$status\"");
  }

  void requeue() {
    line("\n# Slurm itself requeues the job after a node failure and after preemption without grace time.");
    if (script_.requeue == Requeue::transient)
      line("preempted() {{ scontrol --oneliner show job \"$SLURM_JOB_ID\" | grep -q ' PreemptTime=[0-9]'; }}");
    line("again=no");
    line("case $status in");
    line("  0) ;;");
    switch (script_.requeue) {
      case Requeue::never:
        break;
      case Requeue::transient:
        line("  75) again=yes ;;  # stopped with a checkpoint, or because another process was lost");
        line("  13[4-79]) again=yes ;;  # a process crashed or was killed");
        line("  143) if preempted; then again=yes; fi ;;  # SIGTERM; without preemption it is a request to end");
        break;
      case Requeue::retryable:
        line("  75 | 12[89] | 1[3-9][0-9] | 2[0-9][0-9]) again=yes ;;");
        break;
      case Requeue::any_failure:
        line("  *) again=yes ;;");
        break;
    }
    line("esac");
    line("restarts=${{SLURM_RESTART_COUNT:-0}}");
    if (script_.max_requeues) {
      line("if [ \"$again\" = yes ] && [ \"$restarts\" -ge {} ]; then", *script_.max_requeues);
      line("  echo \"lockstep: exit code $status after {}; the limit is reached\" >&2",
           counted(*script_.max_requeues, "restart"));
      line("  again=no");
      line("fi");
    }
    line("if [ \"$again\" = yes ]; then");
    line("  echo \"lockstep: exit code $status; requeueing the job (restart $((restarts + 1)))\" >&2");
    line("  if scontrol requeue \"$SLURM_JOB_ID\"; then exit \"$status\"; fi");
    line("  echo \"lockstep: Slurm rejected the requeue\" >&2");
    line("fi");
  }

  const SlurmScript& script_;
  std::string out_;
};

[[noreturn]] void throw_invalid_time(std::string_view text, std::string_view source) {
  throw_error("{}: invalid time \"{}\"; write MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS",
              source, text);
}

// Splits "1:30:00" at the colons. `text` is the complete time, for the message.
std::vector<int64_t> numbers(std::string_view rest, std::string_view text, std::string_view source) {
  std::vector<int64_t> out;
  for (;;) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + colon, value);
    constexpr int64_t kMax = 1'000'000;
    if (colon == 0 || error != std::errc() || end != rest.data() + colon || value < 0 || value > kMax)
      throw_invalid_time(text, source);
    out.push_back(value);
    if (colon == rest.size()) return out;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace

std::optional<seconds> parse_slurm_time(std::string_view text, std::string_view source) {
  if (text == "UNLIMITED" || text == "INFINITE") return std::nullopt;
  const size_t dash = text.find('-');
  int64_t total = 0;
  if (dash != text.npos) {
    const std::vector<int64_t> days = numbers(text.substr(0, dash), text, source);
    const std::vector<int64_t> rest = numbers(text.substr(dash + 1), text, source);  // hours, minutes, seconds
    if (days.size() != 1 || rest.size() > 3) throw_invalid_time(text, source);
    total = days[0] * 24 * 3600;
    for (size_t i = 0; i < rest.size(); ++i) total += rest[i] * (i == 0 ? 3600 : i == 1 ? 60 : 1);
  } else {
    const std::vector<int64_t> parts = numbers(text, text, source);
    if (parts.size() > 3) throw_invalid_time(text, source);
    total = parts.size() == 1   ? parts[0] * 60
            : parts.size() == 2 ? parts[0] * 60 + parts[1]
                                : parts[0] * 3600 + parts[1] * 60 + parts[2];
  }
  if (total == 0) throw_error("{}: the time limit is 0; set a longer one, or UNLIMITED", source);
  return seconds(total);
}

std::string shell_word(std::string_view word) {
  if (!word.empty() && has_only(word, "_-./:,@%+")) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

SlurmRuntime parse_slurm_runtime(std::string_view word, std::string_view source) {
  if (word == "apptainer") return SlurmRuntime::apptainer;
  if (word == "singularity") return SlurmRuntime::singularity;
  if (word == "pyxis") return SlurmRuntime::pyxis;
  throw_unknown_name(fmt::format("{}: container runtime", source), word, {"apptainer", "singularity", "pyxis"});
}

std::string render_slurm(const SlurmScript& script, std::string_view source) {
  check_layout(script, source);
  check_times(script, source);
  check_words(script, source);
  return ScriptWriter(script).write();
}

}  // namespace lockstep
