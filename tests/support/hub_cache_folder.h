#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace specdec {

/// A Hugging Face cache in a temporary folder, which HF_HUB_CACHE names as long as it lives.
class HubCacheFolder {
 public:
  HubCacheFolder();
  ~HubCacheFolder();
  HubCacheFolder(const HubCacheFolder&) = delete;
  HubCacheFolder& operator=(const HubCacheFolder&) = delete;

  const std::filesystem::path& hub() const { return folder_.path(); }
  std::filesystem::path snapshot(const std::string& repository, const std::string& commit) const;
  /// Adds a snapshot whose files, each holding its name, are links into blobs/.
  void add(const std::string& repository, const std::string& commit,
           const std::vector<std::string>& files) const;
  /// Adds one with links to the files of a folder.
  void add_copy(const std::string& repository, const std::string& commit,
                const std::filesystem::path& from) const;
  void ref(const std::string& repository, const std::string& name, const std::string& commit) const;

 private:
  std::filesystem::path repository_folder(const std::string& repository) const;

  TemporaryFolder folder_;
  std::map<std::string, std::optional<std::string>> before_;  ///< of the environment
};

}  // namespace specdec
