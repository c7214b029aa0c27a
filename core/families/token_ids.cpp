#include "core/families/token_ids.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/formats/json_keys.h"

namespace specdec {

std::vector<Token> read_end_ids(const JsonKeys& keys, int64_t vocab_size) {
  using nlohmann::json;
  std::vector<Token> ids;
  if (!keys.has("eos_token_id")) {
    return ids;
  }
  const json& value = keys.at("eos_token_id");
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0) {
      keys.fail("eos_token_id", fmt::format("should be a token id or a list of them, but is {}",
                                            describe_json(value)));
    }
    if (id.get<int64_t>() < vocab_size) {
      ids.push_back(static_cast<Token>(id.get<int64_t>()));
    }
  }
  return ids;
}

}  // namespace specdec
