// The control plane by mail: where a launcher has brought the processes together (MPI), they reach the coordinator
// through it, and nobody listens at a port. Safe from any thread.
#pragma once

#include <memory>

#include "cluster/control_channel.h"
#include "cluster/coordinator_host.h"
#include "comm/mailbox.h"

namespace lockstep {

// To the coordinator in process 0. The mail is looked after by a thread of the channel's own.
std::unique_ptr<ControlChannel> mail_channel(std::unique_ptr<Mailbox> mail);

// Process 0's: to the host in this process, to which it lets the others come.
std::unique_ptr<ControlChannel> serving_mail_channel(std::shared_ptr<CoordinatorHost> host,
                                                     std::unique_ptr<Mailbox> mail);

}  // namespace lockstep
