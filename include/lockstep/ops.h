// All functions on arrays in one header: math, creation, rearranging, reductions, linear algebra, indexing,
// convolution, windows, resizing, normalization, attention, 8-bit floats.
#pragma once

#include "lockstep/attention.h"
#include "lockstep/convolution.h"
#include "lockstep/create.h"
#include "lockstep/image.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/norm.h"
#include "lockstep/quantize.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/windows.h"
