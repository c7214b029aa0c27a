#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// How the place of a value begins that the command line gave: "--set seed=3", "--dtype int8".
inline constexpr std::string_view kOverridePlace = "--";

/// A parsed YAML value that knows where it was written: "configs/a.yaml:7", or "--set seed=3".
struct YamlTree {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry {
    std::string key;
    std::string place;
    std::shared_ptr<YamlTree> value;
  };

  Kind kind = Kind::kNull;
  std::string text;     ///< of a scalar
  bool quoted = false;  ///< a quoted scalar is text, whatever it looks like
  std::string place;
  std::vector<std::shared_ptr<YamlTree>> items;  ///< of a list
  std::vector<Entry> entries;                    ///< of a map, in the order of the file

  static std::shared_ptr<YamlTree> map(std::string place);
  static std::shared_ptr<YamlTree> scalar(std::string text, bool quoted);
  /// nullptr when there is none.
  const Entry* find(std::string_view key) const;
  /// Appends, or replaces the value and place of an entry that is there.
  void set(const std::string& key, const std::string& place, std::shared_ptr<YamlTree> value);
  std::shared_ptr<YamlTree> clone() const;
};

/// Parses one YAML document; an empty one is an empty map. `source` names it in places; with
/// `number_lines` a place is "source:line", else just `source`. Throws ConfigError with the line: a
/// syntax error, a key twice in a map, anchors, aliases and tags (not needed here, and a way to
/// write bombs), nesting deeper than 32, more than 10,000 values, several documents.
std::shared_ptr<YamlTree> parse_yaml(const std::string& text, const std::string& source,
                                     bool number_lines);

/// Sets the value at a dotted path such as "strategies.0.draft_length"; an item of a list is named
/// by its index or by its `name`, or where it has none by its `type`, if no other has that. Maps on
/// the way are made when they are missing. Throws ConfigError beginning with `place` when the path
/// leads nowhere.
void set_at_path(YamlTree& root, const std::string& path, std::shared_ptr<YamlTree> value,
                 const std::string& place);

}  // namespace specdec
