#include "train/tfevents.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <span>

#include "base/crc32c.h"
#include "base/text_bytes.h"
#include "data/images/png_write.h"

namespace lockstep::detail {
namespace {

template <class T>
void append_le(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<uint8_t>(bits >> (8 * i)));
}

// The format stores CRCs rotated and offset, because CRCs of data that contains CRCs are weak.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t sum = crc32c(text_bytes(bytes));
  return std::rotr(sum, 15) + 0xa282ead8u;
}

// The wire format of protocol buffers: a key (field number and kind), then the value.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(static_cast<uint8_t>(value | 0x80));
  out += static_cast<char>(static_cast<uint8_t>(value));
}
void put_key(std::string& out, uint32_t field, Wire wire) { put_varint(out, field << 3 | wire); }
void put_int(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}
void put_double(std::string& out, uint32_t field, double value) {
  put_key(out, field, kFixed64);
  append_le(out, std::bit_cast<uint64_t>(value));
}
void put_float(std::string& out, uint32_t field, float value) {
  put_key(out, field, kFixed32);
  append_le(out, std::bit_cast<uint32_t>(value));
}
void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Comments give the field names of event.proto and summary.proto.
void put_event_head(std::string& out, double time, int64_t step) {
  put_double(out, 1, time);              // wall_time
  if (step != 0) put_int(out, 2, step);  // step
}

// An Event with a summary of one value: a message in this field.
std::string value_event(double time, int64_t step, std::string_view tag, uint32_t field, std::string_view message) {
  std::string value, summary, event;
  put_bytes(value, 1, tag);          // tag
  put_bytes(value, field, message);  // image or histo
  put_bytes(summary, 1, value);      // value
  put_event_head(event, time, step);
  put_bytes(event, 5, summary);  // summary
  return event;
}

// An Event with a summary of one tensor, which a plugin displays.
std::string plugin_event(double time, int64_t step, std::string_view tag, std::string_view plugin,
                         std::string_view content, std::string_view tensor) {
  std::string plugin_data, metadata, value, summary, event;
  put_bytes(plugin_data, 1, plugin);                         // plugin_name
  if (!content.empty()) put_bytes(plugin_data, 2, content);  // content
  put_bytes(metadata, 1, plugin_data);                       // plugin_data
  put_bytes(value, 1, tag);                                  // tag
  put_bytes(value, 8, tensor);                               // tensor
  put_bytes(value, 9, metadata);                             // metadata
  put_bytes(summary, 1, value);                              // value
  put_event_head(event, time, step);
  put_bytes(event, 5, summary);  // summary
  return event;
}

// An Event for the HParams plugin. All data is in the metadata; the tensor is the smallest valid one, an empty vector.
std::string hparams_event(double time, int64_t step, std::string_view tag, uint32_t field, std::string_view message) {
  std::string shape, tensor, content;
  put_bytes(shape, 2, "");      // dim, whose size 0 is the default
  put_int(tensor, 1, 1);        // dtype: DT_FLOAT
  put_bytes(tensor, 2, shape);  // tensor_shape
  put_bytes(content, field, message);
  return plugin_event(time, step, tag, "hparams", content, tensor);
}

struct ConfigValue {
  enum class Kind { string = 1, boolean = 2, number = 3 } kind;  // numbered as DataType of the plugin's api.proto
  double number = 0;
  bool boolean = false;
};

ConfigValue parse_value(const std::string& text) {
  if (text == "true" || text == "false") return {.kind = ConfigValue::Kind::boolean, .boolean = text == "true"};
  ConfigValue out{.kind = ConfigValue::Kind::number};
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, out.number);
  if (error == std::errc() && after == end && std::isfinite(out.number)) return out;
  return {.kind = ConfigValue::Kind::string};
}

}  // namespace

void append_record(std::string& out, std::string_view bytes) {
  const size_t start = out.size();
  append_le(out, static_cast<uint64_t>(bytes.size()));
  append_le(out, masked_crc(std::string_view(out).substr(start, 8)));
  out += bytes;
  append_le(out, masked_crc(bytes));
}

std::string version_event(double time) {
  std::string event;
  put_event_head(event, time, 0);
  put_bytes(event, 3, "brain.Event:2");  // file_version
  return event;
}

std::string session_start_event(double time, int64_t step) {
  std::string log, event;
  put_int(log, 1, 1);  // status: START
  put_event_head(event, time, step);
  put_bytes(event, 7, log);  // session_log
  return event;
}

std::string text_event(double time, int64_t step, std::string_view tag, std::string_view markdown) {
  std::string tensor;
  put_int(tensor, 1, 7);           // dtype: DT_STRING
  put_bytes(tensor, 2, "");        // tensor_shape: a scalar
  put_bytes(tensor, 8, markdown);  // string_val
  return plugin_event(time, step, tag, "text", "", tensor);
}

std::string image_event(double time, int64_t step, std::string_view tag, const LogImage& image) {
  const std::vector<uint8_t> png = to_png({image.rows, image.cols, image.channels, image.pixels});
  std::string message;
  put_int(message, 1, image.rows);                                                 // height
  put_int(message, 2, image.cols);                                                 // width
  put_int(message, 3, image.channels);                                             // colorspace
  put_bytes(message, 4, {reinterpret_cast<const char*>(png.data()), png.size()});  // encoded_image_string
  return value_event(time, step, tag, 4, message);
}

std::string histogram_event(double time, int64_t step, std::string_view tag, const Histogram& histogram) {
  std::string limits, counts, message;
  for (const double limit : histogram.limits) append_le(limits, std::bit_cast<uint64_t>(limit));
  for (const int64_t n : histogram.counts) append_le(counts, std::bit_cast<uint64_t>(static_cast<double>(n)));
  put_double(message, 1, histogram.min);
  put_double(message, 2, histogram.max);
  put_double(message, 3, static_cast<double>(histogram.count));  // num
  put_double(message, 4, histogram.sum);
  put_double(message, 5, histogram.sum_of_squares);
  put_bytes(message, 6, limits);  // bucket_limit
  put_bytes(message, 7, counts);  // bucket
  return value_event(time, step, tag, 5, message);
}

std::string experiment_event(double time, int64_t step, const Config& config, const std::vector<std::string>& metrics) {
  std::string experiment;
  put_double(experiment, 3, time);  // time_created_secs
  for (const auto& [name, text] : config) {
    std::string info;
    put_bytes(info, 1, name);                                        // name
    put_int(info, 4, static_cast<int64_t>(parse_value(text).kind));  // type
    put_bytes(experiment, 4, info);                                  // hparam_infos
  }
  for (const std::string& tag : metrics) {
    std::string name, info;
    put_bytes(name, 2, tag);         // tag; no group: it is in this run
    put_bytes(info, 1, name);        // name
    put_bytes(experiment, 5, info);  // metric_infos
  }
  return hparams_event(time, step, "_hparams_/experiment", 2, experiment);
}

std::string run_start_event(double time, int64_t step, const Config& config) {
  std::string start;
  for (const auto& [name, text] : config) {
    std::string value, entry;
    const ConfigValue parsed = parse_value(text);
    switch (parsed.kind) {
      case ConfigValue::Kind::number:
        put_double(value, 2, parsed.number);
        break;
      case ConfigValue::Kind::string:
        put_bytes(value, 3, text);
        break;
      case ConfigValue::Kind::boolean:
        put_int(value, 4, parsed.boolean ? 1 : 0);
        break;
    }
    put_bytes(entry, 1, name);   // key
    put_bytes(entry, 2, value);  // value
    put_bytes(start, 1, entry);  // hparams
  }
  put_double(start, 5, time);  // start_time_secs
  return hparams_event(time, step, "_hparams_/session_start_info", 3, start);
}

std::string run_end_event(double time, int64_t step) {
  std::string end;
  put_int(end, 1, 1);        // status: STATUS_SUCCESS
  put_double(end, 2, time);  // end_time_secs
  return hparams_event(time, step, "_hparams_/session_end_info", 4, end);
}

void ScalarsEvent::begin(double time, int64_t step) {
  head_.clear();
  values_.clear();
  put_event_head(head_, time, step);
}

void ScalarsEvent::add(std::string_view tag, float value) {
  const auto varint_size = [](uint64_t n) { return static_cast<size_t>((std::bit_width(n | 1) + 6) / 7); };
  put_key(values_, 1, kBytes);  // value
  put_varint(values_, 1 + varint_size(tag.size()) + tag.size() + 5);
  put_bytes(values_, 1, tag);    // tag
  put_float(values_, 2, value);  // simple_value
}

void ScalarsEvent::end(std::string& out) {
  put_bytes(head_, 5, values_);  // summary
  append_record(out, head_);
}

}  // namespace lockstep::detail
