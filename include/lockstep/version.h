// The version of the library, in its one place.
#pragma once

#define LOCKSTEP_VERSION "0.1.0"
