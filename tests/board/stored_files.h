// Files in the folder of a run that `lockstep board` shows: an evaluation, texts, a mesh and traces.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/text_bytes.h"
#include "data/images/png_write.h"

namespace lockstep {

inline constexpr const char* kStoredEvaluation =
    R"({"format":1,"step":100,"time":1800000000,"dataset":"pets","set":"test","examples":10,)"
    R"("metrics":{"loss":0.5,"accuracy":0.8},"classes":[)"
    R"({"name":"cat","examples":6,"predicted":5,"correct":5,"precision":1.0,"recall":0.8333,"f1":0.909},)"
    R"({"name":"dog","examples":4,"predicted":5,"correct":3,"precision":0.6,"recall":0.75,"f1":0.667}],)"
    R"("confusion":[[5,1],[1,3]],"confusions":[{"label":0,"predicted":1,"examples":1}],)"
    R"("mistakes":[{"example":7,"label":0,"predicted":1,"probability":0.9}],"picture":true})";

// data 2 x model 2 on two processes. The weight has 5 rows: the first devices hold one more.
inline constexpr const char* kStoredMesh =
    R"({"format":1,"platform":"cpu","axes":[{"name":"data","size":2},{"name":"model","size":2}],"data_axis":"data",)"
    R"("zero":1,"devices":[{"id":0,"process":0},{"id":1,"process":0},{"id":2,"process":1},{"id":3,"process":1}],)"
    R"("parameters":[{"path":"dense/w","shape":[5,8],"type":"f32","sharding":[["data"],["model"]],)"
    R"("gradient":[["data"],["model"]],"state":[["data","model"],[]]},)"
    R"({"path":"dense/b","shape":[8],"type":"f32","sharding":[[]]}]})";

// Steps 5 to 7 of a rank, of 10 ms each.
inline std::string stored_trace(int rank, double data_ms) {
  std::string events;
  const auto add = [&](const std::string& name, const char* category, double begin, double duration, int lane) {
    events += fmt::format(R"({}{{"name":"{}","cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{}}})",
                          events.empty() ? "" : ",", name, category, 1000 * begin, 1000 * duration, rank, lane);
  };
  for (int step = 0; step < 3; ++step) {
    const double begin = 1000 + 10 * step;
    add(fmt::format("step {}", step + 5), "step", begin, 10, 0);
    add("next batch", "data", begin, data_ms, 0);
    add("step program", "compute", begin + data_ms, 4, 1);
    add("all_reduce", "collective", begin + data_ms + 4, 6 - data_ms, 1);
  }
  return "{\"traceEvents\":[" + events + "]}";
}

inline std::vector<uint8_t> stored_picture() {
  return detail::to_png({.rows = 4, .cols = 6, .channels = 3, .pixels = std::vector<uint8_t>(72, 200)});
}

// Writes all of them: rank 1 is slow in its data.
inline void store_files(const std::string& run_folder) {
  FileSystem& files = FileSystem::real();
  files.make_dirs(run_folder + "/evaluation");
  files.make_dirs(run_folder + "/trace");
  files.write(run_folder + "/evaluation/report.json", text_bytes(kStoredEvaluation));
  files.write(run_folder + "/evaluation/worst.png", stored_picture());
  files.write(run_folder + "/mesh.json", text_bytes(kStoredMesh));
  files.write(run_folder + "/samples.jsonl",
              text_bytes("{\"step\":50,\"prompt\":\"Call\",\"text\":\" me <b>\"}\n{\"step\":100,\"prompt\":\"Call\","
                         "\"text\":\" me Ishmael\"}\n"));
  files.write(run_folder + "/trace/rank_0.json", text_bytes(stored_trace(0, 1)));
  files.write(run_folder + "/trace/rank_1.json", text_bytes(stored_trace(1, 3)));
}

}  // namespace lockstep
