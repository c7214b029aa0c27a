#include "tests/support/hub_cache_folder.h"

#include <cstdlib>
#include <fstream>

namespace specdec {

namespace fs = std::filesystem;

HubCacheFolder::HubCacheFolder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
    const char* value = std::getenv(name);
    before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  ::setenv("HF_HUB_CACHE", hub().c_str(), 1);
}

HubCacheFolder::~HubCacheFolder() {
  for (const auto& [name, value] : before_) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
}

fs::path HubCacheFolder::repository_folder(const std::string& repository) const {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  return hub() / name;
}

fs::path HubCacheFolder::snapshot(const std::string& repository, const std::string& commit) const {
  return repository_folder(repository) / "snapshots" / commit;
}

void HubCacheFolder::add(const std::string& repository, const std::string& commit,
                         const std::vector<std::string>& files) const {
  const fs::path folder = snapshot(repository, commit);
  const fs::path blobs = repository_folder(repository) / "blobs";
  fs::create_directories(folder);
  fs::create_directories(blobs);
  for (const std::string& file : files) {
    const std::string blob = std::to_string(std::hash<std::string>()(file));
    std::ofstream(blobs / blob) << file;
    fs::create_directories((folder / file).parent_path());
    fs::create_symlink(fs::relative(blobs / blob, (folder / file).parent_path()), folder / file);
  }
}

void HubCacheFolder::add_copy(const std::string& repository, const std::string& commit,
                              const fs::path& from) const {
  const fs::path folder = snapshot(repository, commit);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(from)) {
    fs::create_symlink(fs::absolute(entry.path()), folder / entry.path().filename());
  }
}

void HubCacheFolder::ref(const std::string& repository, const std::string& name,
                         const std::string& commit) const {
  const fs::path file = repository_folder(repository) / "refs" / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file) << commit;
}

}  // namespace specdec
