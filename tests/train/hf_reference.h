// GPT-2 and Llama in double precision, written from their definitions with plain loops. They read the tensors of a
// Hugging Face folder by name, and share no code with Lockstep's models.
#pragma once

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/hf_folder.h"

namespace lockstep::hf_reference {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // one row per token

// The values of a tensor.
inline Vector tensor(const HfFolder& folder, const std::string& name) {
  const std::vector<float> values = folder.values(name);
  return {values.begin(), values.end()};
}

// y = x w with w [in, out], as GPT-2's Conv1D.
inline Vector times(const Vector& x, const Vector& w) {
  const size_t out = w.size() / x.size();
  Vector y(out);
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < out; ++j) y[j] += x[i] * w[i * out + j];
  return y;
}
// y = w x with w [out, in], as torch.nn.Linear.
inline Vector linear(const Vector& w, const Vector& x) {
  const size_t out = w.size() / x.size();
  Vector y(out);
  for (size_t j = 0; j < out; ++j)
    for (size_t i = 0; i < x.size(); ++i) y[j] += w[j * x.size() + i] * x[i];
  return y;
}
inline Vector plus(Vector a, const Vector& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b.at(i);
  return a;
}

inline Vector layer_norm(const Vector& x, const Vector& weight, const Vector& bias, double epsilon) {
  double mean = 0, variance = 0;
  for (const double each : x) mean += each / static_cast<double>(x.size());
  for (const double each : x) variance += (each - mean) * (each - mean) / static_cast<double>(x.size());
  Vector out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back((x[i] - mean) / std::sqrt(variance + epsilon) * weight.at(i) + bias.at(i));
  return out;
}
inline Vector rms_norm(const Vector& x, const Vector& weight, double epsilon) {
  double square = 0;
  for (const double each : x) square += each * each / static_cast<double>(x.size());
  Vector out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] / std::sqrt(square + epsilon) * weight.at(i));
  return out;
}

// Head h of a row that has heads of `width` features one after the other.
inline Vector head(const Vector& row, size_t h, size_t width) {
  return {row.begin() + static_cast<int64_t>(h * width), row.begin() + static_cast<int64_t>((h + 1) * width)};
}

// What token t takes from the values of the tokens up to t, by the products of its query with their keys.
inline Vector attend(const Vector& query, const Rows& keys, const Rows& values, size_t t) {
  Vector weight;
  double sum = 0;
  for (size_t s = 0; s <= t; ++s) {
    double score = 0;
    for (size_t i = 0; i < query.size(); ++i) score += query[i] * keys[s][i];
    weight.push_back(std::exp(score / std::sqrt(static_cast<double>(query.size()))));
    sum += weight.back();
  }
  Vector out(query.size());
  for (size_t s = 0; s <= t; ++s)
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight[s] / sum * values[s][i];
  return out;
}

// Attention of all heads. Row t has queries, keys or values of all heads, one after the other.
inline Rows attention(const Rows& q, const Rows& k, const Rows& v, size_t heads, size_t kv_heads) {
  const size_t width = q[0].size() / heads;
  Rows out(q.size());
  for (size_t h = 0; h < heads; ++h) {
    const size_t shared = h / (heads / kv_heads);
    Rows keys, values;
    for (size_t t = 0; t < q.size(); ++t) {
      keys.push_back(head(k[t], shared, width));
      values.push_back(head(v[t], shared, width));
    }
    for (size_t t = 0; t < q.size(); ++t) {
      const Vector taken = attend(head(q[t], h, width), keys, values, t);
      out[t].insert(out[t].end(), taken.begin(), taken.end());
    }
  }
  return out;
}

// x * the normal distribution function: exactly, or by the tanh approximation ("gelu_new").
inline double gelu(double x, bool exact) {
  const double root = std::sqrt(2 / std::acos(-1.0));
  return exact ? x / 2 * (1 + std::erf(x / std::sqrt(2.0)))
               : x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

// The logits of GPT-2, one row per token. Tensors have names with the prefix "transformer.".
inline Rows gpt2_logits(const HfFolder& folder, const std::vector<int>& tokens) {
  const nlohmann::json& config = folder.config;
  const auto heads = config.at("n_head").get<size_t>(), width = config.at("n_embd").get<size_t>();
  const double epsilon = config.at("layer_norm_epsilon");
  const bool exact = config.at("activation_function") == "gelu";
  const auto get = [&](const std::string& name) { return tensor(folder, "transformer." + name); };
  const Vector wte = get("wte.weight"), wpe = get("wpe.weight");
  Rows x;
  for (size_t t = 0; t < tokens.size(); ++t)
    x.push_back(plus(head(wte, static_cast<size_t>(tokens[t]), width), head(wpe, t, width)));
  for (int64_t layer = 0; layer < config.at("n_layer").get<int64_t>(); ++layer) {
    const std::string at = "h." + std::to_string(layer) + ".";
    Rows q, k, v;
    for (const Vector& row : x) {
      const Vector normed = layer_norm(row, get(at + "ln_1.weight"), get(at + "ln_1.bias"), epsilon);
      const Vector all = plus(times(normed, get(at + "attn.c_attn.weight")), get(at + "attn.c_attn.bias"));
      q.push_back(head(all, 0, width));
      k.push_back(head(all, 1, width));
      v.push_back(head(all, 2, width));
    }
    const Rows attended = attention(q, k, v, heads, heads);
    for (size_t t = 0; t < x.size(); ++t) {
      x[t] = plus(x[t], plus(times(attended[t], get(at + "attn.c_proj.weight")), get(at + "attn.c_proj.bias")));
      const Vector normed = layer_norm(x[t], get(at + "ln_2.weight"), get(at + "ln_2.bias"), epsilon);
      Vector inside = plus(times(normed, get(at + "mlp.c_fc.weight")), get(at + "mlp.c_fc.bias"));
      for (double& each : inside) each = gelu(each, exact);
      x[t] = plus(x[t], plus(times(inside, get(at + "mlp.c_proj.weight")), get(at + "mlp.c_proj.bias")));
    }
  }
  Rows logits;
  const Vector output = config.at("tie_word_embeddings") ? wte : tensor(folder, "lm_head.weight");
  for (const Vector& row : x)
    logits.push_back(linear(output, layer_norm(row, get("ln_f.weight"), get("ln_f.bias"), epsilon)));
  return logits;
}

// Rotates the pairs (i, i + width / 2) of each head by position * base^(-2 i / width).
inline Vector rotated(const Vector& row, size_t heads, size_t position, double base) {
  const size_t width = row.size() / heads, half = width / 2;
  Vector out = row;
  for (size_t h = 0; h < heads; ++h)
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      const double a = row[h * width + i], b = row[h * width + i + half];
      out[h * width + i] = a * std::cos(angle) - b * std::sin(angle);
      out[h * width + i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  return out;
}

// The logits of Llama, one row per token. Tensors have names with the prefix "model.".
inline Rows llama_logits(const HfFolder& folder, const std::vector<int>& tokens) {
  const nlohmann::json& config = folder.config;
  const auto heads = config.at("num_attention_heads").get<size_t>();
  const auto kv_heads = config.at("num_key_value_heads").get<size_t>();
  const double epsilon = config.at("rms_norm_eps"), base = config.at("rope_theta");
  const auto get = [&](const std::string& name) { return tensor(folder, "model." + name); };
  const auto apply_linear = [&](const std::string& name, const Vector& row) {
    Vector y = linear(get(name + ".weight"), row);
    return folder.has("model." + name + ".bias") ? plus(std::move(y), get(name + ".bias")) : y;
  };
  const Vector embedding = get("embed_tokens.weight");
  Rows x;
  for (const int token : tokens)
    x.push_back(head(embedding, static_cast<size_t>(token), config.at("hidden_size").get<size_t>()));
  for (int64_t layer = 0; layer < config.at("num_hidden_layers").get<int64_t>(); ++layer) {
    const std::string at = "layers." + std::to_string(layer) + ".";
    Rows q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector normed = rms_norm(x[t], get(at + "input_layernorm.weight"), epsilon);
      q.push_back(rotated(apply_linear(at + "self_attn.q_proj", normed), heads, t, base));
      k.push_back(rotated(apply_linear(at + "self_attn.k_proj", normed), kv_heads, t, base));
      v.push_back(apply_linear(at + "self_attn.v_proj", normed));
    }
    const Rows attended = attention(q, k, v, heads, kv_heads);
    for (size_t t = 0; t < x.size(); ++t) {
      x[t] = plus(x[t], apply_linear(at + "self_attn.o_proj", attended[t]));
      const Vector normed = rms_norm(x[t], get(at + "post_attention_layernorm.weight"), epsilon);
      Vector inside = apply_linear(at + "mlp.gate_proj", normed);
      const Vector up = apply_linear(at + "mlp.up_proj", normed);
      for (size_t i = 0; i < inside.size(); ++i) inside[i] = inside[i] / (1 + std::exp(-inside[i])) * up.at(i);
      x[t] = plus(x[t], apply_linear(at + "mlp.down_proj", inside));
    }
  }
  Rows logits;
  const Vector output = config.at("tie_word_embeddings") ? embedding : tensor(folder, "lm_head.weight");
  for (const Vector& row : x) logits.push_back(linear(output, rms_norm(row, get("norm.weight"), epsilon)));
  return logits;
}

}  // namespace lockstep::hf_reference
