// `lockstep submit`: runs a command as a job, with a manifest that it writes itself.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/names.h"
#include "base/print_stderr.h"
#include "cli/apply_jobs.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/started_command.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/number_check.h"
#include "jobs/kubernetes/kubectl.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/kubernetes/variables.h"
#include "jobs/model/manifest.h"
#include "jobs/table.h"
#include "jobs/uid.h"
#include "lockstep/version.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SubmitArguments {
  JobFlags flags;
  int replicas = 1, gpus = 0, cpus = 0, nodes = 0, max_restarts = 3;
  std::string name, memory, time, partition, account, image, kind = "auto";
  std::vector<std::string> environment, volumes, set;
  bool dry_run = false;
};

// A name for a job of this command: "train-3f2a9".
std::string name_for(const std::string& program) {
  std::string out;
  for (const char c : program.substr(program.rfind('/') + 1)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    out += plain || lower != c ? lower : '-';
  }
  out.erase(0, out.find_first_not_of("0123456789-"));
  constexpr size_t kMost = 40, kRandom = 5;
  return (out.empty() ? "job" : out.substr(0, kMost)) + "-" + make_uid().substr(0, kRandom);
}

// The command of a replica. Throws UsageError for words that are neither a lockstep command nor a program.
std::vector<std::string> command_of(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError(fmt::format("submit: no command after --; add one, {}", kSubmitExample));
  if (words[0].find('/') != std::string::npos) return words;
  const std::vector<std::string> names = names_of_commands();
  if (words[0] == "launch" || words[0] == "submit")
    throw UsageError(fmt::format("submit: a job cannot start {}; give the command that every process runs, {}",
                                 words[0], kSubmitExample));
  if (std::ranges::find(names, words[0]) == names.end())
    throw UsageError(fmt::format("submit: unknown command \"{}\";{} to start another program, give its path", words[0],
                                 suggestion(words[0], names)));
  check_command_line(words);
  std::vector<std::string> out = {"lockstep"};
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

// A $ of the command line is not a reference to a variable of the manifest.
std::string literal(const std::string& word) {
  std::string out;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word.compare(i, 2, "$(") == 0) out += '$';
    out += word[i];
  }
  return out;
}

Json environment_of(const SubmitArguments& arguments) {
  Json out = Json::object();
  for (const std::string& each : arguments.environment) {
    const size_t equals = each.find('=');
    if (equals == each.npos || equals == 0)
      throw UsageError(fmt::format("submit: --env: \"{}\" is not NAME=VALUE", each));
    out[each.substr(0, equals)] = literal(each.substr(equals + 1));
  }
  return out;
}

Json annotations_of(const SubmitArguments& arguments) {
  Json out = Json::object();
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) out[fmt::format("slurm.lockstep/{}", name)] = value;
  };
  add("partition", arguments.partition);
  add("account", arguments.account);
  add("nodes", arguments.nodes > 0 ? std::to_string(arguments.nodes) : "");
  return out;
}

// An Indexed Job needs nothing in the cluster. Kubeflow's operator shows a JAXJob in its tools.
std::string kind_of(const SubmitArguments& arguments) {
  if (arguments.kind != "auto") return arguments.kind;
  if (runner_name(arguments.flags) != "kubernetes") return "jaxjob";
  return kubectl::has_resource("kubeflow.org", "jaxjobs") ? "jaxjob" : "indexed-job";
}

// The variables of the manifest's template, as `lockstep render kubernetes` has them.
Json variables_of(const SubmitArguments& arguments, const std::vector<std::string>& command, const std::string& kind) {
  const std::string name =
      arguments.name.empty() ? name_for(command[command[0] == "lockstep" ? 1 : 0]) : arguments.name;
  Json out = {{"name", name},
              {"hosts_count", arguments.replicas},
              {"backoff", arguments.max_restarts},
              {"command", {literal(command[0])}},
              {"args", Json::array()},
              {"env", environment_of(arguments)},
              {"annotations", annotations_of(arguments)},
              {"volumes", arguments.volumes}};
  for (size_t i = 1; i < command.size(); ++i) out["args"].push_back(literal(command[i]));
  if (!arguments.flags.namespace_name.empty()) out["namespace"] = arguments.flags.namespace_name;
  if (!arguments.image.empty()) out["image"] = arguments.image;
  out["local_device_count"] = nullptr;  // the command's own flags set the devices
  if (arguments.gpus > 0) out["gpus"] = arguments.gpus;
  for (const char* each : {"cpu", "cpu_limit"})
    if (arguments.cpus > 0) out[each] = arguments.cpus;
  if (!arguments.memory.empty()) out["memory"] = arguments.memory;
  if (!arguments.time.empty())
    out["active_deadline"] = std::chrono::ceil<std::chrono::seconds>(parse_duration(arguments.time).value()).count();
  if (runner_name(arguments.flags) != "kubernetes") {
    // Other runners have defaults of their own, and can tell failures that would recur from their exit codes.
    if (kind == "jaxjob") out["restart_policy"] = "ExitCode";
    for (const char* each : {"cpu", "memory", "ephemeral_storage", "initialization_timeout", "data_ports"})
      if (!out.contains(each)) out[each] = nullptr;
  }
  for (const std::string& each : arguments.set) set_variable(out, each);
  // The runner creates the Secret, so that no file or terminal shows the token.
  if (!out.contains("token") && !out.contains("token_secret"))
    out["token_secret"] = (out["name"].is_string() ? out["name"].get<std::string>() : name) + "-token";
  return out;
}

std::string manifest_of(const SubmitArguments& arguments, const std::vector<std::string>& command) {
  try {
    const std::string kind = kind_of(arguments);
    return render_manifest({.kind = kind, .variables = variables_of(arguments, command, kind)});
  } catch (const Error& error) {
    constexpr std::string_view kVariables = "variables: ";
    std::string_view text = error.what();
    if (text.starts_with(kVariables)) text.remove_prefix(kVariables.size());
    throw UsageError(fmt::format("submit: {}", text));
  }
}

// The flags that were given, but have no effect on this runner.
std::vector<std::string> ineffective_flags(const SubmitArguments& arguments) {
  const std::string on = runner_name(arguments.flags);
  std::vector<std::string> out;
  const auto add = [&](bool given, const char* flag) {
    if (given) out.emplace_back(flag);
  };
  add(on == "local" && arguments.gpus > 0, "--gpus");
  add(on == "local" && arguments.cpus > 0, "--cpus");
  add(on == "local" && !arguments.memory.empty(), "--memory");
  add(on != "kubernetes" && !arguments.volumes.empty(), "--volume");
  add(on != "slurm" && arguments.nodes > 0, "--nodes");
  add(on != "slurm" && !arguments.partition.empty(), "--partition");
  add(on != "slurm" && !arguments.account.empty(), "--account");
  return out;
}

int submit(const SubmitArguments& arguments, const std::vector<std::string>& words) {
  const std::string text = manifest_of(arguments, command_of(words));
  Manifests manifests = or_usage_error([&] {
    return parse_manifests(text, "submit",
                           {.namespace_name = arguments.flags.lookup_namespace(),
                            .any_kind = runner_name(arguments.flags) == "kubernetes"});
  });
  for (const std::string& flag : ineffective_flags(arguments))
    print_stderr("lockstep: note: {} has no effect with --on {}\n", flag, runner_name(arguments.flags));
  if (arguments.dry_run) {
    fmt::print("{}", text);
    return kDone;
  }
  const std::unique_ptr<Runner> runner = runner_for(arguments.flags);
  const Job job = manifests.jobs.at(0);
  const auto same_name = [&](const Job& other) { return other.name == job.name; };
  if (std::ranges::any_of(runner->list(job.namespace_name, job.kind), same_name))
    throw UsageError(
        fmt::format("submit: job \"{}\" exists already; choose another --name, or delete it: lockstep delete {}{}",
                    job.name, job.name, arguments.flags.namespace_name.empty() ? "" : " -n " + job.namespace_name));
  apply_jobs(*runner, arguments.flags, {.jobs = {job}, .others = std::move(manifests.others), .notes = {}},
             [&](std::string_view line) {
               if (arguments.image.empty() && line.starts_with("the image ")) return;  // only Kubernetes needs one
               print_stderr("lockstep: note: {}\n", line);
             });
  const std::string on = arguments.flags.on.empty() ? "" : " --on " + arguments.flags.on,
                    where = arguments.flags.namespace_name.empty() ? "" : " -n " + job.namespace_name;
  print_stderr("lockstep: follow it with `lockstep logs -f {}{}{}`\n", job.name, on, where);
  return kDone;
}

CLI::Validator duration_with_unit() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const bool plain = text.find_first_not_of("0123456789.") == text.npos;
        const auto time = plain ? std::nullopt : parse_duration(text);
        return time && time->count() > 0 ? "" : fmt::format("\"{}\" is not a time such as 90s, 30m, 2h or 1d", text);
      },
      "");
}

void add_resource_flags(CLI::App& command, SubmitArguments& arguments) {
  constexpr int kMost = 1'000'000;
  const auto add_number = [&](const char* name, int& value, int low, const char* help) {
    command.add_option(name, value, help)->type_name("N")->check(integer_between(low, kMost));
  };
  add_number("--gpus", arguments.gpus, 0, "GPUs of each process (default: 0)");
  add_number("--cpus", arguments.cpus, 1, "CPUs of each process (default: the runner decides)");
  command.add_option("--memory", arguments.memory, "memory of each process, such as 8Gi (default: the runner decides)")
      ->type_name("SIZE");
  command.add_option("--time", arguments.time, "fail the job after this time, such as 90s, 30m, 2h or 1d")
      ->type_name("TIME")
      ->check(duration_with_unit());
  add_number("--max-restarts", arguments.max_restarts, 0,
             "restart the job up to N times after a failure that a restart may fix (default: 3)");
  add_number("--nodes", arguments.nodes, 1, "Slurm: number of nodes (default: Slurm decides)");
  command.add_option("--partition", arguments.partition, "Slurm: the partition")->type_name("NAME");
  command.add_option("--account", arguments.account, "Slurm: the account to charge")->type_name("NAME");
  command.add_option("--image", arguments.image, "Kubernetes: the image (default: lockstep:" LOCKSTEP_VERSION ")")
      ->type_name("IMAGE");
  command
      .add_option("--kind", arguments.kind,
                  "Kubernetes: the kind of the job (default: jaxjob if Kubeflow is installed, else indexed-job)")
      ->check(one_of({"auto", "indexed-job", "jaxjob"}));
  command
      .add_option("--volume", arguments.volumes,
                  "Kubernetes: mount a PersistentVolumeClaim, such as runs:/data or data:/data:ro; repeatable")
      ->type_name("CLAIM:PATH")
      ->allow_extra_args(false);
  command
      .add_option("--set", arguments.set,
                  "set a variable of the manifest, as `lockstep render kubernetes` does; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
}

}  // namespace

void add_submit_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("submit", "run a command as a job, without a manifest");
  command->formatter(std::make_shared<HelpFormatter>("-- COMMAND [ARGUMENTS]"));
  auto arguments = std::make_shared<SubmitArguments>();
  command->add_option("-n,--processes", arguments->replicas, "number of processes (default: 1)")
      ->type_name("N")
      ->check(integer_between(1, kMaxReplicas));
  command->add_option("--name", arguments->name, "name of the job (default: the command and random characters)")
      ->type_name("NAME");
  add_resource_flags(*command, *arguments);
  command->add_option("--env", arguments->environment, "environment variable of the processes; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--dry-run", arguments->dry_run, "print the manifest, and start nothing");
  add_job_flags(*command, arguments->flags, false, "--namespace");
  group_flags(*command, "Resources", {"--processes", "--gpus", "--cpus", "--memory", "--time", "--nodes"});
  group_flags(*command, "Where it runs",
              {"--on", "--state-dir", "--namespace", "--partition", "--account", "--image", "--kind", "--volume"});
  add_footer(*command,
             "COMMAND is a lockstep command, such as train, or the path of a program. It runs in this folder.");
  add_examples(*command, {"lockstep submit -n 2 --name mnist -- train --model cnn",
                          "lockstep submit --on slurm -n 4 --gpus 1 --time 2h -- train run.yaml",
                          "lockstep submit --on kubernetes --volume runs:/runs -- train --run-dir /runs/a",
                          "lockstep submit -n 2 --name mnist --dry-run -- train > job.yaml"});
  command->callback(
      [arguments, &action] { action = [arguments] { return submit(*arguments, command_after_dashes()); }; });
}

}  // namespace lockstep::cli
