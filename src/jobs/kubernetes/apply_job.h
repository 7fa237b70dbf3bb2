// Creates and updates jobs on a cluster, with the objects that they require. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jobs/model/job.h"

namespace lockstep {

// Creates the job, or updates it. Before a new job, creates the Secret and the Service that it names and that do not
// exist, so that its pods can start at once; the job then owns them. Returns "created", "configured" or "unchanged".
// Passes what it created to `note`.
//
// A new Indexed Job without a token gets one (add_token_reference()). The annotation of `kubectl apply` holds the
// manifest as it was given. So a later `kubectl apply` of the same file does not remove the token.
//
// Throws Error if the number of processes of a running job would change: each process has it in its environment.
// Throws as kubectl.h does; without the permission for a required object, a new job is not created.
std::string apply_job(Job job, const std::function<void(std::string_view)>& note);

}  // namespace lockstep
