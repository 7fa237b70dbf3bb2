#include "command/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/names.h"
#include "base/print_stderr.h"
#include "command/choice_check.h"
#include "command/command.h"
#include "command/evaluation_print.h"
#include "command/help.h"
#include "data/images/png_write.h"
#include "lockstep/devices.h"
#include "train/contact_sheet.h"
#include "train/evaluation_folder.h"
#include "train/user_program.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostImages = 400;
constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;  // of bytes that are not UTF-8

// The file of --worst.
std::string worst_file(const ReportFlags& flags) { return flags.worst.size() == 2 ? flags.worst[1] : "worst.png"; }

// The number of images of --worst; 0 if it was not given.
size_t worst_count(const ReportFlags& flags) {
  if (flags.worst.empty()) return 0;
  const std::string& text = flags.worst[0];
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostImages)
    throw UsageError(fmt::format("eval: --worst {}: \"{}\" is not a whole number from 1 to {}; give --worst N FILE.png",
                                 text, text, kMostImages));
  if (!worst_file(flags).ends_with(".png"))
    throw UsageError(
        fmt::format("eval: --worst: the contact sheet is a PNG image, but {} does not end with .png; give "
                    "--worst N FILE.png",
                    worst_file(flags)));
  return static_cast<size_t>(value);
}

void write_sheet(const EvaluatedSet& set, const ClassificationReport& report, size_t count, const std::string& path) {
  if (report.empty())
    throw Error(fmt::format("eval: the model has no classes, so there are no mistakes to draw; leave out --worst"));
  std::vector<ClassificationReport::Mistake> mistakes = report.worst();
  mistakes.resize(std::min(mistakes.size(), count));
  if (mistakes.empty()) {
    print_stderr("{}: eval: every example is correct, so {} was not written\n", program_name(), path);
    return;
  }
  const std::vector<uint8_t> png = detail::to_png(contact_sheet(*set.source, mistakes, set.class_names));
  write_user_file(path, {reinterpret_cast<const char*>(png.data()), png.size()});
  print_stderr("{}: {} are in {}\n", program_name(), counted(std::ssize(mistakes), "mistake"), path);
}

}  // namespace

void add_report_flags(CLI::App& command, ReportFlags& flags) {
  command.add_option("-o,--output", flags.format, "output format (default: text)")
      ->type_name("text|json")
      ->check(one_of({"text", "json"}));
  command
      .add_option("--worst", flags.worst,
                  "draw the N most confident mistakes of an image classifier in FILE, a PNG image (default: worst.png)")
      ->type_name("N [FILE]")
      ->expected(1, 2);
  group_flags(command, "Report", {"--output", "--worst"});
}

int evaluate_and_report(Engine& engine, const TrainState& state, const EvaluatedSet& set, const ReportFlags& flags) {
  const size_t drawn = worst_count(flags);
  ClassificationReport report(std::max(drawn, set.run_folder.empty() ? 0 : kStoredMistakes));
  const EvalResult result =
      engine.evaluate(state, set.source, set.batch_size, [&](const BatchPredictions& batch) { report.add(batch); });
  if (process_index() != 0) return kDone;
  const EvaluationReport evaluation{result, set.name, report, set.class_names};
  fmt::print("{}", flags.format == "json" ? evaluation_object(evaluation).dump(2, ' ', false, kReplace) + "\n"
                                          : evaluation_text(evaluation));
  std::fflush(stdout);
  if (drawn > 0) write_sheet(set, report, drawn, worst_file(flags));
  if (!set.run_folder.empty()) store_evaluation(set.run_folder, evaluation, {state.step, set.dataset, set.source});
  return kDone;
}

}  // namespace lockstep::cli
