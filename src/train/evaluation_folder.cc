#include "train/evaluation_folder.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "data/images/png_write.h"
#include "train/contact_sheet.h"
#include "train/run_file.h"
#include "train/user_program.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostInMatrix = 128;  // a matrix of 1000 classes would be a file of several megabytes
constexpr size_t kConfusions = 100;
constexpr const char* kPicture = "worst.png";

ordered_json confusions_json(const ClassificationReport& report) {
  ordered_json out = ordered_json::array();
  for (const ClassificationReport::Confusion& each : report.top_confusions(kConfusions))
    out.push_back({{"label", each.label}, {"predicted", each.predicted}, {"examples", each.examples}});
  return out;
}

ordered_json mistakes_json(const std::vector<ClassificationReport::Mistake>& mistakes) {
  ordered_json out = ordered_json::array();
  for (const ClassificationReport::Mistake& each : mistakes)
    out.push_back({{"example", each.example},
                   {"label", each.label},
                   {"predicted", each.predicted},
                   {"probability", each.probability}});
  return out;
}

std::string report_text(const EvaluationReport& evaluation, const EvaluationOrigin& origin, bool has_picture) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ordered_json out{{"format", 1},
                   {"step", origin.step},
                   {"time", std::chrono::duration<double>(now).count()},
                   {"dataset", origin.dataset}};
  out.update(evaluation_object(evaluation));
  if (evaluation.report.classes().size() > kMostInMatrix) out.erase("confusion");
  out["confusions"] = confusions_json(evaluation.report);
  out["mistakes"] = mistakes_json(evaluation.report.worst());
  out["picture"] = has_picture;
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

void store_evaluation(const std::string& run_folder, const EvaluationReport& evaluation,
                      const EvaluationOrigin& origin) {
  if (evaluation.report.empty()) return;
  FileSystem& files = FileSystem::real();
  const std::string folder = run_folder + "/evaluation", picture = folder + "/" + kPicture;
  try {
    files.make_dirs(folder);
    const std::vector<ClassificationReport::Mistake> mistakes = evaluation.report.worst();
    // The picture belongs to the report, which is written last.
    const bool has_picture = !mistakes.empty() && has_images(*origin.source);
    if (has_picture)
      replace_run_file(files, folder, kPicture,
                       detail::to_png(contact_sheet(*origin.source, mistakes, evaluation.class_names)));
    else if (files.exists(picture))
      files.remove(picture);
    replace_run_file(files, folder, "report.json", text_bytes(report_text(evaluation, origin, has_picture)));
  } catch (const std::runtime_error& error) {
    print_stderr("{}: {}; the results of the evaluation are not in {}\n", program_name(), error.what(), folder);
  }
}

std::string run_folder_of(const std::string& path) {
  const std::string record = run_file(path, "run.json");
  return record.empty() ? "" : parent_dir(record);
}

}  // namespace lockstep
