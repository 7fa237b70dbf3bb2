// When lanes meet: the all-reduces of a lane's program gathered into buckets, begun as soon as their operands are there
// and waited for just before the first use, so that lanes compute while they talk; gathers begun a little before they
// are needed, and scatters waited for a little after they began. Comes after partition() and before lower(). Pure
// functions, safe from any thread.
//
// All lanes must meet in one order, but where cuts are uneven their programs differ in sizes, and so might decisions
// that look at sizes. So the schedule is decided once, from the program of lane 0 (whose pieces are the largest), and
// carried out on each lane by the places of equations, which are the same on all:
//
//   const Schedule schedule = decide(partition(program, grid, placement, 0));
//   const Program mine = apply(partition(program, grid, placement, lane), schedule);
//
// Worked example. The backward pass of three layers leaves the gradients of layer 3, then 2, then 1 owed over "data",
// and the optimizer pays each where it first uses it. All are there before the first is used: one bucket, which meets
// when the gradients of layer 1 are there. Were they larger than a bucket, those of layer 3 would meet while the
// gradients of layer 2 are computed. Where the layers' weights are cut too (ZeRO 3), the gather of those of layer 2
// begins just before layer 1 multiplies, not when the program does, and the scatter of layer 3's gradient is waited for
// when the next product is there, not when the optimizer needs it: what is whole is whole for a short time. For the
// backward pass they are gathered again (regather.h), and large ones go in pieces (pieces.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/pieces.h"
#include "passes/regather.h"
#include "passes/settle.h"
#include "program/program.h"

namespace lockstep {

struct ScheduleOptions {
  // All-reduces share a bucket up to this size; a larger operand is a bucket of its own.
  int64_t bucket_bytes = int64_t{4} << 20;
  // So many costly equations (products, not elementwise ones) are computed while a gather or a scatter is under way, at
  // most: its memory is taken for as long. 0: gathers and scatters are done at once.
  size_t prefetch = 1;
  RegatherOptions regather = {};
  PiecesOptions pieces = {};
  SettleOptions settle = {};
};

// All-reduces that become one. Numbers are places in the order of the schedule.
struct Bucket {
  std::vector<size_t> members;  // as their operands become ready
  size_t start = 0;             // the lanes begin to meet just before the equation of this place,
  size_t done = 0;              // and have met before that of this one; the same: at once
  bool operator==(const Bucket&) const = default;
};

// A gather or scatter in two steps: it begins at its own place, and has ended before the equation of `done`.
struct Flight {
  size_t place = 0;
  size_t done = 0;
  bool operator==(const Flight&) const = default;
};

struct Schedule {
  std::vector<Again> again;      // what is gathered again; the equations of all else are counted with those
  std::vector<InPieces> pieces;  // what is gathered or scattered in pieces; and with those
  std::vector<size_t> order;     // the equation of each place
  std::vector<Bucket> buckets;   // in the order in which lanes meet
  std::vector<Flight> flights;   // in the order of their places
  bool operator==(const Schedule&) const = default;
};

// Gathers all-reduces over the same axes and of the same kind, in the order in which their operands become ready, as
// far as all operands are there before the first result is used. A gather moves up to the costly equation that is
// `prefetch` before its first use, a scatter to where its operand is there. Besides these only what stands in their way
// and costs nothing to move does: views of what they take come along, small elementwise equations on results (a loss
// divided by its count) wait until they are needed, and elementwise equations that only make operands (a gradient times
// a rate) come as soon as they can.
Schedule decide(const Program& lane0, const ScheduleOptions& options = {});

// Carries a schedule out on the program of any lane of the same grid. Changes no result.
Program apply(const Program& lane, const Schedule& schedule);

}  // namespace lockstep
