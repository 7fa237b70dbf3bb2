// Files in the folder of a run that the page shows besides its metrics: the last evaluation, texts of a language model,
// and the mesh. docs/reference/run-folder.md has their formats. They may be damaged or be replaced while they are read.
// Pure functions except for the files, safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::board {

// What the folder has of "evaluation", "samples", "mesh" and "trace", each with a text that changes with its files.
std::map<std::string, std::string> file_versions(const std::string& run_folder);

// evaluation/report.json, checked. Throws Error when it is missing or is no report.
std::string evaluation_json(const std::string& run_folder);
// evaluation/worst.png. Throws Error unless it is a complete PNG file.
std::vector<uint8_t> worst_picture(const std::string& run_folder);
// `{"samples": [...], "skipped": N}`: the last texts of samples.jsonl, without damaged lines and without those that a
// resumed run has written again. Throws Error when the file is missing.
std::string samples_json(const std::string& run_folder);
// mesh.json, checked. Throws Error when it is missing or is no mesh.
std::string mesh_json(const std::string& run_folder);

}  // namespace lockstep::board
