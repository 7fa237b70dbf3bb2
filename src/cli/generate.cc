#include "lockstep/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/stored_run.h"
#include "command/checkpoint_argument.h"
#include "command/choice_check.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "lockstep/devices.h"
#include "lockstep/precision.h"
#include "train/gpt_settings.h"
#include "train/run_folders.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMaxPromptBytes = int64_t{64} << 20;

struct GenerateArguments {
  std::string checkpoint, prompt, prompt_file, tokenizer, precision = "float32";
  GenerateOptions options;
  bool ignore_end = false, quiet = false;
  DevicesFlags devices;
};

std::string prompt_of(const GenerateArguments& arguments) {
  if (arguments.prompt_file.empty()) return arguments.prompt;
  return or_usage_error([&] { return read_user_file(arguments.prompt_file, kMaxPromptBytes); });
}

TokenizerPtr tokenizer_of(const GenerateArguments& arguments) {
  if (!arguments.tokenizer.empty()) return load_tokenizer(arguments.tokenizer);
  TokenizerPtr stored = load_run_tokenizer(arguments.checkpoint);
  if (!stored)
    throw_error("generate: {} has no tokenizer.json; give the tokenizer of the model with --tokenizer",
                arguments.checkpoint);
  return stored;
}

// Prints the first sample as it is generated, and the others at the end. A terminal gets no control characters.
class TextPrinter {
 public:
  explicit TextPrinter(bool several) : several_(several) {
    if (several_) title(0);
  }

  void add(int64_t sample, std::string_view piece) {
    if (sample > 0) return;
    write(piece);
    std::fflush(stdout);
  }
  void finish(const std::vector<GeneratedText>& texts) {
    fmt::print("\n");
    for (size_t i = 1; i < texts.size(); ++i) {
      title(i);
      write(texts[i].text);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

 private:
  static void title(size_t sample) { fmt::print("--- sample {} ---\n", sample + 1); }
  void write(std::string_view text) const {
    const std::string shown = terminal_ ? printable_lines(text) : std::string(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }

  bool several_;
  bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
};

int run(GenerateArguments arguments) {
  const std::string prompt = prompt_of(arguments);
  GenerateOptions options = arguments.options;
  options.stop_at_end = !arguments.ignore_end;
  or_usage_error([&] { check(options); });
  const DType compute = precision_of(arguments.precision).compute;
  use_devices(arguments.devices);
  arguments.checkpoint = find_run("generate", arguments.checkpoint);
  StoredGpt stored =
      gpt_of(load_stored_run("generate", arguments.checkpoint), fmt::format("generate: {}", arguments.checkpoint));
  Generator generator(std::move(stored.config), std::move(stored.params), tokenizer_of(arguments),
                      {.compute = compute});
  const bool prints = process_index() == 0;
  if (!prints) {
    generator.generate(prompt, options);
    return kDone;
  }
  TextPrinter printer(options.samples > 1);
  const std::vector<GeneratedText> texts =
      generator.generate(prompt, options, [&](int64_t sample, std::string_view piece) { printer.add(sample, piece); });
  printer.finish(texts);
  if (!arguments.quiet) {
    const Generator::Times times = generator.times();
    print_stderr("lockstep: {} tokens, the first after {:.2f} s, the others at {:.1f} tokens/s\n", times.tokens,
                 times.first_seconds, times.tokens_per_second());
  }
  return kDone;
}

CLI::Validator number_within(double low, bool low_open, double high, const std::string& wanted) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        const bool valid =
            CLI::detail::lexical_cast(text, value) && (low_open ? value > low : value >= low) && value <= high;
        return valid ? "" : fmt::format("\"{}\" is not {}", text, wanted);
      },
      "");
}

void add_sampling_flags(CLI::App& command, GenerateOptions& options) {
  const int most = std::numeric_limits<int>::max();
  command.add_option("--tokens", options.tokens, "the most tokens to generate for each sample (default: 200)")
      ->type_name("N")
      ->check(integer_between(1, 1 << 30));
  command
      .add_option("--temperature", options.temperature,
                  "divides the logits; 0: always the most probable token (default: 1)")
      ->type_name("X")
      ->check(number_within(0, false, 1e30, "a number of at least 0"));
  command.add_option("--top-k", options.top_k, "draw from the N most probable tokens; 0: all (default: 0)")
      ->type_name("N")
      ->check(integer_between(0, most));
  command
      .add_option("--top-p", options.top_p,
                  "draw from the most probable tokens, as few as have this probability together (default: 1)")
      ->type_name("P")
      ->check(number_within(0, true, 1, "a number above 0 and up to 1"));
  command.add_option("--seed", options.seed, "random seed; the same seed gives the same text (default: 0)")
      ->type_name("N");
  command.add_option("--samples", options.samples, "number of texts for the prompt (default: 1)")
      ->type_name("N")
      ->check(integer_between(1, 4096));
  command.add_option("--stop", options.stop, "end a text before this string; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false);
}

}  // namespace

void add_generate_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("generate", "generate text with the language model of a checkpoint");
  auto arguments = std::make_shared<GenerateArguments>();
  add_run_argument(*command, arguments->checkpoint);
  CLI::Option* prompt =
      command->add_option("--prompt", arguments->prompt, "text to continue; if not given, the begin of a text")
          ->type_name("TEXT");
  command->add_option("--prompt-file", arguments->prompt_file, "file with the text to continue; -: standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  add_sampling_flags(*command, arguments->options);
  command->add_flag("--ignore-end", arguments->ignore_end, "continue after the token that ends a text");
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer (default: tokenizer.json beside the checkpoints)")
      ->type_name("bytes|gpt2|FILE");
  command->add_option("--precision", arguments->precision, "compute type (default: float32)")
      ->type_name("float32|bfloat16|float16")
      ->check(one_of({"float32", "bfloat16", "float16"}));
  command->add_flag("--quiet", arguments->quiet, "do not print the number of tokens and their rate");
  group_flags(*command, "Prompt", {"--prompt", "--prompt-file", "--tokenizer"});
  group_flags(*command, "Sampling", {"--temperature", "--top-k", "--top-p", "--seed", "--samples"});
  group_flags(*command, "End of a text", {"--tokens", "--stop", "--ignore-end"});
  add_devices_flags(*command, arguments->devices);
  add_examples(*command, {"lockstep generate run --prompt \"Call me\" --temperature 0.8 --top-k 40",
                          "lockstep generate run --prompt-file - --tokens 50 --samples 3 < prompt.txt"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
