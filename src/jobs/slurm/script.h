// Renders a Slurm batch script. Commands, arguments and environment values are quoted: the shell never interprets them.
// Pure functions, safe from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// The container runtime. Pyxis is a plugin of srun, the others are programs.
enum class SlurmRuntime { none, apptainer, singularity, pyxis };

// Which failures put the job back into the queue.
enum class Requeue {
  never,
  transient,   // exit code 75, a crash or kill, preemption
  retryable,   // exit code 75 and codes >= 128: restartPolicy ExitCode of a JAXJob
  any_failure  // every exit code except 0
};

struct SlurmScript {
  std::string name = "lockstep";
  int tasks = 1;                                 // processes
  int nodes = 0;                                 // 0: Slurm decides
  int tasks_per_node = 0;                        // 0: Slurm decides
  int cpus_per_task = 0;                         // 0: Slurm decides
  int gpus_per_node = 0, gpus_per_task = 0;      // at most one of the two may be set
  std::string memory = {}, memory_per_cpu = {};  // "8G"; `memory` is per node
  std::string time = {}, partition = {}, account = {}, constraint = {}, output = {};
  std::vector<std::string> sbatch = {};   // more sbatch options, such as "--mail-type=END"
  std::vector<std::string> modules = {};  // environment modules to load first
  std::string image = {};                 // "$NAME": the value of this variable, which a module may set
  SlurmRuntime runtime = SlurmRuntime::none;
  std::string mpi = {};    // srun --mpi
  int signal_seconds = 0;  // send SIGUSR1 to the tasks this long before the time limit; 0: do not
  Requeue requeue = Requeue::never;
  std::optional<int> max_requeues = {};  // nullopt: unlimited
  // Log folder; empty: all tasks print to the job's output. Each task writes ATTEMPT-TASK.log. When the job does not
  // requeue, the script writes its exit code to the file `ended`. Attempts are numbered from `first_attempt`, one for
  // each start.
  std::string logs = {};
  int first_attempt = 0;
  std::string folder = {};  // working directory; empty: where sbatch runs
  std::vector<std::pair<std::string, std::string>> env = {};
  std::vector<std::string> command = {};
  struct Task {
    std::vector<std::pair<std::string, std::string>> env = {};
    std::vector<std::string> command = {};

    bool operator==(const Task&) const = default;
  };
  // Replaces `env` and `command` if the tasks differ. REQUIRES: empty, or one entry for each task.
  std::vector<Task> per_task = {};
};

// Throws Error for values that Slurm would reject or misread. `source` is the prefix of the messages.
std::string render_slurm(const SlurmScript& script, std::string_view source);

// Parses a Slurm time in any of its six formats, such as "90" (minutes), "1:30:00" and "2-12" (days-hours). Returns
// nullopt for UNLIMITED and INFINITE. Throws Error.
std::optional<std::chrono::seconds> parse_slurm_time(std::string_view text, std::string_view source);

// Quotes a word for the shell if it needs quotes.
std::string shell_word(std::string_view word);

// "apptainer", "singularity" or "pyxis". Throws Error for any other word.
SlurmRuntime parse_slurm_runtime(std::string_view word, std::string_view source);

}  // namespace lockstep
