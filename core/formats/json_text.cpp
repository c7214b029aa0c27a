#include "core/formats/json_text.h"

#include <nlohmann/json.hpp>

namespace specdec {
namespace {

template <class Json>
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string json_text(const nlohmann::json& json, int indent) { return text_of(json, indent); }

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return text_of(json, indent);
}

}  // namespace specdec
