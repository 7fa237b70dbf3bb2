// Event files are read back by an independent reader, written from the description of the format. It shares no code
// with the writer.
#include "train/tfevents.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "data/images/image_codec.h"
#include "train/logging.h"

namespace lockstep {
namespace {

uint32_t bitwise_masked_crc(const std::string& bytes) {
  uint32_t sum = 0xffffffff;
  for (const char c : bytes) {
    sum ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? (sum >> 1) ^ 0x82f63b78 : sum >> 1;
  }
  sum = ~sum;
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8;
}

uint64_t little_endian(const std::string& bytes, size_t at, int count) {
  uint64_t out = 0;
  for (int i = 0; i < count; ++i)
    out |= uint64_t{static_cast<uint8_t>(bytes.at(at + static_cast<size_t>(i)))} << (8 * i);
  return out;
}

std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> out;
  for (size_t at = 0; at < file.size();) {
    const auto length = static_cast<size_t>(little_endian(file, at, 8));
    EXPECT_EQ(little_endian(file, at + 8, 4), bitwise_masked_crc(file.substr(at, 8)));
    out.push_back(file.substr(at + 12, length));
    EXPECT_EQ(out.back().size(), length);
    EXPECT_EQ(little_endian(file, at + 12 + length, 4), bitwise_masked_crc(out.back()));
    at += 16 + length;
  }
  return out;
}

// The fields of a message: numbers of any type as 64 bits, everything else as bytes.
struct Message {
  std::map<uint64_t, std::vector<uint64_t>> numbers;
  std::map<uint64_t, std::vector<std::string>> bytes;

  Message() = default;
  explicit Message(const std::string& wire) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(wire.at(at++));
        value |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < wire.size()) {
      const uint64_t key = varint(), field = key >> 3;
      const auto fixed = [&](int count) {
        numbers[field].push_back(little_endian(wire, at, count));
        at += static_cast<size_t>(count);
      };
      switch (key & 7) {
        case 0:
          numbers[field].push_back(varint());
          break;
        case 1:
          fixed(8);
          break;
        case 5:
          fixed(4);
          break;
        case 2: {
          const auto length = static_cast<size_t>(varint());
          bytes[field].push_back(wire.substr(at, length));
          EXPECT_EQ(bytes[field].back().size(), length);
          at += length;
          break;
        }
        default:
          ADD_FAILURE() << "wire type " << (key & 7);
          return;
      }
    }
  }

  uint64_t number(uint64_t field) const { return numbers.count(field) != 0 ? numbers.at(field).back() : 0; }
  std::string text(uint64_t field) const { return bytes.count(field) != 0 ? bytes.at(field).back() : ""; }
  Message message(uint64_t field) const { return Message(text(field)); }
  double real(uint64_t field) const {
    const uint64_t bits = number(field);
    double out;
    std::memcpy(&out, &bits, 8);
    return out;
  }
  float single(uint64_t field) const {
    const auto bits = static_cast<uint32_t>(number(field));
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
  }
};

// The HParamsPluginData of an event with a single value of this tag.
Message hparams(const std::string& event, const std::string& tag) {
  const Message value = Message(event).message(5).message(1);
  EXPECT_EQ(value.text(1), tag);
  EXPECT_EQ(value.text(8), std::string("\x08\x01\x12\x02\x12\x00", 6));  // a float tensor of shape [0]
  const Message plugin = value.message(9).message(1);
  EXPECT_EQ(plugin.text(1), "hparams");
  const Message data = plugin.message(2);
  EXPECT_EQ(data.number(1), 0u);  // version
  return data;
}

TEST(TfEvents, RecordHasLengthAndChecksums) {
  std::string file;
  detail::append_record(file, "");
  detail::append_record(file, "hello");
  EXPECT_EQ(file.size(), 16u + 21u);
  EXPECT_EQ(records(file), (std::vector<std::string>{"", "hello"}));
}

TEST(TfEvents, FirstEventHasTheFileVersion) {
  const Message event(detail::version_event(1731646000.25));
  EXPECT_EQ(event.real(1), 1731646000.25);
  EXPECT_EQ(event.text(3), "brain.Event:2");
}

TEST(TfEvents, SessionStartHasTheStep) {
  const Message event(detail::session_start_event(1.5, 301));
  EXPECT_EQ(event.number(2), 301u);
  EXPECT_EQ(event.message(7).number(1), 1u);
}

TEST(TfEvents, ScalarsAreSimpleValues) {
  detail::ScalarsEvent event;
  const std::string long_tag(200, 'x');
  for (const int64_t step : {0, 1, 300, 5000000}) {  // reuses the object
    std::string file;
    event.begin(2.5, step);
    event.add("train/loss", 0.25f);
    event.add(long_tag, -1.0f);
    event.end(file);
    ASSERT_EQ(records(file).size(), 1u);
    const Message read(records(file)[0]);
    EXPECT_EQ(read.real(1), 2.5);
    EXPECT_EQ(read.number(2), static_cast<uint64_t>(step));
    const std::vector<std::string> values = read.message(5).bytes.at(1);
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(Message(values[0]).text(1), "train/loss");
    EXPECT_EQ(Message(values[0]).single(2), 0.25f);
    EXPECT_EQ(Message(values[1]).text(1), long_tag);
    EXPECT_EQ(Message(values[1]).single(2), -1.0f);
  }
}

TEST(TfEvents, TextIsAStringTensorOfTheTextPlugin) {
  const Message event(detail::text_event(1, 7, "config", "| a | b |"));
  EXPECT_EQ(event.number(2), 7u);
  const Message value = event.message(5).message(1);
  EXPECT_EQ(value.text(1), "config");
  EXPECT_EQ(value.message(9).message(1).text(1), "text");
  EXPECT_EQ(value.message(8).number(1), 7u);
  EXPECT_EQ(value.message(8).bytes.count(2), 1u);
  EXPECT_EQ(value.message(8).text(8), "| a | b |");
}

double real_at(const std::string& packed, size_t i) {
  const uint64_t bits = little_endian(packed, 8 * i, 8);
  double out;
  std::memcpy(&out, &bits, 8);
  return out;
}

TEST(TfEvents, HistogramHasMomentsAndBuckets) {
  const Message event(detail::histogram_event(1, 7, "gradients/w",
                                              {.count = 5,
                                               .min = -1,
                                               .max = 2.5,
                                               .sum = 3,
                                               .sum_of_squares = 9.5,
                                               .limits = {-0.5, 0, 3},
                                               .counts = {1, 0, 4}}));
  EXPECT_EQ(event.number(2), 7u);
  const Message value = event.message(5).message(1);
  EXPECT_EQ(value.text(1), "gradients/w");
  const Message histogram = value.message(5);
  EXPECT_EQ(histogram.real(1), -1);
  EXPECT_EQ(histogram.real(2), 2.5);
  EXPECT_EQ(histogram.real(3), 5);
  EXPECT_EQ(histogram.real(4), 3);
  EXPECT_EQ(histogram.real(5), 9.5);
  const std::string limits = histogram.text(6), counts = histogram.text(7);
  ASSERT_EQ(limits.size(), 24u);
  ASSERT_EQ(counts.size(), 24u);
  EXPECT_EQ((std::vector<double>{real_at(limits, 0), real_at(limits, 1), real_at(limits, 2)}),
            (std::vector<double>{-0.5, 0, 3}));
  EXPECT_EQ((std::vector<double>{real_at(counts, 0), real_at(counts, 1), real_at(counts, 2)}),
            (std::vector<double>{1, 0, 4}));
}

TEST(TfEvents, ImageIsAPngFile) {
  const LogImage image{.rows = 1, .cols = 2, .channels = 3, .pixels = {255, 0, 0, 0, 0, 255}};
  const Message event(detail::image_event(1, 7, "examples", image));
  const Message value = event.message(5).message(1);
  EXPECT_EQ(value.text(1), "examples");
  const Message message = value.message(4);
  EXPECT_EQ(message.number(1), 1u);
  EXPECT_EQ(message.number(2), 2u);
  EXPECT_EQ(message.number(3), 3u);
  const std::string png = message.text(4);
  EXPECT_TRUE(png.starts_with("\x89PNG\r\n"));
  if (!detail::can_decode_png()) return;
  const detail::DecodedImage decoded =
      detail::decode_png({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, "png", true);
  EXPECT_EQ(decoded.pixels, image.pixels);
}

const detail::Config kConfig = {
    {"learning_rate", "1e-3"}, {"model", "mlp"}, {"strict", "true"}, {"odd", "nan"}, {"off", "false"}};

TEST(TfEvents, ExperimentListsHyperparametersAndMetrics) {
  const std::string event = detail::experiment_event(9.5, 0, kConfig, {"test/accuracy", "train/loss"});
  const Message experiment = hparams(event, "_hparams_/experiment").message(2);
  EXPECT_EQ(experiment.real(3), 9.5);
  std::map<std::string, uint64_t> types;
  for (const std::string& info : experiment.bytes.at(4)) types[Message(info).text(1)] = Message(info).number(4);
  EXPECT_EQ(types, (std::map<std::string, uint64_t>{
                       {"learning_rate", 3}, {"model", 1}, {"strict", 2}, {"odd", 1}, {"off", 2}}));
  ASSERT_EQ(experiment.bytes.at(5).size(), 2u);
  const Message name = Message(experiment.bytes.at(5)[0]).message(1);
  EXPECT_EQ(name.text(1), "");
  EXPECT_EQ(name.text(2), "test/accuracy");
}

TEST(TfEvents, RunStartHasTheValues) {
  const Message start = hparams(detail::run_start_event(9.5, 0, kConfig), "_hparams_/session_start_info").message(3);
  EXPECT_EQ(start.real(5), 9.5);
  std::map<std::string, Message> values;
  for (const std::string& entry : start.bytes.at(1)) values[Message(entry).text(1)] = Message(entry).message(2);
  EXPECT_EQ(values.size(), 5u);
  EXPECT_EQ(values["learning_rate"].real(2), 1e-3);
  EXPECT_EQ(values["model"].text(3), "mlp");
  EXPECT_EQ(values["odd"].text(3), "nan");
  EXPECT_EQ(values["strict"].number(4), 1u);
  EXPECT_EQ(values["off"].numbers.at(4), std::vector<uint64_t>{0});  // false is written explicitly
}

TEST(TfEvents, RunEndHasStatusSuccess) {
  const Message end = hparams(detail::run_end_event(11.5, 100), "_hparams_/session_end_info").message(4);
  EXPECT_EQ(end.number(1), 1u);
  EXPECT_EQ(end.real(2), 11.5);
}

class TensorboardLogger : public testing::Test {
 protected:
  std::shared_ptr<Logger> make() {
    return detail::tensorboard_logger(
        dir_.path() + "/run", files_,
        {.unix_seconds = [this] { return time_; }, .steady_seconds = [this] { return time_; }});
  }
  std::vector<std::string> names() { return files_.list(dir_.path() + "/run"); }
  std::vector<Message> events(const std::string& name) {
    const std::vector<uint8_t> bytes = files_.read_file(dir_.path() + "/run/" + name);
    std::vector<Message> out;
    for (const std::string& record : records(std::string(bytes.begin(), bytes.end()))) out.emplace_back(record);
    return out;
  }

  TempDir dir_;
  FaultyFiles files_;
  double time_ = 1731646000.5;
};

TEST_F(TensorboardLogger, WritesARunFromStartToEnd) {
  const auto logger = make();
  logger->begin({.config = {{"model", "mlp"}, {"a|b", "c\nd"}}, .title = "mlp on digits", .total_steps = 2});
  logger->step(1, {{"loss", 2.5}, {"examples_per_second", 1000}});
  logger->evaluation(1, {{"test_loss", 2.25}, {"test_accuracy", 0.5}});
  logger->message(1, "saved", false);
  logger->message(1, "the loss does not fall", true);
  logger->end(2, {{"loss", 1}});

  ASSERT_EQ(names().size(), 1u);
  EXPECT_TRUE(names()[0].starts_with("events.out.tfevents.1731646000."));
  const std::vector<Message> all = events(names()[0]);
  ASSERT_EQ(all.size(), 9u);
  EXPECT_EQ(all[0].text(3), "brain.Event:2");
  EXPECT_EQ(all[1].message(7).number(1), 1u);
  EXPECT_EQ(all[1].number(2), 1u);
  EXPECT_EQ(all[2].message(5).message(1).text(1), "_hparams_/experiment");
  EXPECT_EQ(all[3].message(5).message(1).text(1), "_hparams_/session_start_info");
  EXPECT_EQ(all[4].message(5).message(1).message(8).text(8),
            "mlp on digits\n\n| setting | value |\n| --- | --- |\n| a\\|b | c d |\n| model | mlp |\n");
  const auto tags = [&](size_t i) {
    std::vector<std::string> out;
    const Message summary = all[i].message(5);
    for (const std::string& value : summary.bytes.at(1)) out.push_back(Message(value).text(1));
    return out;
  };
  EXPECT_EQ(tags(5), (std::vector<std::string>{"train/loss", "train/examples_per_second"}));
  EXPECT_EQ(tags(6), (std::vector<std::string>{"test/loss", "test/accuracy"}));
  EXPECT_EQ(tags(7), std::vector<std::string>{"alarms"});
  EXPECT_EQ(tags(8), std::vector<std::string>{"_hparams_/session_end_info"});
  for (const Message& event : all) EXPECT_EQ(event.real(1), time_);
}

TEST_F(TensorboardLogger, WritesImagesHistogramsAndTexts) {
  const auto logger = make();
  EXPECT_TRUE(logger->shows_media());
  logger->log_image("examples", 0, {.rows = 1, .cols = 1, .channels = 1, .pixels = {9}});
  logger->log_histogram("parameters/w", 3, make_histogram(std::vector<float>{1}));
  logger->log_text("samples", 3, "Call me");
  logger->end(3, {});
  const std::vector<Message> all = events(names()[0]);
  ASSERT_EQ(all.size(), 4u);
  std::vector<std::string> tags;
  for (size_t i = 1; i < 4; ++i) tags.push_back(all[i].message(5).message(1).text(1));
  EXPECT_EQ(tags, (std::vector<std::string>{"examples", "parameters/w", "samples"}));
  EXPECT_EQ(all[3].message(5).message(1).message(8).text(8), "Call me");
  EXPECT_EQ(all[3].number(2), 3u);
}

TEST_F(TensorboardLogger, ResumedRunWritesALaterFileThatDiscardsLaterSteps) {
  make()->begin({.total_steps = 10});
  const std::string first = names()[0];
  make()->begin({.total_steps = 10, .first_step = 300});  // within the same second
  ASSERT_EQ(names().size(), 2u);
  EXPECT_EQ(names()[0], first);
  const std::vector<Message> all = events(names()[1]);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].number(2), 301u);  // readers discard this step and later ones
  EXPECT_EQ(all[1].message(7).number(1), 1u);
}

TEST_F(TensorboardLogger, FullDiskIsReportedOnce) {
  const auto logger = make();
  logger->begin({});
  files_.fail("append", ENOSPC);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) logger->evaluation(i, {{"test_loss", 1}});
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      output.find("the disk is full: free some space or choose another folder; training continues without writing"),
      std::string::npos)
      << output;
  EXPECT_EQ(output.find("lockstep: "), output.rfind("lockstep: "));
  EXPECT_EQ(files_.count("append"), 4);  // creation, version, start, and the failed write
}

TEST_F(TensorboardLogger, UnwritableFolderThrowsImmediately) {
  files_.write(dir_.path() + "/run", {});
  EXPECT_THROWS(make(), IoError, "create folder " + dir_.path() + "/run");
}

}  // namespace
}  // namespace lockstep
