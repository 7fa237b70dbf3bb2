#include "cluster/token.h"

#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "base/names.h"

namespace lockstep {

namespace {

constexpr size_t kMinTokenLength = 16;
constexpr size_t kMaxTokenLength = 1024;

std::string value(const detail::Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string read_token_file(const std::string& path, const LogLine& log) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_io_error("read token file", path, errno);
  if (!S_ISREG(info.st_mode)) throw_error("token: {} is not a regular file; set LOCKSTEP_TOKEN_FILE to a file", path);
  // Kubernetes mounts Secrets as files owned by root.
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    throw_error("token: {} belongs to user {}, but this process runs as user {}; use a file that you own", path,
                info.st_uid, ::geteuid());
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    throw_error("token: {} is writable by others (mode {:o}); run `chmod 600 {}`", path, info.st_mode & 0777, path);
  if (info.st_mode & S_IROTH)
    log(fmt::format("token: {} is readable by all users of this machine (mode {:o}); run `chmod 600 {}`", path,
                    info.st_mode & 0777, path));
  std::array<uint8_t, kMaxTokenLength + 2> bytes{};
  const size_t count = FileSystem::real().read(path, 0, bytes);
  return checked_token(std::string(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)),
                       "the file " + path);
}

}  // namespace

std::string checked_token(std::string token, const std::string& source) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!token.empty() && is_space(token.back())) token.pop_back();
  if (token.size() < kMinTokenLength || token.size() > kMaxTokenLength)
    throw_error("token: {} has {}; a token has {} to {}: create one with `openssl rand -hex 32`", source,
                counted(static_cast<int64_t>(token.size()), "character"), kMinTokenLength, kMaxTokenLength);
  if (!std::ranges::all_of(token, [](char c) { return c > 32 && c < 127; }))
    throw_error(
        "token: {} has characters other than letters, digits and punctuation; create one with `openssl rand -hex 32`",
        source);
  return token;
}

std::string make_token() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw IoError(fmt::format("getrandom: {}", std::strerror(errno)));
  std::string out;
  for (unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

bool same_token(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string find_token(const std::string& option, const detail::Environment& environment, const LogLine& log) {
  if (!option.empty()) return checked_token(option, "the option token");
  if (const std::string token = value(environment, "LOCKSTEP_TOKEN"); !token.empty())
    return checked_token(token, "LOCKSTEP_TOKEN");
  if (const std::string path = value(environment, "LOCKSTEP_TOKEN_FILE"); !path.empty())
    return read_token_file(path, log);
  if (value(environment, "LOCKSTEP_INSECURE") == "1") {
    log("token: none is set, and LOCKSTEP_INSECURE is 1: every process that can reach the coordinator can join this "
        "job");
    return "";
  }
  throw_error(
      "token: none is set, and without one every process that can reach the coordinator could join the job; "
      "`lockstep launch` creates one; under Slurm run `export LOCKSTEP_TOKEN=$(openssl rand -hex 32)` before srun; in "
      "Kubernetes mount a Secret and set LOCKSTEP_TOKEN_FILE to its file; or set LOCKSTEP_INSECURE=1 to run without a "
      "token");
}

}  // namespace lockstep
