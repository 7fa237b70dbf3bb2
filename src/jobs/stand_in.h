// Programs of this project that run in place of an image, where replicas are processes and not containers. A manifest
// that names only an image says nothing else about what to run. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

// The name of the program that does what the container's image does: "spmd_mnist_pmap" for the images of Kubeflow's
// SPMD MNIST example. Empty when the container has a command or args, or its image is not a known one.
std::string stand_in_of(const Container& container);

// Where such a program can be, beside the program `lockstep`: in examples/ of a build, and in ../libexec/lockstep/ of
// an installation.
std::vector<std::string> stand_in_places(const std::string& name, const std::string& lockstep);

// The first of these that is a program. Throws Error, naming them, when none is.
std::string find_stand_in(const std::string& name, const std::string& lockstep);

}  // namespace lockstep
