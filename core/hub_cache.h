#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace specdec {

/// A model as the hub names it: "org/name", "org/name@revision", and with the path of a GGUF file
/// of it, "org/name/file.gguf".
struct HubName {
  std::string repository;  ///< "org/name"
  std::string revision;    ///< a branch, tag or commit (its beginning is enough); "" = any
  std::string file;        ///< a file of the repository; "" = all
};

/// Parses such a name; nothing for a text that cannot be one.
std::optional<HubName> parse_hub_name(const std::string& text);

/// Where programs keep files that can be made again: XDG_CACHE_HOME, or ~/.cache.
std::filesystem::path user_cache_folder();

/// Folder in which Hugging Face's tools keep what they download: HF_HUB_CACHE, HF_HOME/hub,
/// XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

/// The snapshot of a model in the cache, or the GGUF file named in it, or its only one: that of the
/// revision, else of `main`, else the newest. Nothing where the cache does not hold the model.
/// Throws WeightsError for a model whose revision or file it does not hold, naming those it does
/// and the command that downloads it.
std::optional<std::filesystem::path> find_in_hub_cache(const HubName& name);

/// The file or folder that a MODEL argument names: a path that exists, else what the cache holds
/// under this name; a text that is no name of the hub as it is. Throws WeightsError, saying what
/// downloads it, where there is neither.
std::filesystem::path find_model(const std::string& text);

}  // namespace specdec
