#include "jobs/runner.h"

#include "base/check.h"
#include "jobs/kubernetes/kubernetes_runner.h"
#include "jobs/local/local_runner.h"
#include "jobs/slurm/slurm_runner.h"

namespace lockstep {

std::unique_ptr<Runner> make_runner(const std::string& on) {
  if (on == "local") return make_local_runner();
  if (on == "slurm") return make_slurm_runner();
  if (on == "kubernetes") return make_kubernetes_runner();
  throw_error("jobs run on local, slurm or kubernetes, not on \"{}\"", on);
}

}  // namespace lockstep
