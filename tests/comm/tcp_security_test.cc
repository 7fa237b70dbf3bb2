// Signed and encrypted connections: what is on the wire, and what happens when a man in the middle changes it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "base/throws.h"
#include "comm/file_store.h"
#include "comm/man_in_the_middle.h"
#include "comm/tcp/tcp.h"
#include "comm/tcp/tcp_links.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using conformance::FileStore;
using detail::Cipher;
using detail::RecordCipher;
using std::chrono::seconds;

constexpr size_t kSealTag = RecordCipher::kTagBytes, kWireHeader = 16 + kSealTag,
                 kWireRecord = RecordCipher::kMaxRecordBytes + kSealTag;

struct LinkProtection {
  LinkSecurity security;
  Cipher cipher;
};

// The links of two ranks, with a man in the middle.
class AttackedPair {
 public:
  AttackedPair(const LinkProtection& protection, Attack attack)
      : middle_(std::move(attack)), diverted_(store_, middle_) {
    std::thread other([&] { links_[1] = connect(protection, diverted_, 1); });
    links_[0] = connect(protection, store_, 0);
    other.join();
  }
  ~AttackedPair() {
    for (auto& each : links_) each.reset();  // closes the connections, which ends the threads in the middle
  }
  AttackedPair(const AttackedPair&) = delete;
  AttackedPair& operator=(const AttackedPair&) = delete;

  TcpLinks& links(int rank) { return *links_[rank]; }
  const std::string& wire() const { return middle_.wire(); }

  // Sends a message from rank 1 to rank 0. Returns what rank 0 receives, or the error.
  std::string send(const std::string& text) {
    const int sent = links(1).send(Links::Channel::data, 0, text.data(), text.size(), 7);
    std::thread sender([&] {
      try {
        links(1).wait(sent, deadline());
      } catch (const LinkBroken&) {  // rank 0 may end the connection first
      }
    });
    std::string got(text.size(), '?');
    try {
      const int received = links(0).receive(Links::Channel::data, 1, got.data(), got.size());
      const Links::Arrival arrival = links(0).wait(received, deadline());
      EXPECT_EQ(arrival.bytes, text.size());
      EXPECT_EQ(arrival.tag, 7u);
    } catch (const LinkBroken& broken) {
      EXPECT_EQ(broken.peer, 1);
      got = broken.what;
      links(0).close();
    }
    sender.join();
    return got;
  }

 private:
  static Links::Time deadline() { return std::chrono::steady_clock::now() + seconds(60); }
  static std::unique_ptr<TcpLinks> connect(const LinkProtection& protection, KeyStore& store, int rank) {
    return std::make_unique<TcpLinks>(TcpLinks::Settings{.here = detail::local_address("127.0.0.1", ""),
                                                         .store = store,
                                                         .security = protection.security,
                                                         .cipher = protection.cipher},
                                      rank, 2, "tcp", deadline());
  }

  FileStore store_;
  ManInTheMiddle middle_;
  DivertedStore diverted_;
  std::unique_ptr<TcpLinks> links_[2];
};

constexpr const char* kChangedData =
    "its data was changed, dropped or repeated on the way (the authentication failed); check the network between the "
    "hosts";

std::string letters(size_t size, int seed = 0) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>('a' + (i + static_cast<size_t>(seed)) % 23);
  return out;
}
size_t wire_size(size_t bytes) {
  return kWireHeader + bytes + (bytes + RecordCipher::kMaxRecordBytes - 1) / RecordCipher::kMaxRecordBytes * kSealTag;
}

class TcpSecurity : public testing::TestWithParam<LinkProtection> {};

TEST_P(TcpSecurity, MessagesOfAllSizesArrive) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, RecordCipher::kMaxRecordBytes,
                            RecordCipher::kMaxRecordBytes + 1, size_t{9'000'001}}) {
    const std::string text = letters(size);
    AttackedPair pair(GetParam(), {.bytes = wire_size(size)});
    EXPECT_EQ(pair.send(text), text);
    EXPECT_EQ(pair.wire().size(), wire_size(size));
    if (size >= 1000) {
      EXPECT_EQ(pair.wire().find(text.substr(0, 32)) == std::string::npos,
                GetParam().security == LinkSecurity::encrypted);
    }
    EXPECT_EQ(pair.send("the next message"), "the next message");
  }
}

// The tag and every byte of a header; and bytes and tags of three records.
TEST_P(TcpSecurity, NoChangedByteIsDelivered) {
  const std::string text = letters(150'000);
  std::vector<size_t> places = {kWireHeader,
                                kWireHeader + 1000,
                                kWireHeader + kWireRecord - kSealTag,
                                kWireHeader + kWireRecord - 1,
                                kWireHeader + kWireRecord,
                                kWireHeader + 2 * kWireRecord - kSealTag - 1,
                                kWireHeader + 2 * kWireRecord - 1,
                                kWireHeader + 2 * kWireRecord,
                                wire_size(text.size()) - kSealTag - 1,
                                wire_size(text.size()) - 1};
  for (size_t i = 0; i < kWireHeader; ++i) places.push_back(i);
  for (const size_t place : places) {
    AttackedPair pair(GetParam(), {.bytes = wire_size(text.size()), .change = [&](std::string wire) {
                                     wire[place] = static_cast<char>(wire[place] ^ 1 << place % 8);
                                     return wire;
                                   }});
    EXPECT_EQ(pair.send(text), kChangedData) << place;
  }
}

TEST_P(TcpSecurity, DroppedRepeatedAndReorderedRecordsAreNotDelivered) {
  const std::string text = letters(150'000);
  const auto record = [](const std::string& wire, size_t i) {
    return wire.substr(kWireHeader + i * kWireRecord, kWireRecord);
  };
  const std::function<std::string(const std::string&)> changes[] = {
      [&](const std::string& wire) { return wire.substr(0, kWireHeader) + record(wire, 1) + record(wire, 2); },
      [&](const std::string& wire) { return wire.substr(0, kWireHeader) + record(wire, 0) + wire.substr(kWireHeader); },
      [&](const std::string& wire) {
        return wire.substr(0, kWireHeader) + record(wire, 1) + record(wire, 0) + record(wire, 2);
      },
      [&](const std::string& wire) { return wire.substr(0, kWireHeader) + wire; },
      [&](const std::string& wire) { return wire.substr(kWireHeader); },
      [&](const std::string& wire) { return wire.substr(1) + "x"; },
      [&](const std::string& wire) { return "x" + wire; },
  };
  for (const auto& change : changes) {
    AttackedPair pair(GetParam(), {.bytes = wire_size(text.size()), .change = change});
    EXPECT_EQ(pair.send(text), kChangedData) << &change - changes;
  }
}

TEST_P(TcpSecurity, ARepeatedMessageIsNotDelivered) {
  const size_t size = 5000;
  AttackedPair pair(GetParam(), {.bytes = 2 * wire_size(size), .change = [&](const std::string& wire) {
                                   return wire.substr(0, wire_size(size)) + wire.substr(0, wire_size(size));
                                 }});
  // Both are sent before one is received.
  const std::string first = letters(size), second = letters(size, 1);
  const int sent = pair.links(1).send(Links::Channel::data, 0, first.data(), size, 7);
  EXPECT_EQ(pair.send(second), first);
  EXPECT_EQ(pair.send("more"), kChangedData);
  pair.links(1).wait(sent, std::chrono::steady_clock::now() + seconds(60));
}

TEST_P(TcpSecurity, TruncatedMessagesAreNotDelivered) {
  const std::string text = letters(150'000);
  for (const size_t left : {size_t{0}, size_t{5}, kWireHeader, kWireHeader + 100, kWireHeader + kWireRecord,
                            kWireHeader + 2 * kWireRecord + 1}) {
    AttackedPair pair(GetParam(), {.bytes = wire_size(text.size()),
                                   .change = [&](const std::string& wire) { return wire.substr(0, left); },
                                   .cut = true});
    EXPECT_EQ(pair.send(text), "it closed the connection") << left;
  }
}

// A key is valid in one direction.
TEST_P(TcpSecurity, ReflectedMessagesAreNotDelivered) {
  const std::string text = letters(1000);
  AttackedPair pair(GetParam(), {.bytes = wire_size(text.size()), .reflect = true});
  EXPECT_EQ(pair.send(text), text);
  std::string got(text.size(), '?');
  const int received = pair.links(1).receive(Links::Channel::data, 0, got.data(), got.size());
  try {
    pair.links(1).wait(received, std::chrono::steady_clock::now() + seconds(60));
    ADD_FAILURE() << "received " << got;
  } catch (const LinkBroken& broken) {
    EXPECT_EQ(broken.what, kChangedData);
    EXPECT_EQ(broken.peer, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TcpSecurity,
                         testing::Values(LinkProtection{LinkSecurity::encrypted, Cipher::aes_128_gcm},
                                         LinkProtection{LinkSecurity::encrypted, Cipher::chacha20_poly1305},
                                         LinkProtection{LinkSecurity::signature, Cipher::aes_128_gcm},
                                         LinkProtection{LinkSecurity::signature, Cipher::chacha20_poly1305}),
                         [](const auto& one) {
                           return std::string(name(one.param.security)) +
                                  (one.param.cipher == Cipher::aes_128_gcm ? "Aes" : "ChaCha");
                         });

std::string message_thrown_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

TEST(TcpSecurityOfAGroup, ChangedBytesFailAllRanksAndNameTheSender) {
  FileStore store;
  ManInTheMiddle middle({.bytes = 40'000, .change = [](std::string wire) {
                           wire[39'000] = static_cast<char>(wire[39'000] ^ 4);
                           return wire;
                         }});
  DivertedStore diverted(store, middle);
  const auto run = [](KeyStore& keys, int rank) {
    return message_thrown_by([&] {
      const auto comm = tcp_comm(
          {.store = keys, .rank = rank, .size = 2, .address = "127.0.0.1", .security = LinkSecurity::encrypted});
      std::vector<float> values(1 << 20, 1.0f);
      comm->all_reduce(values.data(), values.data(), 1 << 20, f32, Reduction::sum);
    });
  };
  auto other = std::async(std::launch::async, [&] { return run(diverted, 1); });
  const std::string first = run(store, 0), second = other.get();
  const std::string cause = fmt::format("first cause: rank 0 lost its connection to rank 1: {}", kChangedData);
  EXPECT_EQ(first, "all_reduce 1 on \"world\": rank 0 of 2 stops; " + cause);
  EXPECT_EQ(second, "all_reduce 1 on \"world\": rank 1 of 2 stops; " + cause);
}

TEST(TcpSecurityOfAGroup, RanksMustAgreeOnIt) {
  FileStore store;
  const auto run = [&](int rank, LinkSecurity security) {
    return message_thrown_by(
        [&] { tcp_comm({.store = store, .rank = rank, .size = 2, .address = "127.0.0.1", .security = security}); });
  };
  auto other = std::async(std::launch::async, run, 1, LinkSecurity::plain);
  const std::string first = run(0, LinkSecurity::encrypted);
  EXPECT_EQ(first,
            "connecting \"world\": rank 0 of 2 cannot connect to rank 1: its connections are plain, and those of this "
            "rank are encrypted; give all processes the same --data-security (LOCKSTEP_DATA_SECURITY)");
  EXPECT_EQ(other.get(),
            "connecting \"world\": rank 1 of 2 cannot connect to rank 0: its connections are encrypted, and those of "
            "this rank are plain; give all processes the same --data-security (LOCKSTEP_DATA_SECURITY)");
}

// A group uses AES only if all of its ranks prefer it.
TEST(TcpSecurityOfAGroup, RanksWithDifferentCpusUseOneCipher) {
  FileStore store;
  const auto run = [&](int rank) {
    return message_thrown_by([&] {
      const auto comm = tcp_comm({.store = store,
                                  .rank = rank,
                                  .size = 3,
                                  .address = "127.0.0.1",
                                  .security = LinkSecurity::encrypted,
                                  .cipher = rank == 1 ? Cipher::chacha20_poly1305 : Cipher::aes_128_gcm});
      int32_t value = rank;
      comm->all_reduce(&value, &value, 1, i32, Reduction::sum);
      EXPECT_EQ(value, 3);
    });
  };
  auto first = std::async(std::launch::async, run, 1), second = std::async(std::launch::async, run, 2);
  EXPECT_EQ(run(0), "none");
  EXPECT_EQ(first.get(), "none");
  EXPECT_EQ(second.get(), "none");
}

}  // namespace
}  // namespace lockstep
