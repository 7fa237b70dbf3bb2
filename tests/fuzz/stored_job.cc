// Files of the runners: jobs, replicas and events as JSON.
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "jobs/local/state.h"
#include "jobs/model/object.h"
#include "jobs/slurm/status.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nlohmann::ordered_json value;
  if (!fuzz::accepts([&] { value = parse_json<nlohmann::ordered_json>(fuzz::text_of(data, size), "input"); })) return 0;
  const auto same = [](const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
    return a.dump() == b.dump();
  };
  fuzz::accepts([&] {
    const auto once = job_to_json(job_from_json(value));
    fuzz::require(same(job_to_json(job_from_json(once)), once), "a job reads back the same");
  });
  fuzz::accepts([&] {
    const auto once = to_json(local_job_from_json(value));
    fuzz::require(same(to_json(local_job_from_json(once)), once), "a local job reads back the same");
  });
  fuzz::accepts([&] {
    const auto once = slurm_job_to_json(slurm_job_from_json(value));
    fuzz::require(same(slurm_job_to_json(slurm_job_from_json(once)), once), "a job of Slurm reads back the same");
  });
  fuzz::accepts([&] { event_from_json(value); });
  return 0;
}
