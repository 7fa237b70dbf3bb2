#include "jobs/uid.h"

#include <fmt/format.h>

#include "cluster/token.h"

namespace lockstep {

std::string make_uid() {
  std::string hex = make_token().substr(0, 32);
  hex[12] = '4';
  hex[16] = "89ab"[static_cast<size_t>(hex[16]) % 4];
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                     hex.substr(20));
}

}  // namespace lockstep
