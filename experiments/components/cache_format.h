#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/kv_format.h"

namespace specdec {

struct OptionHelp;
class ConfigNode;

/// The keys of a cache that say how keys and values are rounded, which all types have. Mistakes are
/// noted in the node's ConfigErrors.
/// `format`; nullopt where it is not given, or not a format.
std::optional<KvFormat> read_cache_format(const ConfigNode& cache);
/// `rotation` beside this format.
KvRotation read_rotation(const ConfigNode& cache, const std::optional<KvFormat>& format);
/// `exact_recent` beside this format, by default what the format needs. No known key, unless it is
/// given, of a cache that has tiers.
int64_t read_exact_recent(const ConfigNode& cache, const std::optional<KvFormat>& format,
                          bool has_tiers);

/// What to say of names that users take for types of caches: formats, and others that are written
/// elsewhere.
std::map<std::string, std::string> names_beside_types();

/// What a type of cache takes of these keys.
struct FormatSupport {
  bool key_groups = true;    ///< formats that round the keys of several tokens together
  bool exact_recent = true;  ///< the key
};
/// Options of a type, and those that all types have, as `specdec list` says them.
std::vector<OptionHelp> with_format(std::vector<OptionHelp> options,
                                    const FormatSupport& support = {});

}  // namespace specdec
