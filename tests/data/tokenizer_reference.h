// The reference tokenizers in npm packages, run with node.
#pragma once

#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/os/process.h"
#include "base/os/run_program.h"

namespace lockstep {

using IdLists = std::vector<std::vector<int32_t>>;

class ReferenceTokenizers {
 public:
  // Installs the packages into the build folder unless they are there. Several test programs may do so at the same time.
  // Returns why there is no reference; empty: it can be used.
  static std::string install() {
    if (find_program("npm").empty() || find_program("node").empty()) return "npm or node is not on the PATH";
    FileSystem::real().make_dirs(folder());
    const Descriptor lock = open_lock_file(folder() + "/lock", 0600);
    ::flock(lock.get(), LOCK_EX);
    if (FileSystem::real().exists(folder() + "/installed")) return "";
    const ProgramResult result = run_program(
        {"npm", "install", "--prefix", folder(), "--ignore-scripts", "--no-save", "--no-package-lock", "--no-audit",
         "--no-fund", "--no-update-notifier", "--loglevel=error", "tokenizers@0.23.2", "tiktoken@1.0.22"},
        {.deadline = std::chrono::minutes(5), .merge_streams = true});
    EXPECT_EQ(result.code, 0) << result.out;
    if (result.code == 0) FileSystem::real().write(folder() + "/installed", {});
    return "";
  }

  // The ids of the strings, by Hugging Face's tokenizers and the tokenizer.json at this path.
  static IdLists hugging_face(const std::string& tokenizer, const std::vector<std::string>& strings) {
    return encode("tokenizers", tokenizer, strings);
  }
  // The ids of the strings by an encoding of tiktoken, special tokens included.
  static IdLists tiktoken(const std::string& encoding, const std::vector<std::string>& strings) {
    return encode("tiktoken", encoding, strings);
  }
  // Writes an encoding of tiktoken as a tokenizer.json.
  static void write_encoding(const std::string& encoding, const std::string& path) { run({"merges", encoding, path}); }
  // Trains the model of a tokenizer.json on a text file.
  static void train(const std::string& tokenizer, const std::string& text, const std::string& output) {
    run({"train", tokenizer, text, output});
  }

 private:
  static std::string folder() { return std::string(LOCKSTEP_BINARY_DIR) + "/npm/tokenizers"; }

  static void run(std::vector<std::string> arguments) {
    const std::vector<std::string> start = {
        "node", std::string(LOCKSTEP_SOURCE_DIR) + "/tests/data/tokenizer_reference.cjs", folder()};
    arguments.insert(arguments.begin(), start.begin(), start.end());
    const ProgramResult result = run_program(arguments, {.deadline = std::chrono::minutes(2), .merge_streams = true});
    ASSERT_EQ(result.code, 0) << result.out;
  }

  static IdLists encode(const std::string& command, const std::string& what, const std::vector<std::string>& strings) {
    const TempDir dir;
    const std::string input = dir.path() + "/strings.json", output = dir.path() + "/ids.json";
    const std::string text = nlohmann::json(strings).dump();
    FileSystem::real().write(input, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    run({command, what, input, output});
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(output);
    return nlohmann::json::parse(bytes.begin(), bytes.end()).get<IdLists>();
  }
};

}  // namespace lockstep
