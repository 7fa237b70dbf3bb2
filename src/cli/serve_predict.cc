#include "cli/serve_predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "cli/predict_print.h"
#include "cli/serve_numbers.h"
#include "lockstep/precision.h"

namespace lockstep::cli {
namespace {

using http::Reply;
using http::Request;
using http::Response;
using nlohmann::ordered_json;

constexpr std::chrono::seconds kDeadline{10};

int64_t parameter_of(const Request& request, const std::string& name, int64_t otherwise, int64_t most) {
  if (!request.has_param(name)) return otherwise;
  const std::string text = request.get_param_value(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    throw_error("{} is \"{}\"; give a whole number from 1 to {}", name, text, most);
  return value;
}

std::span<const uint8_t> bytes_of(const std::string& body) {
  return {reinterpret_cast<const uint8_t*>(body.data()), body.size()};
}

ordered_json entry(const ModelInfo& info, std::span<const float> values, int64_t top) {
  if (info.classes == 0) return {{"value", values[0]}};
  Prediction prediction{.input = {}};
  set_classes(prediction, values, top);
  ordered_json out{{"class", class_name(info, prediction.classes[0])},
                   {"index", prediction.classes[0]},
                   {"probability", prediction.probabilities[0]}};
  for (size_t i = 0; i < prediction.classes.size() && top > 1; ++i)
    out["top"].push_back({{"class", class_name(info, prediction.classes[i])},
                          {"index", prediction.classes[i]},
                          {"probability", prediction.probabilities[i]}});
  return out;
}

void send_busy(Reply& reply, std::string_view text) {
  Response response;
  response.set_busy(text);
  reply.send(std::move(response));
}

}  // namespace

PredictService::PredictService(const StoredModel& model, const BatchLimits& limits)
    : model_(model),
      form_(image_form(model.info, model.config, false)),
      batches_(model, precision_of(model.config.precision).compute, limits),
      images_(1, kMostWaitingImages) {}

void PredictService::answer(const Request& request, Reply& reply) {
  const int64_t top = parameter_of(request, "top", 1, std::numeric_limits<int32_t>::max());
  const std::string& body = request.body;
  if (body.starts_with("\x89PNG") || body.starts_with("\xff\xd8")) return answer_image(request, reply, top);
  const auto size = static_cast<size_t>(batches_.example_size());
  const auto most = static_cast<size_t>(batches_.most_examples());
  const bool is_table = model_.info.kind == ModelInfo::Kind::table;
  Numbers numbers = read_numbers(body, size * most, is_table ? NumberRange{} : NumberRange{0, 255});
  if (numbers.count == 0 || numbers.count % size != 0)
    throw_error(
        "the body has {} numbers; an example has {}: send arrays of complete examples, or one PNG or JPEG image",
        numbers.count, size);
  if (numbers.count > size * most)
    return reply.send_error(413, fmt::format("the body has {} examples; at most {} are allowed: send several requests",
                                             numbers.count / size, most));
  submit(std::move(numbers.values), top, std::make_shared<Reply>(std::move(reply)));
}

void PredictService::answer_image(const Request& request, Reply& reply, int64_t top) {
  if (model_.info.kind == ModelInfo::Kind::table)
    throw_error("the body is an image, but the model takes rows of a table; send JSON");
  const detail::ImageHeader header = detail::parse_image_header(bytes_of(request.body), "the body");
  if (header.rows > kMostPixels / header.cols)
    return reply.send_error(413, fmt::format("the image has {} x {} pixels; at most {} are allowed: reduce it",
                                             header.rows, header.cols, kMostPixels));
  if (header.rows * header.cols <= kQuickPixels) {
    std::vector<float> values = pixels_of(request.body);
    return submit(std::move(values), top, std::make_shared<Reply>(std::move(reply)));
  }
  const auto shared = std::make_shared<Reply>(std::move(reply));
  const auto decode = [this, &file = request.body, top, shared] {
    try {
      submit(pixels_of(file), top, shared);
    } catch (const Error& error) {
      shared->fail(400, error.what());
    } catch (const std::exception& error) {
      shared->fail(500, error.what());
    }
  };
  if (!images_.submit(decode)) send_busy(*shared, "too many large images are waiting; try again later");
}

std::vector<float> PredictService::pixels_of(const std::string& file) const {
  std::vector<std::byte> pixels(static_cast<size_t>(form_.bytes()));
  Conversions ignored;
  form_.convert(detail::decode_image(bytes_of(file), "the body"), pixels.data(), ignored);
  std::vector<float> out;
  out.reserve(pixels.size());
  for (const std::byte each : pixels) out.push_back(static_cast<float>(each));
  return out;
}

void PredictService::submit(std::vector<float> values, int64_t top, const SharedReply& reply) {
  Response late;
  late.set_error(504, "the prediction took too long; send fewer examples");
  reply->set_deadline(std::chrono::steady_clock::now() + kDeadline, std::move(late));
  const bool taken = batches_.submit({.values = std::move(values),
                                      .is_wanted = [reply] { return reply->has_client(); },
                                      .done =
                                          [this, top, reply](const PredictionBatches::Result& result) {
                                            try {
                                              respond(result, top, *reply);
                                            } catch (const std::exception& error) {
                                              reply->fail(500, error.what());
                                            }
                                          }});
  if (!taken) send_busy(*reply, "too many examples are waiting; try again later");
}

void PredictService::respond(const PredictionBatches::Result& result, int64_t top, Reply& reply) const {
  if (!result.error.empty()) return reply.fail(500, result.error);
  if (!std::ranges::all_of(result.values, [](float value) { return std::isfinite(value); }))
    return reply.fail(500,
                      "the model computed a value that is not finite; check the range of the numbers, and the run");
  const size_t width = static_cast<size_t>(std::max<int64_t>(model_.info.classes, 1));
  ordered_json all = ordered_json::array();
  for (size_t at = 0; at < result.values.size(); at += width)
    all.push_back(entry(model_.info, {&result.values[at], width}, top));
  const ordered_json body{{"predictions", std::move(all)}};
  Response response;
  response.set_content(body.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n", http::kJson);
  reply.send(std::move(response));
}

}  // namespace lockstep::cli
