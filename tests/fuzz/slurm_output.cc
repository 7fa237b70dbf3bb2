// Output of Slurm's programs about a job. The first byte selects the program.
#include "fuzz/fuzz.h"
#include "jobs/slurm/job_info.h"

using namespace lockstep;

namespace {

void try_job_info(const std::optional<SlurmJobInfo>& info) {
  if (!info) return;
  stage_of(*info);
  fuzz::require(job_info_from_json(job_info_to_json(*info)) == *info,
                "SlurmJobInfo survives a round trip through JSON");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz::accepts([&] { try_job_info(parse_scontrol(text)); });
      break;
    case 1:
      fuzz::accepts([&] { try_job_info(parse_sacct(text)); });
      break;
    case 2:
      fuzz::accepts([&] { parse_task_exit_codes(text); });
      break;
    default:
      fuzz::accepts([&] { output_of_attempt(text, 1); });
  }
  return 0;
}
