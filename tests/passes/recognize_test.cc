// Recognition of what one row computes. Text in, text out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

Program parsed(std::string_view text) { return parse(text, all_ops()); }
std::string recognized(std::string_view text) { return print(recognize(parsed(text))); }

// How often a row occurs, also in nested programs.
int count_rows(const std::string& text, const std::string& row) {
  int n = 0;
  for (size_t at = text.find("= " + row); at != std::string::npos; at = text.find("= " + row, at + 1)) {
    const char after = text[at + 2 + row.size()];
    n += after == '[' || after == ' ';
  }
  return n;
}

constexpr std::string_view kInputs = "program(%0:f32[2,3,4,8], %1:f32[2,3,4,8], %2:f32[2,3,4,8]) {\n";
// Numbered from %20: the weights of %19, [2,4,3,3], and their product with the values.
constexpr std::string_view kWeights = R"(  %20:f32[2,4,3] = reduce_max[axes=[3]] %19
  %21:f32[2,4,3] = stop_gradient %20
  %22:f32[2,4,3,3] = broadcast[dims=[0,1,2], shape=[2,4,3,3]] %21
  %23:f32[2,4,3,3] = sub %19 %22
  %24:f32[2,4,3,3] = exp %23
  %25:f32[2,4,3] = reduce_sum[axes=[3]] %24
  %26:f32[2,4,3,3] = broadcast[dims=[0,1,2], shape=[2,4,3,3]] %25
  %27:f32[2,4,3,3] = div %24 %26
)";
constexpr std::string_view kProduct = R"(  %28:f32[2,3,4,8] = einsum[spec="bhts,bshf->bthf"] %27 %2
)";
constexpr std::string_view kScores = R"(  %3:f32[2,4,3,3] = einsum[spec="bthe,bshe->bhts"] %0 %1
)";
constexpr std::string_view kScaled = R"(  %10:f32[] = full[dtype=f32, shape=[], value=0.5]
  %11:f32[2,4,3,3] = broadcast[dims=[], shape=[2,4,3,3]] %10
  %12:f32[2,4,3,3] = mul %3 %11
)";
// Where the query %5 sees the key %7, both counted from 0.
constexpr std::string_view kPositions = R"(  %4:i32[3,3] = iota[dim=0, dtype=i32, shape=[3,3]]
  %5:i32[3,3] = iota[dim=1, dtype=i32, shape=[3,3]]
)";

// A program of these scores, as %19, and what follows.
std::string attention_of(std::string_view scores, std::string_view end = "  return %28\n}") {
  return fmt::format("{}{}{}{}{}{}", kInputs, kScores, scores, kWeights, kProduct, end);
}

// Scores that are hidden by `hidden` where the predicate that the equation `visible` computes, as %8, is false.
std::string masked(const std::string& visible, const std::string& hidden = "-inf",
                   const std::string& branches = "%12 %18") {
  return attention_of(fmt::format(R"({}{}{}  %9:bool[2,4,3,3] = broadcast[dims=[2,3], shape=[2,4,3,3]] %8
  %17:f32[] = full[dtype=f32, shape=[], value={}]
  %18:f32[2,4,3,3] = broadcast[dims=[], shape=[2,4,3,3]] %17
  %19:f32[2,4,3,3] = select %9 {}
)",
                                  kScaled, kPositions, visible, hidden, branches));
}
std::string compared(const std::string& comparison, const std::string& hidden = "-inf",
                     const std::string& branches = "%12 %18") {
  return masked(fmt::format("  %8:bool[3,3] = {}\n", comparison), hidden, branches);
}

// The attributes of the only row `attention` of the result; empty if there is none.
std::string attributes(const std::string& text) {
  const std::string out = recognized(text);
  const size_t begin = out.find("attention[");
  return begin == std::string::npos ? "" : out.substr(begin, out.find("] ", begin) - begin);
}

TEST(Recognize, ReplacesCausalAttention) {
  EXPECT_EQ(recognized(compared("ge %4 %5")), R"(program(%0:f32[2,3,4,8], %1:f32[2,3,4,8], %2:f32[2,3,4,8]) {
  %3:f32[2,3,4,8], %4:f32[2,4,3] = attention[causal=true, dropout=0.0, extras="", first=[0,0,0], scale=0.5, softcap=0.0, window=0] %0 %1 %2
  return %3
}
)");
}

TEST(Recognize, ReadsMasksOfComparedPositions) {
  const std::string causal = attributes(compared("ge %4 %5"));
  EXPECT_NE(causal, "");
  EXPECT_EQ(attributes(compared("le %5 %4")), causal);
  for (const char* opposite : {"lt %4 %5", "gt %5 %4"})
    EXPECT_EQ(attributes(compared(opposite, "-inf", "%18 %12")), causal) << opposite;
  for (const char* hidden : {"-1000000000.0", "-65504.0", "-3.4028234663852886e+38"})
    EXPECT_EQ(attributes(compared("ge %4 %5", hidden)), causal) << hidden;
}

TEST(Recognize, ReadsWindows) {
  const auto window = [](const std::string& n) {
    return attributes(masked(fmt::format(R"(  %6:i32[3,3] = full[dtype=i32, shape=[3,3], value={}]
  %7:i32[3,3] = sub %4 %6
  %13:bool[3,3] = gt %5 %7
  %14:bool[3,3] = ge %4 %5
  %8:bool[3,3] = bit_and %13 %14
)",
                                         n)));
  };
  EXPECT_NE(window("2").find("causal=true"), std::string::npos);
  EXPECT_NE(window("2").find("window=2"), std::string::npos);
  EXPECT_EQ(window("0"), "");  // no query sees a key
  EXPECT_NE(window("3").find("window=0"), std::string::npos);
  EXPECT_NE(attributes(compared("eq %4 %5")).find("window=1"), std::string::npos);
}

TEST(Recognize, KeepsMasksThatTheRowCannotExpress) {
  for (const char* visible : {"gt %4 %5", "ne %4 %5"}) EXPECT_EQ(attributes(compared(visible)), "") << visible;
  EXPECT_EQ(attributes(compared("ge %4 %5", "-inf", "%18 %12")), "");
  for (const char* hidden : {"-100.0", "0.0", "inf", "nan"})
    EXPECT_EQ(attributes(compared("ge %4 %5", hidden)), "") << hidden;
}

TEST(Recognize, KeepsScoresAndWeightsThatAreUsedElsewhere) {
  const std::string all = "  %19:f32[2,4,3,3] = neg %12\n", scores = std::string(kScaled) + all;
  EXPECT_EQ(attributes(attention_of(scores)), "");  // neg is no step of attention
  const std::string plain =
      "  %10:f32[2,4,3,3] = full[dtype=f32, shape=[2,4,3,3], value=0.5]\n"
      "  %19:f32[2,4,3,3] = mul %3 %10\n";
  EXPECT_NE(attributes(attention_of(plain)), "");
  for (const char* used : {"%3", "%19", "%20", "%24", "%27"}) {
    const std::string text = attention_of(plain, fmt::format("  return %28 {}\n}}", used));
    EXPECT_EQ(recognize(parsed(text)), parsed(text)) << used;
  }
  const std::string twice = attention_of(plain, R"(  %29:f32[2,3,4,8] = einsum[spec="bhts,bshf->bthf"] %27 %0
  return %28 %29
})");
  EXPECT_EQ(recognize(parsed(twice)), parsed(twice));
}

TEST(Recognize, FindsAttentionInNestedProgramsWithTheMaskOutside) {
  const std::string text = R"(program(%0:f32[2,3,8], %1:f32[2,3,8], %2:f32[2,3,8]) {
  %3:i32[3,3] = iota[dim=0, dtype=i32, shape=[3,3]]
  %4:i32[3,3] = iota[dim=1, dtype=i32, shape=[3,3]]
  %5:bool[3,3] = ge %3 %4
  %6:f32[2,3,8] = remat[body=program(%0:f32[2,3,8], %1:f32[2,3,8], %2:f32[2,3,8], %3:bool[3,3]) {
    %4:f32[2,3,3] = einsum[spec="bte,bse->bts"] %0 %1
    %5:bool[2,3,3] = broadcast[dims=[1,2], shape=[2,3,3]] %3
    %6:f32[2,3,3] = full[dtype=f32, shape=[2,3,3], value=-inf]
    %7:f32[2,3,3] = select %5 %4 %6
    %8:f32[2,3] = reduce_max[axes=[2]] %7
    %9:f32[2,3,3] = broadcast[dims=[0,1], shape=[2,3,3]] %8
    %10:f32[2,3,3] = sub %7 %9
    %11:f32[2,3,3] = exp %10
    %12:f32[2,3] = reduce_sum[axes=[2]] %11
    %13:f32[2,3,3] = broadcast[dims=[0,1], shape=[2,3,3]] %12
    %14:f32[2,3,3] = div %11 %13
    %15:f32[2,3,8] = einsum[spec="bts,bsf->btf"] %14 %2
    return %15
  }] %0 %1 %2 %5
  return %6
})";
  const std::string out = recognized(text);
  EXPECT_EQ(count_rows(out, "attention"), 1) << out;
  EXPECT_EQ(count_rows(out, "exp"), 0) << out;
  EXPECT_NE(out.find("causal=true"), std::string::npos) << out;
}

// A sum of %0, %1 and %2 padded along dimension 1, as the gradient of slices is. %3 is the padding.
std::string padded_sum(std::string_view first, std::string_view second, std::string_view third,
                       std::string_view value = "0.0") {
  const auto padded = [](int id, std::string_view amounts) {
    return fmt::format("  %{}:f32[2,9] = pad[{}] %{} %3\n", id + 4, amounts, id);
  };
  return fmt::format(
      "program(%0:f32[2,2], %1:f32[2,4], %2:f32[2,3]) {{\n  %3:f32[] = full[dtype=f32, shape=[], value={}]\n{}{}{}"
      "  %7:f32[2,9] = add %5 %4\n  %8:f32[2,9] = add %7 %6\n  return %8\n}}",
      value, padded(0, first), padded(1, second), padded(2, third));
}

TEST(Recognize, FindsConcatenationsInSumsOfPaddedArrays) {
  const char *first = "hi=[0,7], interior=[0,0], lo=[0,0]", *second = "hi=[0,3], interior=[0,0], lo=[0,2]",
             *third = "hi=[0,0], interior=[0,0], lo=[0,6]";
  for (const char* zero : {"0.0", "-0.0"})
    EXPECT_EQ(recognized(padded_sum(first, second, third, zero)), R"(program(%0:f32[2,2], %1:f32[2,4], %2:f32[2,3]) {
  %3:f32[2,9] = concatenate[axis=1] %0 %1 %2
  return %3
}
)");
  const auto expect_kept = [](const std::string& text) { EXPECT_EQ(recognize(parsed(text)), parsed(text)) << text; };
  expect_kept(padded_sum(first, second, third, "1.0"));
  expect_kept(padded_sum(first, "hi=[0,4], interior=[0,0], lo=[0,1]", third));    // they overlap
  expect_kept(padded_sum("hi=[0,2], interior=[0,5], lo=[0,0]", second, third));   // not adjacent elements
  expect_kept(padded_sum("hi=[0,8], interior=[0,0], lo=[0,-1]", second, third));  // elements are cut off
}

TEST(Recognize, ReturnsOtherProgramsUnchanged) {
  const Program p = parsed(R"(program(%0:f32[2,3]) {
  %1:f32[2,3] = tanh %0
  %2:f32[2,3] = tanh %0
  %3:f32[2,3] = add %1 %2
  return %3
})");
  EXPECT_EQ(recognize(p), p);
}

}  // namespace
}  // namespace lockstep
