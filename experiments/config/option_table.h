#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "experiments/config/config_node.h"

namespace specdec {

/// What a user is told of one option: by `specdec list NAME` and in the docs.
struct OptionHelp {
  std::string name;
  std::string fallback;  ///< the default, as in YAML or in words; "" = the key is required
  std::string values;    ///< "1 to 64", "true or false"; "" = the meaning says it
  std::string meaning;
};

/// How values of T are described and read. T is bool, int64_t, double, std::filesystem::path (a
/// file or folder that exists), or std::optional or std::vector of one of the first three.
template <class T>
struct OptionType {
  using Scalar = T;
};
template <class T>
struct OptionType<std::optional<T>> {
  using Scalar = T;
};
template <class T>
struct OptionType<std::vector<T>> {
  using Scalar = T;
};

/// The options of one component, each declared once: the name that YAML uses, the member of the
/// struct `Options` that holds it and its default, what it may be, and what it means. What is read
/// from YAML and what `specdec list` and the docs say follow from that.
template <class Options>
class OptionTable {
 public:
  template <class T>
  using RangeOf = Range<typename OptionType<T>::Scalar>;

  /// An optional key. `fallback` describes the default of an std::optional in words; without it
  /// that is "none".
  template <class T, class Owner>
  requires std::derived_from<Options, Owner> OptionTable& add(const std::string& name,
                                                              T Owner::*member,
                                                              const std::string& meaning,
                                                              const RangeOf<T>& range = {},
                                                              const std::string& fallback = "");
  /// A key that must be given.
  template <class T, class Owner>
  requires std::derived_from<Options, Owner> OptionTable& require(const std::string& name,
                                                                  T Owner::*member,
                                                                  const std::string& meaning,
                                                                  const Range<T>& range = {});
  /// A share of a whole that is not nothing: above 0, to 1.
  OptionTable& add_share(const std::string& name, double Options::*member,
                         const std::string& meaning);
  /// An optional key whose value is one of those that have names. `values` outlive the table.
  template <class T, class Owner>
  requires std::derived_from<Options, Owner> OptionTable& add_choice(
      const std::string& name, T Owner::*member, const std::string& meaning,
      std::type_identity_t<std::span<const NamedValue<T>>> values);
  /// Some that other code reads (their values are maps, or depend on one another).
  OptionTable& describe(const std::vector<OptionHelp>& others) {
    help_.insert(help_.end(), others.begin(), others.end());
    return *this;
  }
  /// A key that had another name: an error that says the new one.
  OptionTable& renamed(const std::string& old_name, const std::string& name);

  /// Mistakes are noted in the node's ConfigErrors, and the default stays.
  Options read(const ConfigNode& node) const {
    Options options;
    for (const auto& reader : readers_) {
      reader(node, options);
    }
    return options;
  }
  std::vector<OptionHelp> help() const { return help_; }

 private:
  std::vector<std::function<void(const ConfigNode&, Options&)>> readers_;
  std::vector<OptionHelp> help_;
};

// What the table's templates are made of, for each type of value.

/// "0.1", "[0.6, 0.12]", "none" for an empty list.
std::string describe_default(bool value);
std::string describe_default(int64_t value);
std::string describe_default(double value);
std::string describe_default(const std::vector<int64_t>& values);
std::string describe_default(const std::vector<double>& values);

/// "true or false", "1 to 64", "" for any number.
std::string describe_values(const Range<bool>& range);
std::string describe_values(const Range<int64_t>& range);
std::string describe_values(const Range<double>& range);
std::string describe_values(const Range<std::filesystem::path>& range);

template <class T>
void read_option(const ConfigNode& node, const std::string& name, const Range<T>& range, T& value) {
  value = node.get<T>(name, value, range);
}
template <class T>
void read_option(const ConfigNode& node, const std::string& name, const Range<T>& range,
                 std::optional<T>& value) {
  value = node.find<T>(name, range);
}
template <class T>
void read_option(const ConfigNode& node, const std::string& name, const Range<T>& range,
                 std::vector<T>& value) {
  value = node.get_list<T>(name, value, range);
}
/// A number above 0, to 1.
void read_share(const ConfigNode& node, const std::string& name, double& value);

template <class Options>
template <class T, class Owner>
requires std::derived_from<Options, Owner> OptionTable<Options>
&OptionTable<Options>::add(const std::string& name, T Owner::*member, const std::string& meaning,
                           const RangeOf<T>& range, const std::string& fallback) {
  OptionHelp help{name, fallback, describe_values(range), meaning};
  if constexpr (!std::same_as<T, std::optional<typename OptionType<T>::Scalar>>) {
    help.fallback = describe_default(Options{}.*member);
  } else if (fallback.empty()) {
    help.fallback = "none";
  }
  help_.push_back(std::move(help));
  readers_.push_back([=](const ConfigNode& node, Options& options) {
    read_option(node, name, range, options.*member);
  });
  return *this;
}

template <class Options>
template <class T, class Owner>
requires std::derived_from<Options, Owner> OptionTable<Options>
&OptionTable<Options>::require(const std::string& name, T Owner::*member,
                               const std::string& meaning, const Range<T>& range) {
  help_.push_back({name, "", describe_values(range), meaning});
  readers_.push_back([=](const ConfigNode& node, Options& options) {
    if constexpr (std::same_as<T, std::filesystem::path>) {
      options.*member = node.require_model(name);
    } else {
      options.*member = node.require<T>(name, range);
    }
  });
  return *this;
}

template <class Options>
OptionTable<Options>& OptionTable<Options>::add_share(const std::string& name,
                                                      double Options::*member,
                                                      const std::string& meaning) {
  help_.push_back({name, describe_default(Options{}.*member), "above 0, to 1", meaning});
  readers_.push_back(
      [=](const ConfigNode& node, Options& options) { read_share(node, name, options.*member); });
  return *this;
}

template <class Options>
template <class T, class Owner>
requires std::derived_from<Options, Owner> OptionTable<Options>
&OptionTable<Options>::add_choice(const std::string& name, T Owner::*member,
                                  const std::string& meaning,
                                  std::type_identity_t<std::span<const NamedValue<T>>> values) {
  help_.push_back(
      {name, name_of<T>(values, Options{}.*member), join_alternatives(names_of(values)), meaning});
  readers_.push_back([=](const ConfigNode& node, Options& options) {
    options.*member = node.choose(name, values, options.*member);
  });
  return *this;
}

template <class Options>
OptionTable<Options>& OptionTable<Options>::renamed(const std::string& old_name,
                                                    const std::string& name) {
  readers_.push_back(
      [=](const ConfigNode& node, Options&) { node.refuse_old_name(old_name, name); });
  return *this;
}

}  // namespace specdec
