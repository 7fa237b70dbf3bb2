// Convolutions with groups of a few channels, such as depthwise ones, on one CPU lane: sums over the taps for many
// channels at once, since products of such small matrices waste most of their time. Stateless functions, safe from any
// thread; results do not depend on the number of threads.
#pragma once

#include "lane/cpu/conv.h"

namespace lockstep::detail {

// Whether the functions below support a convolution and are faster than products.
bool is_direct(const ConvSpec&);

// `out` has the extents of the output images. REQUIRES: is_direct(spec).
void direct_forward(const ConvSpec& spec, ConvSpec::Pair out, Pool&, const void* x, const void* w, void* y,
                    Epilogue epilogue);
void direct_input_gradient(const ConvSpec& spec, ConvSpec::Pair out, Pool&, const void* dy, const void* w, void* dx);
void direct_filter_gradient(const ConvSpec& spec, ConvSpec::Pair out, Pool&, const void* x, const void* dy, void* dw);

}  // namespace lockstep::detail
