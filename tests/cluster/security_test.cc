// Security of the control plane: what must hold for the whole life of a process.
#include "cluster/security.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep {
namespace {

bool check_at_exit = false;

// Runs after all functions registered with atexit(). OPENSSL_init_crypto() fails once OpenSSL has freed its state.
__attribute__((destructor)) void check_openssl() {
  if (check_at_exit) _exit(OPENSSL_init_crypto(0, nullptr) == 1 ? 42 : 1);
}

TEST(Security, OpensslIsUsableUntilTheProcessHasEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Security made = make_security({.token = "a token of at least sixteen characters"});
        check_at_exit = made.kind == Security::Kind::derived;
        std::exit(0);
      },
      testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace lockstep
