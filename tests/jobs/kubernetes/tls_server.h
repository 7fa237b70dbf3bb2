// A small HTTPS server on this machine that serves one request per connection until it is destroyed.
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "cluster/tls_files.h"
#include "support/listener.h"

namespace lockstep {

class TlsServer {
 public:
  struct Request {
    std::string head, body;
  };
  // Returns the HTTP status for a request; runs on the server's thread.
  using Answer = std::function<int(const Request&)>;

  TlsServer(const TlsFiles& files, Answer answer)
      : answer_(std::move(answer)), context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
    LOCKSTEP_CHECK(SSL_CTX_use_certificate_file(context_.get(), files.certificate.c_str(), SSL_FILETYPE_PEM) == 1 &&
                   SSL_CTX_use_PrivateKey_file(context_.get(), files.key.c_str(), SSL_FILETYPE_PEM) == 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~TlsServer() {
    stop_ = true;
    ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  std::string url() const { return "https://127.0.0.1:" + std::to_string(listener_.port()) + "/status"; }

 private:
  void serve() {
    while (!stop_) {
      const int client = ::accept(listener_.fd(), nullptr, nullptr);
      if (client < 0) continue;
      const timeval timeout{10, 0};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
      const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context_.get()), SSL_free);
      SSL_set_fd(ssl.get(), client);
      if (SSL_accept(ssl.get()) == 1) handle(ssl.get());
      ::close(client);
    }
  }

  void handle(SSL* ssl) {
    Request request;
    char byte;
    while (!request.head.ends_with("\r\n\r\n") && SSL_read(ssl, &byte, 1) == 1) request.head += byte;
    const size_t at = request.head.find("Content-Length: ");
    const size_t size = at == std::string::npos ? 0 : std::stoul(request.head.substr(at + 16));
    while (request.body.size() < size && SSL_read(ssl, &byte, 1) == 1) request.body += byte;
    if (request.body.size() < size || request.head.empty()) return;
    const std::string text =
        "HTTP/1.1 " + std::to_string(answer_(request)) + " Answer\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    SSL_write(ssl, text.data(), static_cast<int>(text.size()));
    SSL_shutdown(ssl);
  }

  const Answer answer_;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  Listener listener_{16};
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
