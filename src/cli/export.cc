#include <fmt/format.h>

#include <memory>

#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/stored_run.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "lockstep/hf.h"
#include "train/gpt_settings.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct ExportArguments {
  std::string checkpoint, output, format = "hf", dtype = "f32";
};

int run(const ExportArguments& arguments) {
  check_new_folder("export", arguments.output);
  const StoredGpt stored =
      gpt_of(load_stored_run("export", arguments.checkpoint), fmt::format("export: {}", arguments.checkpoint));
  const TokenizerPtr tokenizer = load_run_tokenizer(arguments.checkpoint);
  if (!tokenizer)
    print_stderr("lockstep: export: {} has no tokenizer.json, so {} has none either\n", arguments.checkpoint,
                 arguments.output);
  const DType dtype = arguments.dtype == "bf16" ? bf16 : arguments.dtype == "f16" ? f16 : f32;
  save_hf(arguments.output, stored.config, stored.params, {.dtype = dtype, .tokenizer = tokenizer.get()});
  fmt::print("{}: config.json, model.safetensors ({}){}\n", arguments.output, arguments.dtype,
             tokenizer ? ", tokenizer.json" : "");
  return kDone;
}

}  // namespace

void add_export_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("export", "write the model of a checkpoint for other programs");
  auto arguments = std::make_shared<ExportArguments>();
  command
      ->add_option("CHECKPOINT", arguments->checkpoint,
                   "a checkpoint, or a folder of checkpoints or the name of a run, whose newest complete one is used")
      ->required()
      ->type_name("DIR|RUN");
  command->add_option("--format", arguments->format, "hf: a Hugging Face folder (default: hf)")
      ->type_name("hf")
      ->check(one_of({"hf"}));
  command->add_option("-o,--output", arguments->output, "the new folder")->required()->type_name("DIR");
  command->add_option("--dtype", arguments->dtype, "element type of the weights (default: f32)")
      ->type_name("f32|bf16|f16")
      ->check(one_of({"f32", "bf16", "f16"}));
  add_examples(*command, {"lockstep export run --format hf -o folder",
                          "lockstep export run/step_00001000 -o folder --dtype bf16"});
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->checkpoint = find_run("export", arguments->checkpoint);
      return run(*arguments);
    };
  });
}

}  // namespace lockstep::cli
