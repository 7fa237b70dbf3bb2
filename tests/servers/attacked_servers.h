// The servers of the program, running with something to do.
#pragma once

#include <memory>
#include <string>

#include "servers/attack.h"

namespace lockstep {

class AttackedServer {
 public:
  virtual ~AttackedServer() = default;
  virtual AttackTarget target() const = 0;
};

// "serve": a language model without a token; "serve-token": with one; "board"; "metrics": of a training.
std::unique_ptr<AttackedServer> start_attacked(const std::string& server);

}  // namespace lockstep
