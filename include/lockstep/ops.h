// All functions on arrays in one header: math, creation, rearranging, reductions, statistics, linear algebra, indexing,
// sequences, convolution, normalization, attention, 8-bit floats.
// convolution, windows, resizing, normalization, attention, 8-bit floats.
#pragma once

#include "lockstep/activations.h"
#include "lockstep/arrange.h"
#include "lockstep/attention.h"
#include "lockstep/convolution.h"
#include "lockstep/create.h"
#include "lockstep/image.h"
#include "lockstep/indexing.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/matrices.h"
#include "lockstep/norm.h"
#include "lockstep/numeric.h"
#include "lockstep/quantize.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"
#include "lockstep/signal.h"
#include "lockstep/special.h"
#include "lockstep/statistics.h"
#include "lockstep/windows.h"
