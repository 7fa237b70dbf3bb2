// Node: the object an Array handle points to. Reference counting and the functions below are safe to use from
// any thread.
//
//   literal   a C++ number
//   concrete  has data: `pieces`
//   traced    value `value` of trace `trace`
//   donated   its memory was given to a compiled function; only the type remains
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "array/lane_pieces.h"
#include "lane/buffer.h"
#include "lockstep/array.h"
#include "lockstep/sharding.h"
#include "program/program.h"

namespace lockstep::detail {

// Returns the unique copy of a type. Types are compared by its address.
const Type* intern(const Type&);

// An array in memory: in one piece, or divided over lanes.
struct Pieces {
  BufferPtr one;          // memory of the host or of the main lane; null if divided
  LanePiecesPtr divided;  // null if in one piece

  void reset() {
    one.reset();
    divided.reset();
  }
};

struct Node {
  enum class Kind : uint8_t { literal, concrete, traced, donated };

  std::atomic<int32_t> references{1};
  Kind kind = Kind::literal;
  const Type* type = nullptr;  // interned
  NamedSharding sharding;      // undefined: on one device
  Pieces pieces;               // concrete: the array
  Pieces copies;               // concrete: copies in the memory of lanes, as last used by programs; cached
  BufferPtr host;              // the array in host memory if `pieces` is not, once it was read; literals too
  uint64_t trace = 0;          // traced: the id of the trace, and the value in it
  ValueId value = 0;
  bool is_number_input = false;  // traced: an input whose argument was a number
  double real = 0;               // literal: the number
  double imaginary = 0;          // literal: its imaginary part, if it is complex
  int64_t integer = 0;           // literal: the same number, if it is an integer or bool
  Node* next = nullptr;          // in the free list
};

// Drops the memory of a node.
void release_memory(Node& node);

// Returns a node from the free list, or a new one. In a steady state the heap is not used.
Node* new_node();

// A concrete array in one piece.
Array concrete(const Type* interned, BufferPtr, NamedSharding = {});
Array concrete(const Type* interned, LanePiecesPtr, NamedSharding);
// Returns the same elements with another sharding. Shares memory.
Array with_new_sharding(const Array& concrete_array, const NamedSharding&);
// Returns the elements from index `first` on, in row-major order, with this shape, without building a
// program. Shares memory if it is the complete array, else copies. nullopt in a trace, and for arrays that
// have a sharding or pieces.
std::optional<Array> contiguous_slice(const Array&, int64_t first, const Shape& shape);
Array traced(const Type& type, uint64_t trace, ValueId value, bool is_number_input = false);

// Throws Error for an array that cannot be read: empty, traced, donated, or partly held by other processes.
// `wanted_by` names the operation in the message. Copies nothing and does not wait.
void check_readable(const Array&, const char* wanted_by);

// The host buffer of a concrete array or literal. Copies from the memory of a lane, or assembles pieces, on first use.
// Throws like check_readable().
const BufferPtr& buffer_of(const Array&, const char* wanted_by);

// A new buffer with a literal's number as this dtype.
BufferPtr literal_buffer(const Node&, DType);

}  // namespace lockstep::detail
