// CallServer: a gRPC server of one method, which passes the bytes of each call to an object of its own. Knows nothing of
// coordinators. Uses a small, fixed number of threads, regardless of how many calls are pending. Thread-safe.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cluster/grpc/auth_listener.h"
#include "cluster/security.h"

namespace lockstep {

class CallsInFlight;

// A call from an authenticated connection. gRPC calls the public methods.
class ServerCall : public grpc::ServerGenericBidiReactor {
 public:
  void begin(CallsInFlight& in_flight);
  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;  // deletes this object

 protected:
  // Handles the request. Ends with one answer() or refuse(), by any thread, at any time. REQUIRES: does not block.
  virtual void handle(std::string_view bytes) = 0;
  // The caller no longer waits. Returns true if there will be no answer() and no refuse(), false if one of them was, or
  // is being, called. May be called before handle(), and twice.
  virtual bool cancel() { return false; }

  void answer(std::string bytes);
  void refuse(const grpc::Status& status) { Finish(status); }

 private:
  void try_cancel();

  CallsInFlight* in_flight_ = nullptr;
  bool counted_ = false;
  std::atomic<bool> cancelled_{false};
  grpc::ByteBuffer request_, answer_;
};

struct CallServerOptions {
  AuthListenerOptions listener = {};  // without `security` and `user_timeout_ms`
  Security security = {};
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);
};

class CallServer {
 public:
  // Makes the object for a call from this IP address. Called by gRPC's threads.
  using NewCall = std::function<std::unique_ptr<ServerCall>(const std::string& address)>;

  // Begins to listen. Throws Error if the port is in use, and IoError if gRPC does not start.
  CallServer(CallServerOptions options, NewCall new_call);
  // Sends the last answers, for a moment, and cancels other calls. Returns after the last OnDone().
  ~CallServer();
  CallServer(const CallServer&) = delete;
  CallServer& operator=(const CallServer&) = delete;

  int port() const { return listener_.port(); }
  // Waits until no request is without an answer, but only a moment.
  void flush();

 private:
  class Service;

  AuthListener listener_;
  const std::unique_ptr<Service> service_;
};

}  // namespace lockstep
