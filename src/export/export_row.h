// ExportRow: how an op is written for other programs. rows.def has a line for every op; a column that is missing means
// that the op cannot be written. Immutable, safe from any thread.
#pragma once

#include <span>
#include <string_view>

#include "program/op.h"

namespace lockstep {

class OnnxEmitter;
class CEmitter;

struct ExportRow {
  std::string_view name;
  // The op as a program of simpler ops. A format without a column of its own uses it.
  Program (*program)(Types in, const Attrs& attrs) = nullptr;
  // ONNX: the operator of an elementwise op, or a function that writes nodes.
  const char* onnx_node = nullptr;
  void (*onnx)(OnnxEmitter&) = nullptr;
  // C++: the expression of an elementwise op in its operands x and y, or a function that writes statements.
  const char* c_expression = nullptr;
  void (*c)(CEmitter&) = nullptr;

  bool has_onnx() const { return onnx_node || onnx; }
  bool has_c() const { return c_expression || c; }
};

// The row of an op.
const ExportRow& export_row(const Op& op);

// All rows.
std::span<const ExportRow> export_rows();

}  // namespace lockstep
