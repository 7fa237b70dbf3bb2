// Blocks of matrices in shared memory, with the interface of the whole matrix.
#pragma once
#include "elements.cuh"

namespace lockstep {

// Reads a block of a matrix from shared memory by the indices of the whole matrix. The matrix has kWidth columns; the
// block has kCols of them and begins at (row, col).
template <class T, int kWidth, int kCols>
struct SharedView {
  const T* at;
  uint32_t row, col;
  const T& operator[](uint32_t i) const { return at[(i / kWidth - row) * kCols + (i % kWidth - col)]; }
};

// Writes elements both to such a block in shared memory (`near`) and to the whole matrix in global memory (`to`).
template <class T, int kWidth, int kCols>
struct SharedAndGlobal {
  T *to, *near;
  uint32_t row, col;
  struct Element {
    T *to, *near;
    void operator=(const T& x) const { *to = x, *near = x; }
  };
  Element operator[](uint32_t i) const { return {to + i, near + (i / kWidth - row) * kCols + (i % kWidth - col)}; }
};

}  // namespace lockstep
