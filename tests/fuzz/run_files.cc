// Files in the folder of a run that `lockstep board` shows: an evaluation, a mesh, texts, a picture and a trace.
#include "board/run_file_json.h"
#include "board/trace_store.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string out;
  if (fuzz::accepts([&] { out = board::checked_evaluation(text); }))
    fuzz::require(board::checked_evaluation(out) == out, "a checked evaluation is accepted");
  if (fuzz::accepts([&] { out = board::checked_mesh(text); }))
    fuzz::require(board::checked_mesh(out) == out, "a checked mesh is accepted");
  board::samples_of(text);
  board::is_complete_png({data, size});
  const board::Trace trace =
      board::make_trace({board::parse_trace(text, 0, "rank_0.json"), board::parse_trace(text, 1, "rank_1.json")});
  board::trace_json(trace);
  board::slices_json(trace, {.from = 0, .to = 1, .width = 100});
  return 0;
}
