// Templates of `lockstep render kubernetes --template`, with fixed variables. A template can
// include the part after a 0 byte.
#include "jobs/kubernetes/template.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json variables = {{"name", "run"},      {"hosts_count", 2},
                                                   {"gpus", true},       {"args", {"train", "--devices", "8"}},
                                                   {"nothing", nullptr}, {"env", {{{"name", "A"}, {"value", "1"}}}},
                                                   {"share", 0.5},       {"empty", nlohmann::ordered_json::array()}};
  const std::vector<std::string> parts = fuzz::parts_of(fuzz::text_of(data, size), '\0', 2);
  const TemplateFinder find = [&](const std::string& name) -> std::optional<std::string> {
    if (parts.size() < 2 || name != "other.j2") return std::nullopt;
    return parts[1];
  };
  fuzz::accepts([&] { render_template("input.j2", parts[0], variables, find); });
  return 0;
}
