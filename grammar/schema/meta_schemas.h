#pragma once
#include <optional>
#include <string_view>

namespace specdec {

/// The text of one of JSON Schema's meta-schemas or their vocabularies, by its URI without
/// fragment.
std::optional<std::string_view> meta_schema(std::string_view uri);

}  // namespace specdec
