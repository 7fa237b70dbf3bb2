// The version of the library. CMake reads it from here.
#pragma once

#define LOCKSTEP_VERSION "0.1.0"
