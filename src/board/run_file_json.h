// Checks the content of files of a run, and makes the JSON that the page reads from them. Pure functions, safe from any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::board {

inline constexpr const char *kEvaluationFile = "evaluation/report.json", *kPictureFile = "evaluation/worst.png",
                            *kMeshFile = "mesh.json", *kSamplesFile = "samples.jsonl";
// How such files come to be, for messages.
inline constexpr std::string_view kEvaluationRemedy = "`lockstep eval RUN` writes it",
                                  kMeshRemedy = "training writes it when it starts",
                                  kSamplesRemedy = "`lockstep train --sample-tokens N` writes it";

// The text of evaluation/report.json or mesh.json. Throw Error, naming the file and what is wrong, unless it has all that
// the page reads.
std::string checked_evaluation(std::string_view text);
std::string checked_mesh(std::string_view text);

// `{"samples": [...], "skipped": N}`: the last texts of samples.jsonl, without damaged lines and without those that a
// resumed run has written again.
std::string samples_of(std::string_view text);

// Whether the chunks of a PNG file are complete: each has its length, its type and a checksum, and IEND is the last.
bool is_complete_png(std::span<const uint8_t> bytes);

}  // namespace lockstep::board
