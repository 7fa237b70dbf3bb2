// All functions on arrays in one header: math, creation, rearranging, reductions, linear algebra, indexing,
// convolution.
#pragma once

#include "lockstep/convolution.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
