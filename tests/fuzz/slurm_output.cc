// What Slurm's programs print of a job. The first byte chooses the program.
#include "fuzz/fuzz.h"
#include "jobs/slurm/sight.h"

using namespace lockstep;

namespace {

void try_sight(const std::optional<SlurmSight>& sight) {
  if (!sight) return;
  stage_of(*sight);
  fuzz::require(sight_from_json(sight_to_json(*sight)) == *sight, "what was seen is kept as it is");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz::accepts([&] { try_sight(parse_scontrol(text)); });
      break;
    case 1:
      fuzz::accepts([&] { try_sight(parse_sacct(text)); });
      break;
    case 2:
      fuzz::accepts([&] { parse_task_ends(text); });
      break;
    default:
      fuzz::accepts([&] { attempt_text(text, 1); });
  }
  return 0;
}
