// einsum: the contraction of two arrays. The attribute `spec`, such as "bik,kj->bij", is at once its type rule, its
// sharding rule and, with two terms swapped, its gradient. Every letter stands in at least two of the three terms, and
// once in each.
#pragma once

#include "program/builder.h"

namespace lockstep {

Value einsum(std::string spec, Value a, Value b);

}  // namespace lockstep
