// All of Lockstep.
#pragma once

#include "lockstep/array.h"
#include "lockstep/control.h"
#include "lockstep/data.h"
#include "lockstep/error.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/ops.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"
#include "lockstep/version.h"
#include "lockstep/vmap.h"
