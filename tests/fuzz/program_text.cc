// The text form of programs.
#include "fuzz/fuzz.h"
#include "program/op.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Program program;
  if (!fuzz::accepts([&] { program = parse(fuzz::text_of(data, size), all_ops()); })) return 0;
  const std::string printed = print(program);
  fuzz::require(print(parse(printed, all_ops())) == printed, "a program that is printed parses to the same");
  return 0;
}
