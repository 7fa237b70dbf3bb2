// Security: how the connections of the control plane prove that they belong to a job, and how they are encrypted. All
// of it is derived from the job's token, so that nothing else has to be distributed. Safe from any thread.
#pragma once

#include <string>

#include "cluster/tls_files.h"

namespace lockstep {

struct SecurityOptions {
  std::string token = {};
  TlsFiles files = {};  // paths; used instead of certificates derived from the token
  bool tls = true;      // false: nothing is encrypted
};

struct Security {
  enum class Kind { plain, derived, files };

  Kind kind = Kind::plain;
  // What a connection presents before anything else: a line that only processes with the same token, or without one,
  // can write. It does not reveal the token.
  std::string pass = {};
  std::string call_secret = {};  // sent with every call; empty without a token
  TlsFiles tls = {};             // contents in PEM; empty when nothing is encrypted
  std::string server_name = {};  // that the coordinator's certificate is of; empty: its host's
};

// A job with a token has TLS with a certificate authority whose key is computed from the token by scrypt; every process
// issues itself a certificate. Without a token, or with `tls` false, connections are plain. Throws Error for
// files given with `tls` false, and as read_tls_files() does.
Security make_security(const SecurityOptions& options);

}  // namespace lockstep
