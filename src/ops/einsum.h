// einsum: the contraction of two arrays. The attribute `spec`, such as "bik,kj->bij", is its type rule, its sharding
// rule and, with two terms swapped, its gradient. Every letter occurs in at least two of the three terms, and once in
// each. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

Value einsum(std::string spec, Value a, Value b);

}  // namespace lockstep
