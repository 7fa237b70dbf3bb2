#include <fmt/format.h>

#include <limits>
#include <memory>

#include "base/file.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/stored_run.h"
#include "command/help.h"
#include "command/number_check.h"
#include "lockstep/checkpoint.h"
#include "lockstep/hf.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"

namespace lockstep::cli {
namespace {

struct ImportArguments {
  std::string folder, output;
  int64_t context = 0;
};

int run(const ImportArguments& arguments) {
  check_new_folder("import", arguments.output);
  const HfModel model = load_hf(arguments.folder, {.context = arguments.context});
  Checkpoint checkpoint{.config = gpt_settings_of(model.config)};
  int64_t parameters = 0;
  for (const auto& [path, array] : tree_flatten(model.params)) {
    checkpoint.arrays.emplace_back("params/" + path, array);
    parameters += array.size();
  }
  FileSystem::real().make_dirs(arguments.output);
  if (model.tokenizer) store_run_tokenizer(arguments.output, *model.tokenizer);
  const std::string path = save_checkpoint(arguments.output, checkpoint);
  for (const std::string& note : model.notes) print_stderr("lockstep: import: {}\n", note);
  fmt::print("{}: {} parameters, {} layers, width {}, context {}, vocabulary {}\n", path, parameters,
             model.config.layers, model.config.width, model.config.context, model.config.vocabulary);
  return kDone;
}

}  // namespace

void add_import_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("import", "make a checkpoint of a Hugging Face folder");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("FOLDER", arguments->folder,
                   "a folder with config.json, model.safetensors or its shards, and tokenizer.json")
      ->required()
      ->type_name("DIR");
  command->add_option("-o,--output", arguments->output, "the new folder of checkpoints")->required()->type_name("DIR");
  command
      ->add_option("--context", arguments->context,
                   "a shorter context of a model with rotary positions (default: that of the folder)")
      ->type_name("N")
      ->check(integer_between(1, std::numeric_limits<int>::max()));
  add_examples(*command, {"lockstep import SmolLM2-135M -o run --context 2048", "lockstep import gpt2 -o run"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
