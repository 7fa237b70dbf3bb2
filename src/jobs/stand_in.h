// The example programs that containers have beside lockstep. Local and Slurm runners start those of this installation:
// for a command that names one, and in place of a known container image (a stand-in), because a manifest with an image
// but without a command does not name a program. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// The name of the program that replaces the container's image: "spmd_mnist_pmap" for the images of Kubeflow's SPMD
// MNIST example. Empty if the container has a command or args, or if its image is unknown.
std::string stand_in_of(const Container& container);

// Whether the image of lockstep has a program of this name beside lockstep.
bool is_image_program(const std::string& name);

// The paths where the program may be, relative to the program `lockstep`: examples/ in a build tree and
// ../libexec/lockstep/ in an installation.
std::vector<std::string> stand_in_paths(const std::string& name, const std::string& lockstep);

// The first of these paths that is executable. Throws Error with all paths if none is.
std::string find_stand_in(const std::string& name, const std::string& lockstep);

}  // namespace lockstep
