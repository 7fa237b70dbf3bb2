// Requests to the HTTP servers (board, serve, train --metrics-port).
#include "http/access.h"
#include "http/request_parser.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr size_t kMaxBody = 4096;

// The requests of the text, given in pieces of `piece` bytes, as one text; and the status of the error that ends them.
// Of every third request only the headers are read if it has no body, as of one that is refused.
std::string read_requests(std::string_view text, size_t piece) {
  using Step = http::RequestParser::Step;
  http::RequestParser parser;
  std::string out;
  const auto add = [&](const http::Request& request) {
    fuzz::require(request.body.size() <= kMaxBody, "bodies are bounded");
    fuzz::require(request.headers.size() <= http::RequestParser::kMaxHeaders, "headers are bounded");
    out += request.method + " " + request.path + " " + request.body + "\n";
    out += http::host_name(request.get_header_value("host")).value_or("no host") + "\n";
    out += std::string(http::bearer_token(request.get_header_value("authorization"))) + "\n";
    for (const auto* map : {&request.params, &request.headers})
      for (const auto& [name, value] : *map) out += name + "=" + value + "\n";
  };
  int64_t heads = 0;
  try {
    for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
      parser.append(text.substr(0, piece));
      for (Step step = parser.read(); step != Step::more; step = parser.read()) {
        fuzz::require(parser.has_head(), "a request has begun");
        if (step == Step::head) {
          fuzz::require(parser.request().body.empty(), "the headers come first");
          if (++heads % 3 == 0 && !parser.has_body())
            add(parser.take());
          else
            parser.set_max_body(kMaxBody);
        } else {
          add(parser.take());
        }
      }
    }
  } catch (const http::BadRequest& error) {
    fuzz::require(error.status >= 400 && error.status < 600, "errors have a status");
    out += "error\n";
  }
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, std::min(size, size_t{8192}));
  const std::string whole = read_requests(text, text.size() + 1), pieces = read_requests(text, 3);
  fuzz::require(whole == pieces, "the pieces in which bytes arrive do not matter", whole + "---\n" + pieces);
  return 0;
}
