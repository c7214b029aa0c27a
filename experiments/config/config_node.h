#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "experiments/config/named_values.h"
#include "experiments/config/names.h"
#include "experiments/config/yaml_scalar.h"
#include "experiments/config/yaml_tree.h"

namespace specdec {

/// Mistakes found while a config is read; thrown together, so that a user mends them all at once.
class ConfigErrors {
 public:
  /// `place`: "configs/a.yaml:7"; `path`: "strategies[1].drafter", or "" for the whole config.
  void add(const std::string& place, const std::string& path, const std::string& message);
  bool empty() const { return mistakes_.empty(); }
  /// Notes that the key at `path` names a file to be written. The key that named it before; ""
  /// where there is none but `path` itself, which a sweep reads for each of its points.
  std::string name_output(const std::filesystem::path& file, const std::string& path);
  /// Throws ConfigError holding one line a mistake, in the order of the file.
  void throw_if_any() const;

 private:
  std::vector<std::string> mistakes_;
  std::map<std::filesystem::path, std::string> outputs_;  ///< files to be written, with their keys
};

/// The component that a value stands for: NAME is {type: NAME}; anything but a scalar is itself.
std::shared_ptr<YamlTree> component_tree(const std::shared_ptr<YamlTree>& value);

/// A map of a config, read strictly and by type. Every read makes its key known; a mistake
/// (missing, wrong type, out of range) is noted in the shared ConfigErrors and the default
/// returned, so that reading goes on. Copies share what they know.
///
/// T is bool, int64_t, uint64_t, double or std::string (see read_scalar).
class ConfigNode {
 public:
  /// An empty map: every key is missing.
  ConfigNode();
  /// `folder`: where relative paths are looked up after the current directory. A tree that is no
  /// map is a mistake.
  ConfigNode(std::shared_ptr<const YamlTree> tree, std::shared_ptr<ConfigErrors> errors,
             std::filesystem::path folder = {});

  bool has(std::string_view key) const;
  bool is_map(std::string_view key) const;
  bool is_list(std::string_view key) const;
  /// Whether it holds a scalar that is no number, such as the name of a type.
  bool is_name(std::string_view key) const;

  template <class T>
  T get(const std::string& key, const std::type_identity_t<T>& fallback,
        const Range<T>& range = {}) const;
  template <class T>
  T require(const std::string& key, const Range<T>& range = {}) const;
  /// A missing key is nullopt.
  template <class T>
  std::optional<T> find(const std::string& key, const Range<T>& range = {}) const;
  template <class T>
  std::vector<T> get_list(const std::string& key, const std::vector<T>& fallback,
                          const Range<T>& range = {}) const;
  /// The value whose name is given, by default `fallback`, which is one of them.
  template <class T>
  T choose(const std::string& key, std::type_identity_t<std::span<const NamedValue<T>>> values,
           T fallback) const {
    return values[choose_name(key, names_of(values), name_of<T>(values, fallback))].value;
  }

  /// The key `type`, one of `known`. Another one, or none, is a mistake that names them, with
  /// `advice` at its end, or says what `explained` has for it; then "" is returned, and the map's
  /// other keys are no mistakes: which ones it may have depends on its type.
  std::string require_type(const std::vector<std::string>& known, const std::string& advice = "",
                           const std::map<std::string, std::string>& explained = {}) const;

  /// A file or folder that exists: looked up in the current directory, then in the config's folder.
  std::filesystem::path require_path(const std::string& key) const;

  /// Path of a model, which may be a name of the hub that its cache holds; else as require_path.
  std::filesystem::path require_model(const std::string& key) const;

  /// Path of a file that is to be written, in the config's folder, or in the current one where the
  /// command line names it; "" where the key is missing or mistaken. A path that begins with '~'
  /// (no path of a config is expanded), a file that another key names and what refused_output
  /// refuses are mistakes.
  std::filesystem::path output_path(const std::string& key) const;

  /// The map under `key`; a missing one is empty and a mistake if `required`.
  ConfigNode child(const std::string& key, bool required = true) const;
  /// The maps in the list under `key`; a missing list is a mistake.
  std::vector<ConfigNode> children(const std::string& key) const;
  /// The component under `key`: a map with a `type`, or the name of a type alone (component_tree).
  /// A missing one is a mistake.
  ConfigNode component(const std::string& key) const;
  /// The component under `key`, in which a missing `type` is `usual_type`; a missing component is
  /// only that.
  ConfigNode component(const std::string& key, const std::string& usual_type) const;
  /// The components in the list under `key`; a missing list is a mistake.
  std::vector<ConfigNode> components(const std::string& key) const;
  /// The tree under `key` as it is (keys that a user chooses, as in `sweep`); nullptr when missing.
  std::shared_ptr<const YamlTree> raw(const std::string& key) const;

  /// Notes a mistake at this map (an override among its keys is named as its place), or at one of
  /// its keys.
  void fail(const std::string& message) const;
  void fail(const std::string& key, const std::string& message) const;
  /// A mistake of this map whose line is the key's.
  void fail_at(const std::string& key, const std::string& message) const;
  /// Keys that nobody read are mistakes that name the nearest known key; children included.
  void refuse_unknown_keys() const;
  /// Refuses a key's old name; the message says the new one.
  void refuse_old_name(const std::string& old_key, const std::string& key) const;
  /// Makes a key known that is read elsewhere.
  void ignore(const std::string& key) const;

  /// Keys read so far, with defaults filled in, in the order of reading. `folder`: relative paths
  /// (see require_path and output_path) are written as they are seen from there, so that a config
  /// in it finds them.
  std::shared_ptr<YamlTree> resolved(const std::filesystem::path& folder = {}) const;
  /// Where relative paths are looked up after the current directory.
  const std::filesystem::path& folder() const;
  const std::string& path() const;
  const std::string& place() const;
  const std::shared_ptr<ConfigErrors>& errors() const;

 private:
  struct State;
  explicit ConfigNode(std::shared_ptr<State> state) : state_(std::move(state)) {}
  template <class T>
  std::optional<T> read(const std::string& key, const Range<T>& range) const;
  /// The index of the name that is given; another one than these is a mistake that names them.
  size_t choose_name(const std::string& key, const std::vector<std::string>& names,
                     const std::string& fallback) const;
  std::filesystem::path require_file(const std::string& key, bool of_hub) const;

  std::shared_ptr<State> state_;
};

/// Runs `call`; an Error that it throws becomes a mistake of the key.
void note_error(const ConfigNode& node, const std::string& key, const std::function<void()>& call);

}  // namespace specdec
