// Security: authentication and encryption of the control plane's connections. Everything is derived from the job's
// token, so that launchers need to distribute nothing else. Thread-safe.
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
  std::string word = {};         // the kind in CONNECT requests (grpc/connect_pass.h)
  std::string pass_key = {};     // of the proofs in CONNECT requests; empty without a token
  std::string call_secret = {};  // sent with every call; empty without a token
  TlsFiles tls = {};             // contents in PEM; empty when nothing is encrypted
  std::string server_name = {};  // in the coordinator's certificate; empty: its host name
};

// A job with a token uses TLS. The key of its certificate authority is computed from the token with scrypt, and every
// process issues itself a certificate. Without a token, or with `tls` false, connections are not encrypted. Throws
// Error if files are given and `tls` is false, and as read_tls_files() does.
Security make_security(const SecurityOptions& options);

}  // namespace lockstep
