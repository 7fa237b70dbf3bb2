// Files of a run that the page shows: what is accepted, and the messages for damaged ones.
#include "board/run_file_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text_bytes.h"
#include "base/throws.h"
#include "board/run_files.h"
#include "board/stored_files.h"

namespace lockstep::board {
namespace {

using nlohmann::json;

// The text with a value replaced.
std::string changed(const std::string& text, const char* pointer, const json& value) {
  json out = json::parse(text);
  out[json::json_pointer(pointer)] = value;
  return out.dump();
}

void expect_refused(const std::string& text, const std::string& problem) {
  EXPECT_THROWS(checked_evaluation(text), Error,
                "evaluation/report.json " + problem + "; `lockstep eval RUN` writes it");
}
void expect_refused_mesh(const std::string& text, const std::string& problem) {
  EXPECT_THROWS(checked_mesh(text), Error, "mesh.json " + problem + "; training writes it when it starts");
}

TEST(RunFiles, EvaluationsAreChecked) {
  const std::string good = kStoredEvaluation;
  EXPECT_EQ(json::parse(checked_evaluation(good)), json::parse(good));
  checked_evaluation(changed(good, "/metrics/loss", nullptr));  // not finite
  expect_refused("[]", "is not an object");
  expect_refused("{}", "has no list \"classes\"");
  expect_refused(changed(good, "/set", 1), "has no text \"set\"");
  expect_refused(changed(good, "/step", -1), "has no whole number \"step\" from 0 to 4503599627370496");
  expect_refused(changed(good, "/step", 18446744073709551615u),
                 "has no whole number \"step\" from 0 to 4503599627370496");
  expect_refused(changed(good, "/metrics/loss", "x"), "has no \"metrics\" with numbers");
  expect_refused(changed(good, "/classes/0/name", nullptr), "has no text \"name\"");
  expect_refused(changed(good, "/confusion", json::array({1})), "has 2 classes, but 1 rows of \"confusion\"");
  expect_refused(changed(good, "/confusion/1", json{1, -2}), "has a row of \"confusion\" without 2 counts");
  expect_refused(changed(good, "/confusion/1", json{1}), "has a row of \"confusion\" without 2 counts");
  expect_refused(changed(good, "/confusions/0/label", 2), "has no whole number \"label\" from 0 to 1");
  expect_refused(changed(good, "/mistakes/0/probability", "x"), "has a mistake without a \"probability\"");
  EXPECT_THROW(checked_evaluation(good.substr(0, 40)), Error);
}

TEST(RunFiles, MeshesAreChecked) {
  const std::string good = kStoredMesh;
  EXPECT_EQ(json::parse(checked_mesh(good)), json::parse(good));
  expect_refused_mesh("{}", "has no list \"axes\"");
  expect_refused_mesh(changed(good, "/axes/0/size", 3), "has 4 devices, but its axes need 6");
  expect_refused_mesh(changed(good, "/axes/0/size", 0), "has no whole number \"size\" from 1 to 65536");
  expect_refused_mesh(changed(good, "/axes/0/size", 65536), "has more than 65536 devices");
  expect_refused_mesh(changed(good, "/axes/1/name", "data"), "has an axis twice");
  expect_refused_mesh(changed(good, "/devices/0/process", -1), "has no whole number \"process\" from 0 to 2147483647");
  expect_refused_mesh(changed(good, "/parameters/0/shape/0", -1), "has a \"shape\" that is not a list of sizes");
  expect_refused_mesh(changed(good, "/parameters/0/sharding", json::array()),
                      "has a \"sharding\" of another rank than its \"shape\"");
  expect_refused_mesh(changed(good, "/parameters/0/sharding/0", 1), "has a \"sharding\" that is not a list of lists");
  expect_refused_mesh(changed(good, "/parameters/0/gradient/0", json{"x"}),
                      "has a \"gradient\" with an axis that the mesh does not have");
}

TEST(RunFiles, SamplesAreThoseOfTheLastStart) {
  const json out = json::parse(samples_of(
      "{\"step\":10,\"text\":\"a\"}\n{\"step\":20,\"text\":\"b\"}\n{damaged\n{\"step\":\"x\",\"text\":\"\"}\n\n"
      "{\"step\":20,\"text\":\"c\"}\n{\"step\":30,\"error\":\"not finite\"}\n{\"step\":40,\"te"));
  EXPECT_EQ(out.at("skipped"), 2);
  ASSERT_EQ(out.at("samples").size(), 3u);
  EXPECT_EQ(out.at("samples")[1].at("text"), "c");
  EXPECT_EQ(out.at("samples")[2].at("error"), "not finite");
}

TEST(RunFiles, OnlyTheLastSamplesAreShown) {
  std::string text;
  for (int step = 1; step <= 500; ++step) text += "{\"step\":" + std::to_string(step) + ",\"text\":\"a\"}\n";
  const json out = json::parse(samples_of(text));
  EXPECT_EQ(out.at("samples").size(), 200u);
  EXPECT_EQ(out.at("samples").back().at("step"), 500);
}

TEST(RunFiles, TruncatedPicturesAreNotComplete) {
  const std::vector<uint8_t> png = stored_picture();
  EXPECT_TRUE(is_complete_png(png));
  for (size_t size = 0; size < png.size(); ++size) EXPECT_FALSE(is_complete_png(std::span(png).first(size))) << size;
  EXPECT_FALSE(is_complete_png(std::vector<uint8_t>(100)));
}

TEST(RunFiles, MissingAndDamagedFilesAreNamed) {
  const TempDir dir;
  const std::string run = dir.path();
  EXPECT_TRUE(file_versions(run).empty());
  EXPECT_THROWS(evaluation_json(run), Error, "the run has no evaluation/report.json; `lockstep eval RUN` writes it");
  EXPECT_THROWS(mesh_json(run), Error, "the run has no mesh.json; training writes it when it starts");
  EXPECT_THROWS(samples_json(run), Error, "the run has no samples.jsonl; `lockstep train --sample-tokens N` writes it");
  store_files(run);
  EXPECT_EQ(file_versions(run).size(), 4u);
  EXPECT_EQ(worst_picture(run), stored_picture());
  const auto before = file_versions(run);
  std::filesystem::resize_file(run + "/evaluation/worst.png", 20);
  EXPECT_THROWS(worst_picture(run), Error,
                "evaluation/worst.png has 20 bytes and is not a complete PNG file; `lockstep eval RUN` writes it");
  std::filesystem::resize_file(run + "/mesh.json", 40 << 20);
  EXPECT_THROWS(
      mesh_json(run), Error,
      "mesh.json has 41943040 bytes, but the board reads at most 16777216; training writes it when it starts");
  EXPECT_NE(file_versions(run), before);
}

}  // namespace
}  // namespace lockstep::board
