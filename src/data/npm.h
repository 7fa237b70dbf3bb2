// Running npm, the package manager of Node.js, to fetch packages with data. Safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::detail {

// Runs npm with these arguments. Throws IoError with the reason when `npm` is not on the PATH, fails, or takes longer
// than the deadline. If `poll` is given, it is called in the caller's thread a few times a second while npm runs.
void run_npm(const std::string& npm, const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
             const std::function<void()>& poll = {});

// Downloads "package@version" as an archive into a folder, without what it depends on, and returns its path. Does not
// run scripts, and keeps no copy in npm's cache. `received` is called with the number of bytes so far.
std::string pack_with_npm(const std::string& npm, const std::string& package, const std::string& folder,
                          std::chrono::milliseconds deadline, const std::function<void(int64_t bytes)>& received = {});

}  // namespace lockstep::detail
