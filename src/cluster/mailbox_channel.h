// Control channels over a Mailbox, for processes that MPI has started: no process listens on a port. Thread-safe.
#pragma once

#include <memory>

#include "cluster/control_channel.h"
#include "cluster/coordinator_host.h"
#include "comm/mailbox.h"

namespace lockstep {

// A channel to the coordinator in process 0. Its own thread polls the mailbox.
std::unique_ptr<ControlChannel> mailbox_channel(std::unique_ptr<Mailbox> mailbox);

// Process 0's channel: calls `host` directly, and serves the other processes through the mailbox.
std::unique_ptr<ControlChannel> coordinator_mailbox_channel(std::shared_ptr<CoordinatorHost> host,
                                                            std::unique_ptr<Mailbox> mailbox);

}  // namespace lockstep
