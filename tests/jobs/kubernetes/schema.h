// Validates manifests against the published schemas, as extracted by tools/distil_schemas.py. Safe from any thread.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace lockstep {

class Schemas {
 public:
  explicit Schemas(const std::string& path) {
    std::ifstream file(path);
    all_ = nlohmann::json::parse(file);
  }

  // The errors of an object, each with its path: unknown and missing fields, wrong types, enums and limits.
  std::vector<std::string> faults(const nlohmann::ordered_json& object) const {
    std::vector<std::string> out;
    const std::string kind = object.value("apiVersion", "") + " " + object.value("kind", "");
    if (!all_["kinds"].contains(kind)) return {"no schema for " + kind};
    check(all_["kinds"][kind], object, kind, out);
    return out;
  }

 private:
  using Json = nlohmann::ordered_json;

  void check(const nlohmann::json& given, const Json& value, const std::string& path,
             std::vector<std::string>& out) const {
    const nlohmann::json& schema =
        given.contains("is") ? all_["definitions"].at(given["is"].get<std::string>()) : given;
    const std::string type = schema.value("type", schema.contains("properties") ? "object" : "");
    if (!has_type(type, value)) {
      out.push_back(path + ": " + value.dump() + " is not of type " + type);
      return;
    }
    if (schema.contains("enum") && std::ranges::find(schema["enum"], nlohmann::json(value)) == schema["enum"].end())
      out.push_back(path + ": " + value.dump() + " is not one of " + schema["enum"].dump());
    check_limits(schema, value, path, out);
    if (value.is_object()) check_fields(schema, value, path, out);
    if (value.is_array() && schema.contains("items"))
      for (size_t i = 0; i < value.size(); ++i)
        check(schema["items"], value[i], path + "[" + std::to_string(i) + "]", out);
  }

  void check_fields(const nlohmann::json& schema, const Json& value, const std::string& path,
                    std::vector<std::string>& out) const {
    for (const auto& [key, each] : value.items()) {
      const std::string place = path + "." + key;
      if (schema.contains("properties") && schema["properties"].contains(key))
        check(schema["properties"][key], each, place, out);
      else if (schema.contains("values"))
        check(schema["values"], each, place, out);
      else if (!schema.value("open", false))
        out.push_back(place + ": unknown field");
    }
    if (!schema.contains("required")) return;
    for (const auto& name : schema["required"])
      if (!value.contains(name.get<std::string>()))
        out.push_back(path + ": " + name.get<std::string>() + " is missing");
  }

  static void check_limits(const nlohmann::json& schema, const Json& value, const std::string& path,
                           std::vector<std::string>& out) {
    const auto fault = [&](const char* what) { out.push_back(path + ": " + value.dump() + " violates " + what); };
    if (value.is_number()) {
      if (schema.contains("minimum") && value.get<double>() < schema["minimum"].get<double>()) fault("minimum");
      if (schema.contains("maximum") && value.get<double>() > schema["maximum"].get<double>()) fault("maximum");
    }
    if (value.is_string()) {
      const std::string text = value;
      if (text.size() < schema.value("minLength", size_t{0})) fault("minLength");
      if (text.size() > schema.value("maxLength", std::string::npos)) fault("maxLength");
      if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
        fault("pattern");
    }
    if (value.is_array()) {
      if (value.size() < schema.value("minItems", size_t{0})) fault("minItems");
      if (value.size() > schema.value("maxItems", std::string::npos)) fault("maxItems");
    }
  }

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "scalar") return value.is_number() || value.is_string();
    return true;
  }

  nlohmann::json all_;
};

}  // namespace lockstep
