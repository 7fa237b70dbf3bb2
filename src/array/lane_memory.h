// Arrays in the memory of lanes: copies between them and the host. Safe to call from any thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "array/node.h"
#include "lane/lane.h"

namespace lockstep::detail {

// The complete array in memory that programs of the main lane can use: its own, or a copy, which the node caches. A
// literal becomes an array of `type`. Throws like buffer_of(). REQUIRES: `lane` is Lanes::main().
BufferPtr main_lane_buffer(Lane& lane, const Array& array, const Type& type, const char* wanted_by);

// The copies in the memory of several lanes that the node caches, which may be null; and sets them. The caller checks whether
// they fit its lanes.
LanePiecesPtr kept_copies(const Node& node);
void keep_copies(Node& node, LanePiecesPtr copies);

// Copies all these arrays of the host to the main lane at once. Does nothing if its programs use host memory.
void upload_in_one_copy(std::span<const Array> arrays);

// Whether calls of compiled functions return before they are computed, and all arrays are on one lane.
bool computes_ahead();

// Reads an array back to the host while the lanes go on computing. Belongs to one thread.
class ArrayReadback {
 public:
  // Starts to read. Waits for arrays that are divided over lanes. Throws like buffer_of().
  explicit ArrayReadback(const Array& array);
  // Returns the elements. Waits for the copy, but not for work that was enqueued after it. REQUIRES: the first call.
  std::vector<double> wait();

 private:
  const Type* type_;
  std::unique_ptr<Readback> readback_;  // null: the elements are in done_
  BufferPtr done_;
};

}  // namespace lockstep::detail
