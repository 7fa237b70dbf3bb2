// Settings of a run: a YAML file, and the small languages of its values (mesh, shard, expect).
#include "train/config.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  TrainConfig config;
  if (!fuzz::accepts([&] { config = parse_yaml(text, "input.yaml"); })) return 0;
  const std::string written = to_yaml(config);
  fuzz::require(parse_yaml(written, "written.yaml") == config, "settings that are written read back the same");
  fuzz::require(from_map(to_map(config)) == config, "settings of a checkpoint read back the same");
  fuzz::accepts([&] { validate(config); });
  fuzz::accepts([&] { make_sharding_plan(config); });
  return 0;
}
