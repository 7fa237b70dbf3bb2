#include <fmt/format.h>

#include <cctype>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "cli/command.h"
#include "cli/stored_run.h"
#include "command/checkpoint_argument.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "export/export_model.h"
#include "lockstep/hf.h"
#include "lockstep/tasks.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

struct ExportArguments {
  std::string run, output, format, dtype, weights = "auto";
  bool force = false, separate = false;
};

// The format that was given, or that follows from the name of the output.
std::string format_of(const ExportArguments& arguments) {
  if (!arguments.format.empty()) return arguments.format;
  if (arguments.output.empty()) return "onnx";
  for (const auto& [suffix, format] :
       {std::pair{".onnx", "onnx"}, {".safetensors", "safetensors"}, {".h", "c"}, {".hpp", "c"}})
    if (arguments.output.ends_with(suffix)) return format;
  return "hf";
}

std::string output_of(const ExportArguments& arguments, const std::string& format) {
  if (!arguments.output.empty()) return arguments.output;
  if (format == "hf") throw UsageError("export: a Hugging Face folder needs a name; give -o DIR");
  return "model" + std::string(format == "c" ? ".h" : "." + format);
}

void check_flags(const ExportArguments& arguments, const std::string& format) {
  const auto only_for = [&](bool given, const char* flag, const char* needed) {
    if (given && format != needed)
      throw UsageError(
          fmt::format("export: {} has no effect on --format {}; it is for --format {}", flag, format, needed));
  };
  only_for(!arguments.dtype.empty(), "--dtype", "hf");
  only_for(arguments.separate, "--separate-weights", "c");
  if (arguments.force && format == "hf")
    throw UsageError("export: --force has no effect on --format hf; choose a new folder");
  if (arguments.weights != "auto" && format == "hf")
    throw UsageError("export: --weights has no effect on --format hf, which has the average if there is one");
}

void export_hf(const ExportArguments& arguments) {
  check_new_folder("export", arguments.output);
  const std::string run = find_run("export", arguments.run);
  const Checkpoint checkpoint = load_stored_run("export", run);
  if (arguments.format.empty() && from_map(checkpoint.config, run).model != "gpt")
    throw UsageError(
        fmt::format("export: the name {} selects no format; end it with .onnx, .safetensors or .h, or give "
                    "--format",
                    arguments.output));
  const StoredGpt stored = gpt_of(checkpoint, fmt::format("export: {}", run));
  const TokenizerPtr tokenizer = load_run_tokenizer(run);
  if (!tokenizer)
    print_stderr("lockstep: export: {} has no tokenizer.json, so {} has none either\n", run, arguments.output);
  const DType dtype = arguments.dtype == "bf16" ? bf16 : arguments.dtype == "f16" ? f16 : f32;
  save_hf(arguments.output, stored.config, stored.params, {.dtype = dtype, .tokenizer = tokenizer.get()});
  fmt::print("{}: config.json, model.safetensors ({}){}\n", arguments.output, name(dtype),
             tokenizer ? ", tokenizer.json" : "");
}

bool has_average(const Checkpoint& checkpoint) {
  for (const auto& [name, array] : checkpoint.arrays)
    if (name.starts_with("average/")) return true;
  return false;
}

ExportedModel exported_model(const ExportArguments& arguments) {
  StoredModel stored = load_stored_model("export", arguments.run, arguments.weights != "last");
  if (arguments.weights == "average" && !has_average(stored.checkpoint))
    throw_error("export: {} has no average of the weights; train with --ema-decay, or leave out --weights",
                stored.path);
  ExportedModel out{.name = stored.config.model,
                    .step = stored.step,
                    .info = stored.info,
                    .task = stored.task,
                    .params = stored.params};
  if (stored.info.kind != ModelInfo::Kind::text) return out;
  const StoredGpt gpt = gpt_of(stored.checkpoint, fmt::format("export: {}", stored.path));
  out.task = language_task(gpt.config);
  out.params = tree_leaves(gpt.params);
  out.context = gpt.config.context;
  return out;
}

void write_output(const std::string& path, const std::string& bytes, bool force) {
  if (FileSystem::real().exists(path) && !force)
    throw_error("export: {} exists; choose another name with -o, or replace it with --force", path);
  FileSystem::real().write_atomic(path, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

std::string size_text(size_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < 1'000'000 ? fmt::format("{:.1f} kB", value / 1e3) : fmt::format("{:.1f} MB", value / 1e6);
}

// The namespace of a header: the name of the file, with what C++ does not allow replaced.
std::string namespace_of(const std::string& path) {
  std::string out = path.substr(path.find_last_of('/') + 1);
  out = out.substr(0, out.find('.'));
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) || out.starts_with('_') ? "model_" + out : out;
}

void export_c(const ExportArguments& arguments, const ExportedModel& model, const std::string& path) {
  const CFiles files = c_files(model, {.name = namespace_of(path), .separate = arguments.separate});
  std::string shown = path;
  if (arguments.separate) {
    const size_t dot = path.find_last_of('.');
    const std::string weights =
        path.substr(0, dot == path.npos || path.find('/', dot) != path.npos ? path.size() : dot) + ".bin";
    write_output(weights, files.weights, arguments.force);
    shown += " and " + weights;
  }
  write_output(path, files.header, arguments.force);
  fmt::print("{}: {}::predict(), {}\n", shown, namespace_of(path),
             size_text(files.header.size() + files.weights.size()));
}

int run(const ExportArguments& arguments) {
  const std::string format = format_of(arguments), path = output_of(arguments, format);
  check_flags(arguments, format);
  if (format == "hf") {
    export_hf(arguments);
    return kDone;
  }
  // Before the work; write_output() checks again.
  if (FileSystem::real().exists(path) && !arguments.force)
    throw_error("export: {} exists; choose another name with -o, or replace it with --force", path);
  const ExportedModel model = exported_model(arguments);
  if (format == "c") {
    export_c(arguments, model, path);
    return kDone;
  }
  const std::string bytes = format == "onnx" ? onnx_file(model) : safetensors_file(model);
  write_output(path, bytes, arguments.force);
  fmt::print("{}: {}, {}\n", path,
             format == "onnx" ? describe_ports(model) : fmt::format("{} tensors", model.params.size()),
             size_text(bytes.size()));
  return kDone;
}

}  // namespace

void add_export_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("export", "write the model of a run for other programs");
  auto arguments = std::make_shared<ExportArguments>();
  add_run_argument(*command, arguments->run);
  command
      ->add_option("--format", arguments->format,
                   "onnx: for ONNX runtimes; safetensors: the weights alone; c: a C++ header for small models; hf: a "
                   "Hugging Face folder of a language model (default: by the name of the output; without one, onnx)")
      ->type_name("onnx|safetensors|c|hf")
      ->check(one_of({"onnx", "safetensors", "c", "hf"}));
  command
      ->add_option("-o,--output", arguments->output,
                   "the new file, or folder for hf (default: model.onnx, model.safetensors or model.h)")
      ->type_name("PATH");
  command
      ->add_option("--weights", arguments->weights,
                   "the average of the weights (see train --ema-decay), or the last ones (default: auto, the average "
                   "if there is one)")
      ->type_name("auto|average|last")
      ->check(one_of({"auto", "average", "last"}));
  command->add_option("--dtype", arguments->dtype, "hf: element type of the weights (default: f32)")
      ->type_name("f32|bf16|f16")
      ->check(one_of({"f32", "bf16", "f16"}));
  command->add_flag("--separate-weights", arguments->separate, "c: write the weights to a .bin file beside the header");
  command->add_flag("--force", arguments->force, "replace an existing file");
  add_examples(*command, {"lockstep export last -o model.onnx", "lockstep export run --format c -o digits.h",
                          "lockstep export run/step_00001000 --format hf -o folder --dtype bf16"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
