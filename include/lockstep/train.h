// Includes everything for training except lockstep/lockstep.h: layers, losses, optimizers, data loading, checkpoints,
// loggers and the engine that combines them.
#pragma once

#include "lockstep/alarms.h"
#include "lockstep/averages.h"
#include "lockstep/checkpoint.h"
#include "lockstep/engine.h"
#include "lockstep/initializers.h"
#include "lockstep/loader.h"
#include "lockstep/loggers.h"
#include "lockstep/losses.h"
#include "lockstep/meter.h"
#include "lockstep/models.h"
#include "lockstep/nn.h"
#include "lockstep/optimizers.h"
#include "lockstep/sharding_plan.h"
#include "lockstep/precision.h"
#include "lockstep/schedules.h"
