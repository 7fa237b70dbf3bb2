// The test data of every row: a naive reference implementation in extended precision, and samples of operands and
// attributes. The tests of this folder walk rows(). Immutable after first use; one thread.
#pragma once

#include <array>
#include <functional>
#include <random>
#include <utility>

#include "ops/ops.h"
#include "rows/eager.h"

namespace lockstep {

// Holds every i64, u64 and f64 exactly.
using Real = long double;

struct RefArray {
  Type type;
  std::vector<Real> data;

  // Complex elements are two numbers: the real and the imaginary part.
  explicit RefArray(Type t)
      : type(std::move(t)), data(static_cast<size_t>(count(type.shape) * (is_complex(type.dtype) ? 2 : 1))) {}
  const Shape& shape() const { return type.shape; }
  Real& at(const Dims& index) { return data[static_cast<size_t>(position(type.shape, index))]; }
  Real at(const Dims& index) const { return data[static_cast<size_t>(position(type.shape, index))]; }
};
using RefArrays = std::vector<RefArray>;

// The mesh axis of the samples of collectives.
inline constexpr const char* kAxis = "i";

// Computes `out`, which has the result types, from the operands.
using Reference = std::function<void(const RefArrays& in, const Attrs& attrs, RefArrays& out)>;

// The distribution of the elements of an operand.
struct Domain {
  enum Kind {
    real,      // uniform in [lo, hi]; integers for integer types
    distinct,  // all different, spaced by at least 1/4
    ties,      // few different values
    special,   // zeros, ones, extremes, infinities, NaN
    pooled,    // the max_pool of operand 0
    matrix,    // uniform in [lo, hi], plus 3, 5, 7, ... on the diagonals of matrices: well conditioned
  } kind = real;
  double lo = -2, hi = 2;
};

struct SampleOperand {
  Type type;
  Domain domain = {};
  bool differentiable = true;
};

struct Sample {
  std::vector<SampleOperand> in;
  Attrs attrs = {};
  bool smooth = true;   // differentiable almost everywhere
  int64_t devices = 0;  // for a collective: the number of devices along kAxis

  std::vector<Type> types() const;
  std::string text(const Op&) const;
};

struct Row {
  const Op* op;
  Reference reference;
  std::vector<Sample> samples;
  bool relative = false;  // results are accurate relative to each element, not only to the largest
  bool lowered = false;   // only lowering emits it: never batched or differentiated
};

const std::vector<Row>& rows();
const Row& row_of(const Op&);

// The results of the reference of an op; nested programs use the references of their equations.
RefArrays reference_of(const Op&, const Attrs&, const RefArrays& in);
RefArrays reference_of(const Op&, const Sample&, const RefArrays& in);
RefArrays reference_of(const Program&, const RefArrays& in);

// Threefry-2x32 as its paper describes it: 20 rounds, a key word added after every fourth.
std::pair<uint32_t, uint32_t> threefry_block(uint32_t k0, uint32_t k1, uint32_t a, uint32_t b);
// Philox-4x32 as its paper describes it: 10 rounds, the key increased after each.
std::array<uint32_t, 4> philox_block(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

// The families, each adding its rows.
void add_elementwise_rows(std::vector<Row>&);
void add_complex_rows(std::vector<Row>&);  // after add_elementwise_rows(): adds samples to its rows
void add_shape_rows(std::vector<Row>&);
void add_index_rows(std::vector<Row>&);
void add_reduce_rows(std::vector<Row>&);
void add_window_rows(std::vector<Row>&);
void add_norm_rows(std::vector<Row>&);
void add_loss_rows(std::vector<Row>&);
void add_linalg_rows(std::vector<Row>&);
void add_attention_rows(std::vector<Row>&);
void add_float8_rows(std::vector<Row>&);
void add_program_rows(std::vector<Row>&);
void add_collective_rows(std::vector<Row>&);

// The program that is one equation of this op.
Program program_of(const Op&, const Sample&);

// The program that runs a per-device program on all devices along kAxis together. Values that vary over the axis get a
// leading dimension of `devices`. `devices` 0: the program itself.
Program for_all_devices(const Program&, int64_t devices);

// The sample with every floating type replaced by f64, and c64 by c128, in operands, attributes and nested programs.
Sample in_f64(const Sample&);

HostArrays make_inputs(const Sample&, uint32_t seed);

RefArray to_reference(const HostArray&);
// The reference rounded to its type.
HostArray from_reference(const RefArray&);

// The largest relative error allowed, by dtype; 0 for integers.
double tolerance(DType);

// Elements agree within the tolerance of their type; NaN agrees with NaN. `relative`: as in Row.
void expect_close(const HostArray& got, const HostArray& wanted, bool relative = false);

}  // namespace lockstep
