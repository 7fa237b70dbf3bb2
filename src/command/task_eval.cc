#include <limits>
#include <memory>

#include "command/checkpoint_argument.h"
#include "command/commands.h"
#include "command/config_flags.h"
#include "command/help.h"
#include "command/number_check.h"
#include "train/run_folders.h"

namespace lockstep::cli {

void add_task_eval_command(CLI::App& program, Action& action, const ProblemFactory& make) {
  CLI::App* command = program.add_subcommand("eval", "evaluate the model of a checkpoint on the test set");
  auto request = std::make_shared<EvaluationRequest>();
  add_run_argument(*command, request->checkpoint);
  command->add_option("--batch-size", request->batch_size, "examples per batch (default: 1000)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  for (const ConfigKey& key : config_keys())
    if (const auto* row = std::get_if<const detail::SettingRow*>(&key.member); row && (*row)->may_change)
      add_config_flag(*command, request->changes, key);
  add_report_flags(*command, request->report);
  add_devices_flags(*command, request->devices);
  add_examples(*command, {program_name() + " eval last", program_name() + " eval run/step_00001000 --devices 8"});
  command->callback([request, make, &action] {
    action = [request, make] {
      request->checkpoint = find_run("eval", request->checkpoint);
      return evaluate_problem(*request, make);
    };
  });
}

}  // namespace lockstep::cli
