// Clients that occupy a server: silent ones, slow ones, ones with a wrong token and a large body, and busy ones.
#pragma once

#include "servers/attack.h"

namespace lockstep {

// Starts them in a new process, with one core. It ends by itself at the end of size.time, or when this process ends.
pid_t start_attackers(const AttackTarget& target, const AttackSize& size);

}  // namespace lockstep
