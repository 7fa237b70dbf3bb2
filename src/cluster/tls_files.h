// TlsFiles: the certificate files for the control plane's connections. Thread-safe.
#pragma once

#include <string>

namespace lockstep {

// PEM files, all or none. Both ends of a connection must present a certificate signed by `ca`.
struct TlsFiles {
  std::string ca = {}, certificate = {}, key = {};

  bool any() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

// Reads the files and returns their contents; empty if none are given. Throws Error if only some are given, if they are
// not PEM, or if the key does not match the certificate; IoError if a file cannot be read.
TlsFiles read_tls_files(const TlsFiles& files);

}  // namespace lockstep
