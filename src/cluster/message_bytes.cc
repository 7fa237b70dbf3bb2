#include "cluster/message_bytes.h"

#include <concepts>
#include <tuple>
#include <type_traits>

#include "base/check.h"

namespace lockstep {

namespace {

// The members of each message, in the order in which they are written and read.
template <class T, class Of>
concept Is = std::is_same_v<std::remove_const_t<T>, Of>;

auto fields(Is<Failure> auto& x) {
  return std::tie(x.process, x.host, x.pid, x.operation, x.step, x.message, x.retryable);
}
auto fields(Is<Progress> auto& x) { return std::tie(x.step, x.count, x.waiting, x.operation); }
auto fields(Is<Peer> auto& x) { return std::tie(x.host, x.address, x.pid); }
auto fields(Is<request::Register> auto& x) {
  return std::tie(x.process_count, x.protocol, x.version, x.host, x.pid, x.timeout);
}
auto fields(Is<request::Heartbeat> auto& x) { return std::tie(x.progress); }
auto fields(Is<request::Get> auto& x) { return std::tie(x.key, x.wait, x.timeout); }
auto fields(Is<request::Set> auto& x) { return std::tie(x.key, x.value, x.overwrite); }
auto fields(Is<request::Increment> auto& x) { return std::tie(x.key, x.by); }
auto fields(Is<request::List> auto& x) { return std::tie(x.directory); }
auto fields(Is<request::Remove> auto& x) { return std::tie(x.key); }
auto fields(Is<request::Barrier> auto& x) { return std::tie(x.name, x.timeout, x.participants); }
auto fields(Is<request::Agree> auto& x) { return std::tie(x.name, x.hash, x.timeout); }
auto fields(Is<request::Explain> auto& x) { return std::tie(x.name, x.text, x.line_word); }
auto fields(Is<request::Fail> auto& x) { return std::tie(x.failure, x.consequence); }
auto fields(Is<request::Shutdown> auto& x) { return std::tie(x.timeout); }
auto fields(Is<request::Leave> auto&) { return std::tie(); }
auto fields(Is<Request> auto& x) { return std::tie(x.process, x.incarnation, x.what); }
auto fields(Is<Answer> auto& x) { return std::tie(x.call, x.outcome, x.text, x.number, x.entries, x.peers, x.failure); }

// Numbers are eight bytes, little endian. Strings and vectors are preceded by their size.
struct Writer {
  std::string out = {};

  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(const T& value) {
    for (auto rest = static_cast<uint64_t>(value); const int shift : {0, 8, 16, 24, 32, 40, 48, 56})
      out.push_back(static_cast<char>(rest >> shift & 0xff));
  }
  void add(std::chrono::nanoseconds value) { add(value.count()); }
  void add(const std::string& value) {
    add(value.size());
    out += value;
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  template <class A, class B>
  void add(const std::pair<A, B>& value) {
    add(value.first);
    add(value.second);
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class... Ts>
  void add(const std::variant<Ts...>& value) {
    add(value.index());
    std::visit([&](const auto& each) { add(each); }, value);
  }
  template <class T>
  requires requires(const T& x) { fields(x); }
  void add(const T& value) {
    std::apply([&](const auto&... each) { (add(each), ...); }, fields(value));
  }
};

struct Reader {
  std::string_view in;

  [[noreturn]] static void throw_malformed() {
    throw CommError("control plane: received a malformed message; run the same version of lockstep in all processes");
  }

  uint64_t number() {
    if (in.size() < 8) throw_malformed();
    uint64_t value = 0;
    for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(in[i]);
    in.remove_prefix(8);
    return value;
  }
  // Reads the size of a sequence whose elements take at least `least` bytes each.
  size_t size(size_t least) {
    const uint64_t value = number();
    if (value > in.size() / least) throw_malformed();
    return static_cast<size_t>(value);
  }

  template <class T>
  requires(std::is_integral_v<T>) void take(T& value) {
    const uint64_t n = number();
    value = static_cast<T>(n);
    if (static_cast<uint64_t>(value) != n) throw_malformed();  // it does not fit
  }
  void take(Outcome& value) {
    const uint64_t n = number();
    if (n > static_cast<uint64_t>(Outcome::taken)) throw_malformed();
    value = static_cast<Outcome>(n);
  }
  void take(std::chrono::nanoseconds& value) {
    value = std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(number()));
  }
  void take(std::string& value) {
    const size_t n = size(1);
    value = in.substr(0, n);
    in.remove_prefix(n);
  }
  template <class T>
  void take(std::vector<T>& values) {
    // Grows element by element: a value in memory may be much larger than its bytes in the message.
    const size_t n = size(8);
    for (size_t i = 0; i < n; ++i) take(values.emplace_back());
  }
  template <class A, class B>
  void take(std::pair<A, B>& value) {
    take(value.first);
    take(value.second);
  }
  template <class T>
  void take(std::optional<T>& value) {
    bool there = false;
    take(there);
    if (there) take(value.emplace());
  }
  template <class... Ts>
  void take(std::variant<Ts...>& value) {
    const uint64_t index = number();
    if (index >= sizeof...(Ts)) throw_malformed();
    uint64_t i = 0;
    ((i++ == index ? take(value.template emplace<Ts>()) : void()), ...);
  }
  template <class T>
  requires requires(T& x) { fields(x); }
  void take(T& value) {
    std::apply([&](auto&... each) { (take(each), ...); }, fields(value));
  }
};

template <class T>
std::string serialize(const T& value) {
  Writer writer;
  writer.add(uint64_t{kControlProtocol});
  writer.add(value);
  return std::move(writer.out);
}

template <class T>
T deserialize(std::string_view bytes) {
  Reader reader{bytes};
  if (reader.number() != kControlProtocol) Reader::throw_malformed();
  T value;
  reader.take(value);
  if (!reader.in.empty()) Reader::throw_malformed();
  return value;
}

}  // namespace

std::string to_bytes(const Request& request) { return serialize(request); }
std::string to_bytes(const Answer& answer) { return serialize(answer); }
Request request_from(std::string_view bytes) { return deserialize<Request>(bytes); }
Answer answer_from(std::string_view bytes) { return deserialize<Answer>(bytes); }

}  // namespace lockstep
