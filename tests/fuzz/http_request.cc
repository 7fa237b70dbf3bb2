// Requests to the HTTP servers (board, serve, train --metrics-port).
#include "http/request_parser.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

// The requests of the text, given in pieces of `piece` bytes, as one text; and the status of the error that ends them.
std::string read_requests(std::string_view text, size_t piece) {
  http::RequestParser parser(4096);
  std::string out;
  try {
    for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
      parser.append(text.substr(0, piece));
      while (const std::optional<http::Request> request = parser.next()) {
        fuzz::require(request->body.size() <= 4096, "bodies are bounded");
        fuzz::require(request->headers.size() <= http::RequestParser::kMaxHeaders, "headers are bounded");
        out += request->method + " " + request->path + " " + request->body + "\n";
        for (const auto* map : {&request->params, &request->headers})
          for (const auto& [name, value] : *map) out += name + "=" + value + "\n";
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
