// ApiProxy: sends many GET requests to the API server through one `kubectl proxy`, which has the user's credentials. A
// kubectl for each request would take a fraction of a second of CPU time each. Used by one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "jobs/child.h"

namespace lockstep {

class ApiProxy {
 public:
  using Sink = std::function<bool(std::string_view)>;

  // Starts kubectl, which listens on a Unix socket in a folder that only this user can open. Throws as kubectl.h does.
  ApiProxy();

  // Passes the response to a GET request to `sink`, in pieces, until the end or until it returns false. `target` is a
  // path with its query: "/api/v1/namespaces/default/pods/a/log?tailLines=1". `verb` names the request in messages.
  // Throws Forbidden, RunnerUnreachable or IoError with the message of the API server.
  void get(const std::string& verb, const std::string& target, const Sink& sink) const;

 private:
  std::string socket_path() const { return folder_.path() + "/s"; }

  const TempDir folder_;
  Child child_;
};

}  // namespace lockstep
