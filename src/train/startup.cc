#include "train/startup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "base/names.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "base/terminal_style.h"
#include "lane/cpus.h"
#include "lane/gpu_report.h"
#include "lockstep/devices.h"
#include "train/describe.h"
#include "train/logging.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

using detail::with_commas;

// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return out;
}

std::string data_text(const StartupFacts& facts) {
  std::vector<std::string> sets = {with_commas(facts.train) + " training"};
  if (facts.validation > 0) sets.push_back(with_commas(facts.validation) + " validation");
  if (facts.test > 0) sets.push_back(with_commas(facts.test) + " test");
  std::string out = facts.dataset.empty() ? "" : printable(facts.dataset) + ": ";
  out += listed(sets) + " examples";
  return facts.example.empty() ? out : out + " of " + facts.example;
}

// "8 virtual devices on the CPU (2 threads)", "4 GPUs (NVIDIA H200)".
std::string hardware_text(const StartupFacts& facts) {
  const std::string each = facts.processes > 1 ? " each" : "",
                    in = facts.processes > 1 ? fmt::format(" in {} processes", facts.processes) : "";
  if (facts.gpu.empty()) {
    const std::string devices = facts.devices == facts.processes ? counted(facts.devices, "device")
                                                                 : fmt::format("{} virtual devices", facts.devices);
    const std::string where =
        facts.processes > 1 ? fmt::format("in {} CPU processes", facts.processes) : std::string("on the CPU");
    return fmt::format("{} {} ({}{})", devices, where, counted(facts.threads, "thread"), each);
  }
  const std::string name = printable(facts.gpu);
  if (facts.devices == facts.gpus * facts.processes)
    return fmt::format("{}{} ({})", counted(facts.devices, "GPU"), in, name);
  return fmt::format("{} virtual devices{} on {}{} ({})", facts.devices, in, counted(facts.gpus, "GPU"), each, name);
}

std::string devices_text(const StartupFacts& facts) {
  std::string out = hardware_text(facts);
  if (facts.mesh.size() > 1) {
    std::vector<std::string> axes;
    for (const auto& [name, size] : facts.mesh) axes.push_back(fmt::format("{}={}", name, size));
    out += fmt::format(", mesh {}", fmt::join(axes, " "));
  } else if (facts.devices > 1) {
    out += ", data parallel";
  }
  if (facts.rules > 0) out += ", " + counted(facts.rules, "sharding rule");
  return facts.zero > 0 ? out + fmt::format(", ZeRO {}", facts.zero) : out;
}

std::string training_text(const StartupFacts& facts) {
  std::string out = counted(facts.steps, "step");
  const double epochs = static_cast<double>(facts.steps) / static_cast<double>(facts.steps_per_epoch);
  if (facts.steps % facts.steps_per_epoch == 0)
    out += fmt::format(": {} of {}", counted(facts.steps / facts.steps_per_epoch, "epoch"),
                       counted(facts.steps_per_epoch, "step"));
  else
    out += fmt::format(" ({:.{}f} epochs)", epochs, epochs < 1 ? 3 : epochs < 100 ? 1 : 0);
  out += fmt::format(", batch size {}", facts.batch_size);
  if (facts.accumulate > 1) out += fmt::format(" in {} parts", facts.accumulate);
  return facts.first_step > 0 ? out + fmt::format(", from step {}", facts.first_step) : out;
}

std::string folder_text(const StartupFacts& facts) {
  if (!facts.checkpoint_dir.empty()) return printable(facts.checkpoint_dir, std::string::npos);
  const std::string logs =
      facts.log_dir.empty() ? "" : ", but metrics in " + printable(facts.log_dir, std::string::npos);
  return "nothing is saved" + logs + (facts.no_save ? " (--no-save)" : "; --run-dir DIR keeps the run");
}

// `LABEL      text`, wrapped between words.
std::string labelled(const std::string& label, const std::string& text, size_t columns, bool color) {
  constexpr size_t kLabel = 11;
  std::string out = painted(label, Paint::bold, color) + std::string(kLabel - label.size(), ' ');
  size_t column = kLabel;
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    const size_t width = display_width(word);
    if (!first && columns > 0 && column + 1 + width > columns) {
      out += '\n' + std::string(kLabel, ' ');
      column = kLabel;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width;
  }
  return out;
}

// "28 x 28", "64 tokens"; empty if the example has neither rows nor units.
std::string example_text(const Problem& problem) {
  if (!problem.task.unit.empty()) return fmt::format("{} {}", problem.task.units_per_example, problem.task.unit);
  for (const Field& field : problem.train->fields())
    if (field.name == "images" && field.example.shape.size() >= 2)
      return fmt::format("{}", fmt::join(field.example.shape, " x "));
  return "";
}

// A data set that is a list of files is known by the first one. Of a long path, the name of the file is enough.
std::string dataset_text(const std::string& dataset) {
  constexpr size_t kLong = 30;
  const size_t comma = std::min(dataset.find(','), dataset.size());
  std::string first = dataset.substr(0, comma);
  if (const size_t slash = first.rfind('/'); first.size() > kLong && slash != first.npos) {
    const size_t colon = first.find(':');  // text:PATH
    const std::string kind = colon < slash ? first.substr(0, colon + 1) : "";
    first = kind + ".../" + first.substr(slash + 1);
  }
  return comma == dataset.size() ? first : first + ",...";
}

}  // namespace

StartupFacts startup_facts(const TrainConfig& config, const Problem& problem, const Engine& engine, const Loader& train,
                           int64_t steps, int64_t first_step) {
  const EngineOptions& options = engine.options();
  StartupFacts out{.dataset = is_user_program() ? "" : dataset_text(config.dataset),
                   .train = problem.train->count(),
                   .validation = problem.validation ? problem.validation->count() : 0,
                   .test = problem.test ? problem.test->count() : 0,
                   .example = example_text(problem),
                   .model = problem.task.name,
                   .devices = options.mesh.size(),
                   .processes = process_count(),
                   .threads = compute_threads(),
                   .rules = static_cast<int64_t>(options.plan.rules.size()),
                   .zero = options.plan.zero,
                   .steps = steps,
                   .first_step = first_step,
                   .steps_per_epoch = train.batches_per_epoch(),
                   .batch_size = config.batch_size,
                   .accumulate = options.accumulate,
                   .optimizer = to_string(options.optimizer.kind),
                   .schedule = to_string(options.optimizer.schedule.kind),
                   .precision = to_string(options.precision),
                   .learning_rate = options.optimizer.schedule.peak,
                   .seed = config.seed,
                   .checkpoint_dir = config.checkpoint_dir,
                   .log_dir = config.log_dir,
                   .no_save = config.no_save};
  for (const Type& type : problem.task.types) out.parameters += count(type.shape);
  const std::vector<std::string>& axes = options.mesh.axis_names();
  for (size_t i = 0; i < axes.size(); ++i) out.mesh.emplace_back(axes[i], options.mesh.shape()[i]);
  if (platform() == Platform::cuda) {
    const GpuReport report = report_first_gpu();
    out.gpu = report.gpus.empty() ? "unknown GPU" : report.gpus[0].name;
    out.gpus = std::max<int64_t>(static_cast<int64_t>(report.used.size()), 1);
  }
  return out;
}

std::string startup_text(const StartupFacts& facts, size_t columns, bool color) {
  const std::pair<const char*, std::string> lines[] = {
      {"data", data_text(facts)},
      {"model", fmt::format("{}, {} parameter{}", printable(facts.model), with_commas(facts.parameters),
                            facts.parameters == 1 ? "" : "s")},
      {"devices", devices_text(facts)},
      {"training", training_text(facts)},
      {"optimizer", fmt::format("{}, learning rate {} ({}), {}, seed {}", facts.optimizer, facts.learning_rate,
                                facts.schedule, facts.precision, facts.seed)},
      {facts.checkpoint_dir.empty() ? "saved" : "saved in", folder_text(facts)}};
  std::string out;
  for (const auto& [label, text] : lines) out += (out.empty() ? "" : "\n") + labelled(label, text, columns, color);
  return out;
}

void print_startup(const StartupFacts& facts) {
  const TerminalStyle& style = LiveLine::of_stderr().style();
  const size_t columns = style.redraws ? terminal_columns(STDERR_FILENO) - 1 : 0;
  write_stderr(startup_text(facts, columns, style.color) + "\n");
}

StartActivity::StartActivity(std::string text) : text_(text), activity_(std::move(text)) {}

StartActivity::~StartActivity() {
  const double seconds = activity_.seconds();
  if (seconds < 2 || LiveLine::of_stderr().style().redraws) return;
  print_stderr("{}: {} took {}\n", program_name(), text_, detail::duration_text(seconds));
}

}  // namespace lockstep
