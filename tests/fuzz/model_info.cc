// model.json of a run, which may have been copied from another machine.
#include "train/model_info.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ModelInfo info;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!fuzz::accepts([&] { info = parse_model_info(text, "model.json"); })) return 0;
  fuzz::require(parse_model_info(to_json(info), "written.json") == info,
                "a description that is written reads back the same");
  return 0;
}
