#include "export/export_row.h"

#include <map>

#include "base/check.h"
#include "export/c_ops.h"
#include "export/onnx_ops.h"
#include "export/programs.h"

namespace lockstep {
namespace {

constexpr ExportRow kRows[] = {
#define ROW(op, ...) ExportRow{.name = #op __VA_OPT__(, ) __VA_ARGS__},
#include "export/rows.def"
#undef ROW
};

}  // namespace

std::span<const ExportRow> export_rows() { return kRows; }

const ExportRow& export_row(const Op& op) {
  static const std::map<std::string_view, const ExportRow*> by_name = [] {
    std::map<std::string_view, const ExportRow*> out;
    for (const ExportRow& row : kRows) out.emplace(row.name, &row);
    return out;
  }();
  const auto found = by_name.find(op.name);
  LOCKSTEP_CHECK(found != by_name.end(), "rows.def has no line for the op {}", op.name);
  return *found->second;
}

}  // namespace lockstep
