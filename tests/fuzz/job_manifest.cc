// Manifests of jobs, YAML or JSON, as `lockstep apply -f` reads them, and what follows from an accepted one: the stored
// job, the object that `get -o yaml` shows, each replica's variables, and a script for Slurm.
#include "jobs/model/manifest.h"

#include "fuzz/fuzz.h"
#include "jobs/model/object.h"
#include "jobs/slurm/script_from_job.h"

using namespace lockstep;

namespace {

void try_job(const Job& job) {
  fuzz::require(job.spec.replicas >= 1 && job.spec.replicas <= kMaxReplicas, "a job has 1 to 4096 replicas");
  const std::string stored = job_to_json(job).dump();
  fuzz::require(job_to_json(job_from_json(job_to_json(job))).dump() == stored, "a stored job reads back the same");
  to_yaml(object_json(job));
  for (const int index : {0, job.spec.replicas - 1}) replica_env(job, index);
  const SlurmScriptContext context{.program = "/usr/bin/lockstep", .folder = "/home/me", .logs = "/home/me/logs"};
  fuzz::accepts([&] { render_slurm(slurm_script_from_job(job, context, [](std::string_view) {}), "input.yaml"); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ManifestOptions options{.suffix = "abcde"};
  Manifests manifests;
  if (!fuzz::accepts([&] { manifests = parse_manifests(fuzz::text_of(data, size), "input.yaml", options); })) return 0;
  for (const Job& job : manifests.jobs) {
    try_job(job);
    const Manifests again = parse_manifests(to_yaml(job.manifest), "written.yaml", options);
    fuzz::require(again.jobs.size() == 1 && again.jobs[0].spec == job.spec && again.jobs[0].name == job.name,
                  "a manifest that is written parses to the same job");
    Job updated = job;
    fuzz::require(update_job(updated, again.jobs[0]) == "unchanged", "the same manifest changes nothing");
  }
  return 0;
}
