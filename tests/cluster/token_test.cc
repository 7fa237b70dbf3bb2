#include "cluster/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/throws.h"
#include "cluster/control_job.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

const std::string kOther = "fedcba9876543210";

std::string write_token(const TempDir& folder, const std::string& text, mode_t mode) {
  const std::string path = folder.path() + "/token";
  FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

TEST(Token, IsLongAndRandom) {
  const std::string token = make_token();
  EXPECT_EQ(token.size(), 64u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, make_token());
}

TEST(Token, ComparesForEquality) {
  EXPECT_TRUE(same_token(kTestToken, kTestToken));
  EXPECT_TRUE(same_token("", ""));
  EXPECT_FALSE(same_token(kTestToken, kTestToken + "x"));
  EXPECT_FALSE(same_token(kTestToken, ""));
  EXPECT_FALSE(same_token("abcd", "abce"));
}

TEST(Token, OptionPrecedesVariablePrecedesFile) {
  const TempDir folder;
  const std::string path = write_token(folder, kTestToken + "\n", 0600);
  Lines lines;
  EXPECT_EQ(find_token(kOther, {{"LOCKSTEP_TOKEN", kTestToken}}, lines.log()), kOther);
  EXPECT_EQ(find_token("", {{"LOCKSTEP_TOKEN", kOther}, {"LOCKSTEP_TOKEN_FILE", path}}, lines.log()), kOther);
  EXPECT_EQ(find_token("", {{"LOCKSTEP_TOKEN_FILE", path}, {"LOCKSTEP_INSECURE", "1"}}, lines.log()), kTestToken);
  EXPECT_TRUE(lines.take().empty());
}

TEST(Token, ErrorForAMissingTokenExplainsHowToGetOne) {
  Lines lines;
  for (const char* part : {"token: none is set", "`lockstep launch` creates one",
                           "under Slurm run `export LOCKSTEP_TOKEN=$(openssl rand -hex 32)`", "LOCKSTEP_TOKEN_FILE",
                           "or set LOCKSTEP_INSECURE=1 to run without a token"})
    EXPECT_THROWS(find_token("", {{"LOCKSTEP_INSECURE", "0"}}, lines.log()), Error, part);
}

TEST(Token, RunningWithoutIsLogged) {
  Lines lines;
  EXPECT_EQ(find_token("", {{"LOCKSTEP_INSECURE", "1"}}, lines.log()), "");
  EXPECT_EQ(lines.take(),
            std::vector<std::string>{"token: none is set, and LOCKSTEP_INSECURE is 1: every process that can "
                                     "reach the coordinator can join this job"});
}

TEST(Token, InvalidTokenIsRefusedWithoutShowingIt) {
  Lines lines;
  EXPECT_THROWS(find_token("short", {}, lines.log()), Error,
                "token: the option token has 5 characters; a token has 16 to 1024: create one with `openssl rand -hex "
                "32`");
  EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN", "with a space 123456"}}, lines.log()), Error,
                "token: LOCKSTEP_TOKEN has characters other than letters, digits and punctuation");
  EXPECT_THROWS(find_token(std::string(1025, 'x'), {}, lines.log()), Error, "has 1025 characters");
}

TEST(Token, FileReadableByOthersIsLogged) {
  const TempDir folder;
  const std::string path = write_token(folder, kTestToken, 0644);
  Lines lines;
  EXPECT_EQ(find_token("", {{"LOCKSTEP_TOKEN_FILE", path}}, lines.log()), kTestToken);
  EXPECT_EQ(lines.take(), std::vector<std::string>{"token: " + path +
                                                   " is readable by all users of this machine (mode 644); run `chmod "
                                                   "600 " +
                                                   path + "`"});
}

TEST(Token, FileWritableByOthersIsRefused) {
  const TempDir folder;
  Lines lines;
  for (mode_t mode : {0660, 0602}) {
    const std::string path = write_token(folder, kTestToken, mode);
    EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN_FILE", path}}, lines.log()), Error, "is writable by others");
  }
}

TEST(Token, FileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TempDir folder;
  const std::string path = write_token(folder, kTestToken, 0600);
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  Lines lines;
  EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN_FILE", path}}, lines.log()), Error,
                "token: " + path + " belongs to user 12345, but this process runs as user 0; use a file that you own");
}

TEST(Token, MissingOrIrregularFileIsRefused) {
  const TempDir folder;
  Lines lines;
  EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN_FILE", folder.path() + "/none"}}, lines.log()), IoError,
                "read token file " + folder.path() + "/none: No such file or directory");
  EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN_FILE", folder.path()}}, lines.log()), Error, "is not a regular file");
  const std::string path = write_token(folder, "", 0600);
  EXPECT_THROWS(find_token("", {{"LOCKSTEP_TOKEN_FILE", path}}, lines.log()), Error,
                "token: the file " + path + " has 0 characters");
}

}  // namespace
}  // namespace lockstep
