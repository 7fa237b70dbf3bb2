// Helpers for tests of checkpoints: sample checkpoints, comparison, and forged manifests with valid checksums.
#pragma once

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "array/node.h"
#include "base/digest.h"
#include "base/file.h"
#include "lockstep/checkpoint.h"
#include "lockstep/half.h"

namespace lockstep {

inline FileSystem& disk() { return FileSystem::real(); }
inline void ignore(const std::string&) {}

// The text of a manifest with the correct checksum of its body.
inline std::string with_checksum(const std::string& manifest) {
  const std::string key = ",\n  \"sha256\": \"";
  const std::string body = manifest.substr(0, manifest.rfind(key));
  return body + key + sha256_hex({reinterpret_cast<const uint8_t*>(body.data()), body.size()}) + "\"\n}\n";
}

// Changes the manifest at `path` and updates its checksum.
inline void forge(const std::string& path, const std::function<void(nlohmann::ordered_json&)>& change) {
  const std::vector<uint8_t> text = disk().read_file(path);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text.begin(), text.end());
  json.erase("sha256");
  change(json);
  std::string body = json.dump(2);
  body.resize(body.size() - 2);
  std::ofstream(path, std::ios::binary) << with_checksum(body);
}

inline std::vector<uint8_t> bytes_of(const Array& array) {
  const auto* data = detail::buffer_of(array, "test")->as<const uint8_t>();
  return {data, data + array.type().bytes()};
}

// A small checkpoint whose contents depend on the step.
inline Checkpoint small_checkpoint(int64_t step) {
  Checkpoint out;
  out.step = step;
  out.cursor = {step / 10, step % 10 * 128};
  out.seed = 7;
  std::vector<float> weights(60);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(step) + 0.5f * static_cast<float>(i);
  out.arrays = {{"params/w", Array::from(weights, {6, 10})},
                {"params/b", Array::from(std::vector<float>(10, static_cast<float>(-step)), {10})},
                {"optimizer/step", Array::from(std::vector<int32_t>{static_cast<int32_t>(step)}, {})}};
  out.config = {{"model", "mlp"}};
  out.metrics = {{"test_accuracy", 0.5}};
  return out;
}

// All element types, empty arrays, scalars, unusual names, and numbers that JSON cannot represent.
inline Checkpoint odd_checkpoint() {
  const double inf = std::numeric_limits<double>::infinity();
  Checkpoint out;
  out.step = 1000;
  out.cursor = {3, 4711};
  out.seed = std::numeric_limits<uint64_t>::max();
  out.arrays = {{"z/bool", Array::from(std::vector<bool>{true, false, true}, {3})},
                {"u8", Array::from(std::vector<uint8_t>{0, 128, 255, 1, 2}, {5})},
                {"i32", Array::from(std::vector<int32_t>{-1, 1 << 30}, {2, 1})},
                {"i64", Array::from(std::vector<int64_t>{std::numeric_limits<int64_t>::min()}, {})},
                {"u32", Array::from(std::vector<uint32_t>{4000000000u}, {1})},
                {"bf16", Array::from(std::vector<BFloat16>{BFloat16(1.5f), BFloat16(-2.0f), BFloat16(0.0f)}, {3})},
                {"f16", Array::from(std::vector<Float16>{Float16(0.25f)}, {1, 1, 1})},
                {"f32", Array::from(std::vector<float>{NAN, -INFINITY, -0.0f, 1e-40f}, {2, 2})},
                {"f64", Array::from(std::vector<double>{1.0 / 3, inf}, {2})},
                {"empty", Array::from(std::vector<float>{}, {0, 7})},
                {"empty again", Array::from(std::vector<float>{}, {3, 0})},
                {"quote\" back\\slash \n \x01 \u00e4\u20ac\U0001F600 / '", Array::from(std::vector<float>{42}, {})},
                {"dtype", Array(3)}};
  out.config = {{"a \"quoted\" key", "tab\t newline\n bell\a \u00fc"}, {"", ""}, {"path", "C:\\x"}};
  out.config["with nul"] = std::string("a\0b", 3);
  out.metrics = {{"loss", NAN}, {"up", inf}, {"down", -inf}, {"third", 1.0 / 3}, {"zero", -0.0}, {"tiny", 5e-324}};
  return out;
}

inline bool same_number(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Whether two checkpoints are equal; arrays are compared bitwise.
inline bool same_checkpoint(const Checkpoint& a, const Checkpoint& b) {
  if (a.step != b.step || a.cursor != b.cursor || a.seed != b.seed || a.config != b.config) return false;
  if (a.arrays.size() != b.arrays.size() || a.metrics.size() != b.metrics.size()) return false;
  for (const auto& [name, value] : a.metrics)
    if (!b.metrics.count(name) || !same_number(value, b.metrics.at(name))) return false;
  for (size_t i = 0; i < a.arrays.size(); ++i) {
    const auto& [name, array] = a.arrays[i];
    const auto& [other_name, other] = b.arrays[i];
    if (name != other_name || array.type() != other.type() || bytes_of(array) != bytes_of(other)) return false;
  }
  return true;
}

}  // namespace lockstep
