// The text form of programs: its grammar, with ops that take any operands and attributes.
#include "fuzz/fuzz.h"
#include "program/op.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Op any{.name = "any", .type = [](Types in, const Attrs&) { return std::vector(in.begin(), in.end()); }};
  static const Op none{.name = "none", .type = [](Types, const Attrs&) { return std::vector<Type>(); }};
  static const Op* const ops[] = {&any, &none};
  Program program;
  if (!fuzz::accepts([&] { program = parse(fuzz::text_of(data, size), ops); })) return 0;
  const std::string printed = print(program);
  const Program again = parse(printed, ops);
  fuzz::require(print(again) == printed, "a program that is printed parses to the same");
  fuzz::require(hash(again) == hash(program), "programs that print alike have the same hash");
  return 0;
}
