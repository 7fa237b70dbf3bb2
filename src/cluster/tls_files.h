// TlsFiles: the files that secure the control plane's connections. Safe from any thread.
#pragma once

#include <string>

namespace lockstep {

// Files in PEM, all or none: with them both ends show certificates of that authority.
struct TlsFiles {
  std::string ca = {}, certificate = {}, key = {};

  bool any() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

// Their contents, nothing when there are none. Throws Error when some are given and not all, and when they are not
// certificates and the key of the second; IoError for one that cannot be read.
TlsFiles read_tls_files(const TlsFiles& files);

}  // namespace lockstep
