// The batch script of a job under Slurm, as a pure function of what the job is. Every word of the user reaches its
// program as it was given: nothing is ever read as shell. Safe from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// What runs an image. Pyxis is a part of srun, the others are programs.
enum class SlurmRuntime { none, apptainer, singularity, pyxis };

// After which ends of its processes a job goes back into the queue.
enum class Requeue {
  never,
  passing,     // what may pass: exit code 75, a crash or a kill, preemption
  retryable,   // exit code 75 and those from 128 on: JAXJob's ExitCode
  any_failure  // all but 0
};

struct SlurmScript {
  std::string name = "lockstep";
  int tasks = 1;                                 // processes
  int nodes = 0;                                 // 0: as many as Slurm needs for them
  int tasks_per_node = 0;                        // 0: Slurm's choice
  int cpus_per_task = 0;                         // 0: Slurm's choice
  int gpus_per_node = 0, gpus_per_task = 0;      // at most one of the two is set
  std::string memory = {}, memory_per_cpu = {};  // "8G"; of a node
  std::string time = {}, partition = {}, account = {}, constraint = {}, output = {};
  std::vector<std::string> sbatch = {};   // further options of sbatch, "--mail-type=END"
  std::vector<std::string> modules = {};  // loaded before anything else
  std::string image = {};                 // "$NAME": that variable's value, which a module may have set
  SlurmRuntime runtime = SlurmRuntime::none;
  std::string mpi = {};    // srun's --mpi
  int signal_seconds = 0;  // SIGUSR1 so long before the time is up; 0: none
  Requeue requeue = Requeue::never;
  std::optional<int> max_requeues = {};  // none: no limit
  // A folder into which each process prints, ATTEMPT-PROCESS.log, and the script its exit code, ended, when it is the
  // last one; empty: all print to the job's output. Attempts count on from the first.
  std::string logs = {};
  int first_attempt = 0;
  std::string folder = {};  // in which it runs; empty: where it is submitted
  std::vector<std::pair<std::string, std::string>> env = {};
  std::vector<std::string> command = {};
  // Where processes differ: what each of them runs, instead of env and command.
  struct Task {
    std::vector<std::pair<std::string, std::string>> env = {};
    std::vector<std::string> command = {};

    bool operator==(const Task&) const = default;
  };
  std::vector<Task> each = {};
};

// Throws Error for what Slurm would refuse, or would not do as meant. `source` begins the messages.
std::string render_slurm(const SlurmScript& script, std::string_view source);

// One of Slurm's six ways to write a time: "90" minutes, "1:30:00", "2-12". None for UNLIMITED and INFINITE. Throws
// Error.
std::optional<std::chrono::seconds> parse_slurm_time(std::string_view text, std::string_view source);

// For a shell: as it is where that is safe, else in single quotes.
std::string shell_word(std::string_view word);

// "apptainer"... Throws Error for another word.
SlurmRuntime parse_slurm_runtime(std::string_view word, std::string_view source);

}  // namespace lockstep
