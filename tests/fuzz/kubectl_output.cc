// Output of `kubectl get -o json` for jobs, pods and events.
#include "base/json.h"
#include "fuzz/fuzz.h"
#include "jobs/kubernetes/objects.h"
#include "jobs/model/object.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nlohmann::ordered_json value;
  if (!fuzz::accepts([&] { value = parse_json<nlohmann::ordered_json>(fuzz::text_of(data, size), "input"); })) return 0;
  fuzz::accepts([&] { is_job_object(value); });
  fuzz::accepts([&] {
    const Job job = job_of_object(value);
    job_state(job);
    to_yaml(object_json(job));
    events_of_job(value, job, pods_in_list(value));
  });
  fuzz::accepts([&] { newest_pods_in_list(value); });
  fuzz::accepts([&] { events_of_job(value, {}, {}); });
  return 0;
}
