// No pass names an op: what passes and plans need to know about an op is a column of its row.
#include "structure/row_names.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "structure/files.h"

namespace lockstep::structure {
namespace {

TEST(RowNames, PassesPlansAndArraysNameNoRow) {
  const std::string root = LOCKSTEP_SOURCE_DIR "/src/ops/";
  const std::set<std::string> rows = row_names(read_text(root + "ops.def"), read_text(root + "elementwise.def"));
  ASSERT_GT(rows.size(), 90u);
  std::vector<std::string> all;
  for (const SourceFile& file : read_tree({"src/passes", "src/plan", "src/array"}, {".h", ".cc"}))
    for (std::string& each : find_row_names(rows, file.path, file.text)) all.push_back(std::move(each));
  EXPECT_EQ(fmt::format("{}", fmt::join(all, "\n")), "");
}

TEST(RowNames, AreReadFromTheLists) {
  EXPECT_EQ(row_names("// OP(no)\nOP(full)\nOP(einsum)\n#define UNARY(name, ...) OP(name)\n",
                      "//   UNARY(name, linear)\n#define UNARY(...)\nUNARY(neg,  all, 1)\nBINARY(add, all)\n"),
            (std::set<std::string>{"full", "einsum", "neg", "add"}));
}

TEST(RowNames, AreFoundInCodeOnly) {
  const std::set<std::string> rows{"einsum", "neg"};
  EXPECT_EQ(find_row_names(rows, "a.cc", "int x;\nif (eqn.op == &einsum_op) return;  // not neg_op\n"),
            std::vector<std::string>{"a.cc:2: names the row einsum_op; read a column of the row"});
  EXPECT_EQ(find_row_names(rows, "a.cc", "if (eqn.op->name == \"einsum\") return;\n").size(), 1u);
  EXPECT_EQ(find_row_names(rows, "a.cc", "if (op.name.ends_with(\"_start\")) return;\n").size(), 1u);
  EXPECT_TRUE(find_row_names(rows, "a.cc", "set_current_op(1, eqn.op->name); print(op.name, reduce_op);\n").empty());
}

}  // namespace
}  // namespace lockstep::structure
