// Node: what an Array handle points to.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "array/pieces.h"
#include "lane/buffer.h"
#include "lockstep/array.h"
#include "lockstep/sharding.h"
#include "program/program.h"

namespace lockstep::detail {

// The one copy of a type; types are compared by its address.
const Type* intern(const Type&);

struct Node {
  enum class Kind : uint8_t { literal, concrete, traced, donated };

  std::atomic<int32_t> references{1};
  Kind kind = Kind::literal;
  const Type* type = nullptr;  // interned
  NamedSharding sharding;      // where its pieces lie; undefined: on one device
  BufferPtr buffer;      // concrete; a literal, pieces, and what lies on a GPU get one when their data is asked for
  BufferPtr gpu;         // concrete: the same in the GPU's memory, where it was computed or is needed
  LanePiecesPtr pieces;  // concrete: its parts on several lanes; null: it lies whole in `buffer`
  LanePiecesPtr copied;  // concrete: copies of its parts on several GPUs, as a program last needed them
  uint64_t trace = 0;    // traced: which trace, and the value in it
  ValueId value = 0;
  bool stands_for_number = false;  // traced: an argument that was a literal
  double real = 0;                 // literal: the number, also in `integer` when it is none or bool
  int64_t integer = 0;
  Node* next = nullptr;  // in the list of free nodes
};

// Nodes come from a list of free ones, so that a steady state does not touch the heap.
Node* new_node();

Array concrete(const Type* interned, BufferPtr, NamedSharding = {});
Array concrete(const Type* interned, LanePiecesPtr, NamedSharding);
// The same elements under another label.
Array relabelled(const Array& concrete_array, const NamedSharding&);
// As many elements from the `first` on as this shape has, without a program: in the same memory where they are all,
// else copied. Nothing while the thread traces, and of what is no whole array in one memory without a label.
std::optional<Array> stretch_of(const Array&, int64_t first, const Shape& shape);
Array traced(const Type& type, uint64_t trace, ValueId value, bool stands_for_number = false);

// One that a GPU computed.
Array concrete_on_gpu(const Type* interned, BufferPtr, NamedSharding = {});

// The array in the GPU's memory, copied there when it is first asked for. Throws as buffer_of() does. What is large
// stays there with the array.
BufferPtr gpu_buffer_of(const Array&, const Type&, const char* wanted_by);

// Throws Error for what cannot be read, naming the operation that asked: a traced or donated array, or one of which
// other processes have a part. Nothing is copied or waited for.
void check_readable(const Array&, const char* wanted_by);

// The buffer of a concrete array or literal, on the host. Throws as check_readable() does.
const BufferPtr& buffer_of(const Array&, const char* wanted_by);

// A literal as an array of this dtype: its buffer, made on first use.
BufferPtr literal_buffer(const Node&, DType);

}  // namespace lockstep::detail
