// The core of Lockstep in one header: arrays, transforms, shardings, devices and data. Layers and training
// are in lockstep/nn.h and lockstep/train.h.
#pragma once

// First, so that the compiler's messages about mistakes begin with few lines of includes.
#include "lockstep/detail/signature.h"

#include "lockstep/array.h"
#include "lockstep/collectives.h"
#include "lockstep/control.h"
#include "lockstep/data.h"
#include "lockstep/debug.h"
#include "lockstep/device_put.h"
#include "lockstep/devices.h"
#include "lockstep/distributed.h"
#include "lockstep/error.h"
#include "lockstep/fn.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/ops.h"
#include "lockstep/per_leaf.h"
#include "lockstep/random.h"
#include "lockstep/runtime.h"
#include "lockstep/shard_map.h"
#include "lockstep/sharding.h"
#include "lockstep/tree.h"
#include "lockstep/version.h"
#include "lockstep/visualize.h"
#include "lockstep/vmap.h"
