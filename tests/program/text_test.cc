// Programs as text: print, parse, and the messages of syntax errors.
#include "ops/host_call.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "rows/eager.h"

namespace lockstep {
namespace {

Program read(std::string_view text) { return parse(text, all_ops()); }

std::string read_error(std::string_view text) {
  return error_of([&] { read(text); });
}

constexpr std::string_view kSmall = R"(program(%0:f32[2,3], %1:f32[3]) {
  %2:f32[2,3] = broadcast[dims=[1], shape=[2,3]] %1
  %3:f32[2,3] = add %0 %2
  return %3 %0
}
)";

TEST(Print, RoundTrips) { EXPECT_EQ(print(read(kSmall)), kSmall); }

TEST(Print, NumbersValuesInOrderOfDefinition) {
  EXPECT_EQ(print(read(R"(program(%7:f32[2,3], %3:f32[3]) {
    %1:f32[2,3] = broadcast[shape=[2,3], dims=[1]] %3
    %90:f32[2,3] = add %7 %1
    return %90 %7 })")),
            kSmall);
}

TEST(Print, WritesEveryKindOfAttribute) {
  const Op any{.name = "any", .type = [](Types in, const Attrs&) { return std::vector<Type>{in[0]}; }};
  const Op* const ops[] = {&any};
  Builder inner;
  const Value x = inner.input({i32, {}});
  const auto body = std::make_shared<const Program>(inner.take(Values{x}));
  Builder b;
  const Value in = b.input({f32, {2}});
  const Value out = emit(any, {in},
                         {{"flag", true},
                          {"no", false},
                          {"whole", int64_t{-3}},
                          {"real", 2.0},
                          {"small", 1e-30},
                          {"third", 1.0 / 3},
                          {"zero", -0.0},
                          {"inf", std::numeric_limits<double>::infinity()},
                          {"less", -std::numeric_limits<double>::infinity()},
                          {"nan", std::nan("")},
                          {"name", std::string("say \"a\\b\"")},
                          {"dtype", bf16},
                          {"list", std::vector<int64_t>{1, -2}},
                          {"empty", std::vector<int64_t>{}},
                          {"function", HostFunction::none()},
                          {"body", body}});
  const Program p = b.take(Values{out});
  const std::string text = print(p);
  EXPECT_EQ(text, R"(program(%0:f32[2]) {
  %1:f32[2] = any[body=program(%0:i32[]) {
      return %0
    }, dtype=bf16, empty=[], flag=true, function=host(0), inf=inf, less=-inf, list=[1,-2], name="say \"a\\b\"", nan=nan, no=false, real=2.0, small=1e-30, third=0.3333333333333333, whole=-3, zero=-0.0] %0
  return %1
}
)");
  const Program again = parse(text, ops);
  EXPECT_EQ(print(again), text);
  EXPECT_EQ(again.eqns[0].attrs, p.eqns[0].attrs);
  EXPECT_EQ(hash(again), hash(p));
}

// A program with a function that this process does not have prints and compares, but does not run.
TEST(Print, RoundTripsFunctionsOfTheHost) {
  const auto text_with = [](int64_t number) {
    return "program(%0:f32[2]) {\n  %1:f32[2] = pure_callback[batch=0, callback=host(" + std::to_string(number) +
           "), results=program(%0:f32[2]) {\n      return %0\n    }] %0\n  return %1\n}\n";
  };
  HostFunctionPtr known = HostFunction::make([](Types, const void* const*, Types, void* const*) {});
  const int64_t number = known->number();
  Builder b;
  const Program made = b.take(pure_callback(b, {b.input({f32, {2}})}, known, {{f32, {2}}}));
  EXPECT_EQ(print(made), text_with(number));
  EXPECT_EQ(read(text_with(number)), made);
  EXPECT_EQ(read(text_with(number)).eqns[0].attrs.get<HostFunctionPtr>("callback"), known);
  EXPECT_NE(read(text_with(number + 1)), made);
  EXPECT_NE(hash(read(text_with(number + 1))), hash(made));
  const Program foreign = read(text_with(number + 1));
  EXPECT_EQ(print(foreign), text_with(number + 1));
  EXPECT_EQ(error_of([&] {
              eager(foreign, {HostArray({f32, {2}})});
            }),
            "callback: the program refers to function " + std::to_string(number + 1) +
                " of the host, which this process does not have; a program with callbacks runs only in the process "
                "that traced "
                "it");
}

TEST(Print, NestsPrograms) {
  const std::string text = R"(program(%0:bool[], %1:f32[]) {
  %2:f32[] = cond[if_false=program(%0:f32[]) {
      %1:f32[] = remat[body=program(%0:f32[]) {
          %1:f32[] = neg %0
          return %1
        }] %0
      return %1
    }, if_true=program(%0:f32[]) {
      return %0
    }] %0 %1
  return %2
}
)";
  EXPECT_EQ(print(read(text)), text);
}

TEST(Print, RoundTripsAnEmptyProgram) {
  const std::string text = "program() {\n  return\n}\n";
  EXPECT_EQ(print(read(text)), text);
}

TEST(Parse, ErrorsHaveLineAndColumn) {
  EXPECT_EQ(read_error("programme() { return }"), "parse: line 1, column 10: expected 'program'");
  EXPECT_EQ(read_error("program(%0:f99[2]) {\n  return %0\n}"),
            "parse: line 1, column 15: 'f99' is not an element type");
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  %1:f32[2] = bow %0\n  return %1\n}"),
            "parse: line 2, column 18: unknown op 'bow'");
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  %1:f32[2] = tanh %5\n  return %1\n}"),
            "parse: line 2, column 22: %5 is used before it is defined");
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  return %0\n} x"),
            "parse: line 3, column 3: expected the end of the text");
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  return %0"), "parse: line 2, column 12: expected '}'");
  EXPECT_EQ(read_error("program(%0:f32[2, %1:f32[]) { return }"), "parse: line 1, column 19: expected an integer");
  EXPECT_EQ(read_error("program(%0:f32[2], %0:f32[2]) { return }"), "parse: line 1, column 23: %0 is defined twice");
  EXPECT_EQ(read_error("program() {\n  %0:f32[] = full[value=1.x]\n  return\n}"),
            "parse: line 2, column 28: '1.x' is not a number");
  EXPECT_EQ(read_error("program() {\n  %0:f32[] = full[value=maybe]\n  return\n}"),
            "parse: line 2, column 30: 'maybe' is not an attribute value");
  EXPECT_EQ(read_error("program() {\n  %0:f32[] = full[value=\"maybe]\n  return\n}\n"),
            "parse: line 5, column 1: unterminated string");
}

TEST(Print, RoundTripsEquationsWithoutResults) {
  const Op none{.name = "none", .type = [](Types, const Attrs&) { return std::vector<Type>(); }};
  const Op* const ops[] = {&none};
  const std::string text = "program() {\n  none[a=1]\n  return\n}\n";
  EXPECT_EQ(print(parse(text, ops)), text);
}

TEST(Parse, BoundsNesting) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "program() { %0:f32[] = remat[body=";
    return text;
  };
  EXPECT_NE(read_error(nested(64)).find("expected a name"), std::string::npos);
  EXPECT_NE(read_error(nested(100'000)).find("programs are nested more than 64 deep"), std::string::npos);
}

TEST(Parse, ChecksTypes) {
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  %1:f32[3] = tanh %0\n  return %1\n}"),
            "check: result 0 of equation 0 (tanh) is declared f32[3], but derived f32[2]");
  EXPECT_EQ(read_error("program(%0:f32[2], %1:i32[2]) {\n  %2:f32[2] = add %0 %1\n  return %2\n}"),
            "add: operands are f32[2] and i32[2]; cast one of them");
  EXPECT_EQ(read_error("program(%0:f32[2]) {\n  %1:f32[2], %2:f32[2] = tanh %0\n  return %1\n}"),
            "check: equation 0 (tanh) has 2 results, but the op has 1");
}

TEST(Check, DetectsInvalidPrograms) {
  const Program good = read(kSmall);
  Program p = good;
  p.types[3] = {f32, {3, 2}};
  EXPECT_EQ(error_of([&] { check(p); }),
            "check: result 0 of equation 1 (add) is declared f32[3,2], but derived f32[2,3]");
  p = good;
  std::swap(p.eqns[0], p.eqns[1]);
  EXPECT_EQ(error_of([&] { check(p); }), "check: equation 0 (add) uses value 2 before it is defined");
  p = good;
  p.eqns[1].out[0] = 2;
  EXPECT_EQ(error_of([&] { check(p); }), "check: add defines value 2, which is out of range or already defined");
  p = good;
  p.inputs.push_back(0);
  EXPECT_EQ(error_of([&] { check(p); }),
            "check: the input list defines value 0, which is out of range or already defined");
  p = good;
  p.outputs = {9};
  EXPECT_EQ(error_of([&] { check(p); }), "check: output value 9 is not defined");
  EXPECT_NO_THROW(check(good));
}

TEST(Check, ChecksNestedPrograms) {
  Program p = read(
      "program(%0:f32[2]) {\n  %1:f32[2] = remat[body=program(%0:f32[2]) {\n    %1:f32[2] = neg %0\n    return %1\n  "
      "}] %0\n  return %1\n}");
  Program body = p.eqns[0].attrs.program("body");
  body.eqns[0].in[0] = 1;
  p.eqns[0].attrs.set("body", std::make_shared<const Program>(body));
  EXPECT_EQ(error_of([&] { check(p); }), "check: equation 0 (neg) uses value 1 before it is defined");
}

TEST(Hash, DependsOnEverythingPrinted) {
  const std::string text(kSmall);
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string s = text;
    s.replace(s.find(from), from.size(), to);
    return hash(read(s));
  };
  const uint64_t h = hash(read(text));
  EXPECT_EQ(h, hash(read(text)));
  EXPECT_NE(h, changed("add %0 %2", "add %2 %0"));
  EXPECT_NE(h, changed("add", "sub"));
  EXPECT_NE(h, changed("return %3 %0", "return %0 %3"));
  EXPECT_NE(h, changed("return %3 %0", "return %3"));
}

// Programs that print alike have equal hashes, whatever the bits of a NaN.
TEST(Hash, IsEqualForAllNans) {
  auto constant = [](double value) {
    Builder b;
    return hash(b.take(Values{full(b, {f32, {}}, value)}));
  };
  EXPECT_EQ(constant(std::nan("")), constant(-std::nan("")));
  EXPECT_NE(constant(0.0), constant(-0.0));
}

}  // namespace
}  // namespace lockstep
