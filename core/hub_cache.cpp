#include "core/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/gguf/gguf.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

/// The variable that a text begins with.
struct Variable {
  size_t size = 0;  ///< of "$NAME" or "${NAME}"; 0: none
  std::string name;
};

Variable leading_variable(std::string_view text) {
  const bool braces = text.substr(0, 2) == "${";
  const size_t begin = braces ? 2 : 1;
  if (text.substr(0, 1) != "$") {
    return {};
  }
  size_t end = begin;
  while (end < text.size() && (is_letter_or_digit(text[end]) || text[end] == '_')) {
    ++end;
  }
  if (end == begin || (braces && text.substr(end, 1) != "}")) {
    return {};
  }
  return {end + (braces ? 1 : 0), std::string(text.substr(begin, end - begin))};
}

/// "~/x", "$NAME/x" and "${NAME}/x" as the shell reads them; variables that are not set remain.
fs::path expanded(std::string path) {
  if (path.rfind("~/", 0) == 0) {
    path = environment("HOME") + path.substr(1);
  }
  std::string out;
  for (std::string_view rest = path; !rest.empty();) {
    const Variable variable = leading_variable(rest);
    const char* value = variable.size == 0 ? nullptr : std::getenv(variable.name.c_str());
    const size_t size = std::max<size_t>(variable.size, 1);
    out.append(value == nullptr ? rest.substr(0, size) : value);
    rest.remove_prefix(size);
  }
  return out;
}

bool is_of_name(char c) { return is_letter_or_digit(c) || c == '_' || c == '.' || c == '-'; }

/// Whether a text can name an organisation or a model of the hub.
bool is_hub_name(std::string_view text) {
  return !text.empty() && is_letter_or_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), is_of_name);
}

/// A branch, a tag or a commit; "refs/pr/1" too.
bool is_revision(std::string_view text) {
  return !text.empty() && text.front() != '/' && text.back() != '/' &&
         text.find("//") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_of_name(c) || c == '/'; });
}

bool ends_with_gguf(std::string_view text) {
  constexpr std::string_view kEnd = ".gguf";
  return text.size() > kEnd.size() && text.ends_with(kEnd);
}

std::string download_command(const HubName& name) {
  return fmt::format("hf download {}{}{}", name.repository,
                     name.file.empty() ? "" : " " + name.file,
                     name.revision.empty() ? "" : " --revision " + name.revision);
}

/// Names of what is in a folder, and in those below it, in order.
std::vector<std::string> names_below(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::recursive_directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    if (folders == entry->is_directory(code)) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
    if (folders) {
      entry.disable_recursion_pending();
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A model's folder in the cache: refs/NAME holds a commit, snapshots/COMMIT its files.
class CachedModel {
 public:
  CachedModel(HubName name, fs::path folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  fs::path find() const {
    const fs::path snapshot = find_snapshot();
    return name_.file.empty() ? model_of(snapshot) : file_of(snapshot);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(
        fmt::format("{}: {}. Download it: {}", name_.repository, what, download_command(name_)));
  }

  fs::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

  /// The snapshot that a ref names; empty where there is none.
  fs::path of_ref(const std::string& ref) const {
    std::error_code code;
    if (!fs::is_regular_file(folder_ / "refs" / ref, code)) {
      return {};
    }
    std::ifstream file(folder_ / "refs" / ref);
    std::string commit;
    const bool there = file >> commit && commit.find('/') == std::string::npos &&
                       fs::is_directory(snapshot(commit), code);
    return there ? snapshot(commit) : fs::path();
  }

  fs::path find_snapshot() const {
    const fs::path named = of_ref(name_.revision.empty() ? "main" : name_.revision);
    if (!named.empty()) {
      return named;
    }
    return name_.revision.empty() ? newest() : of_commit();
  }

  fs::path newest() const {
    fs::path found;
    fs::file_time_type when;
    std::error_code code;
    for (const std::string& commit : names_below(folder_ / "snapshots", /*folders=*/true)) {
      const auto written = fs::last_write_time(snapshot(commit), code);
      if (!code && (found.empty() || written > when)) {
        found = snapshot(commit);
        when = written;
      }
    }
    if (found.empty()) {
      fail(fmt::format("the Hugging Face cache has a folder of it ({}), but no snapshot",
                       folder_.string()));
    }
    return found;
  }

  fs::path of_commit() const {
    std::vector<std::string> fitting;
    const auto commits = names_below(folder_ / "snapshots", /*folders=*/true);
    std::copy_if(
        commits.begin(), commits.end(), std::back_inserter(fitting),
        [this](const std::string& commit) { return commit.rfind(name_.revision, 0) == 0; });
    if (fitting.size() == 1) {
      return snapshot(fitting[0]);
    }
    if (!fitting.empty()) {
      throw WeightsError(fmt::format("{}: several commits in the cache begin with '{}': {}",
                                     name_.repository, name_.revision, fmt::join(fitting, ", ")));
    }
    fail(fmt::format(
        "the Hugging Face cache has no revision '{}' of it; it has the refs {} and the "
        "commits {}",
        name_.revision, fmt::join(names_below(folder_ / "refs", /*folders=*/false), ", "),
        fmt::join(commits, ", ")));
  }

  static std::vector<std::string> gguf_files(const fs::path& snapshot) {
    std::vector<std::string> files = names_below(snapshot, /*folders=*/false);
    std::erase_if(files, [](const std::string& file) { return !ends_with_gguf(file); });
    return files;
  }

  /// A split model is its first file, if that is there.
  static std::vector<std::string> without_later_splits(const std::vector<std::string>& files) {
    std::vector<std::string> models;
    std::copy_if(files.begin(), files.end(), std::back_inserter(models),
                 [&files](const std::string& file) {
                   const std::string first = first_of_split(file);
                   return file == first || !std::binary_search(files.begin(), files.end(), first);
                 });
    return models;
  }

  fs::path model_of(const fs::path& snapshot) const {
    std::error_code code;
    if (fs::exists(snapshot / "config.json", code)) {
      return snapshot;
    }
    const auto files = without_later_splits(gguf_files(snapshot));
    if (files.empty()) {
      fail(fmt::format("its snapshot {} holds neither config.json nor a GGUF file",
                       snapshot.string()));
    }
    if (files.size() > 1) {
      throw WeightsError(fmt::format("{0}: it holds several GGUF files: {1}. Name one: {0}{2}/{3}",
                                     name_.repository, fmt::join(files, ", "),
                                     name_.revision.empty() ? "" : "@" + name_.revision, files[0]));
    }
    return snapshot / files[0];
  }

  fs::path file_of(const fs::path& snapshot) const {
    std::error_code code;
    if (fs::exists(snapshot / name_.file, code)) {
      return snapshot / name_.file;
    }
    const auto files = gguf_files(snapshot);
    fail(fmt::format("the cached snapshot has no {}; its GGUF files: {}", name_.file,
                     files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", "))));
  }

  HubName name_;
  fs::path folder_;
};

}  // namespace

std::optional<HubName> parse_hub_name(const std::string& text) {
  constexpr size_t kNone = std::string_view::npos;
  const std::string_view whole = text;
  const size_t slash = whole.find('/');
  if (slash == kNone || whole.find("..") != kNone) {
    return std::nullopt;
  }
  const size_t end = std::min(whole.find_first_of("@/", slash + 1), whole.size());
  if (!is_hub_name(whole.substr(0, slash)) ||
      !is_hub_name(whole.substr(slash + 1, end - slash - 1))) {
    return std::nullopt;
  }
  HubName name;
  name.repository = text.substr(0, end);
  std::string_view rest = whole.substr(end);  // "@revision", "/file", both or none
  if (rest.substr(0, 1) == "@") {
    size_t file = rest.find('/');
    if (file == kNone || !ends_with_gguf(rest.substr(file + 1))) {
      file = rest.size();
    }
    name.revision = rest.substr(1, file - 1);
    rest.remove_prefix(file);
    if (!is_revision(name.revision)) {
      return std::nullopt;
    }
  }
  if (!rest.empty()) {
    name.file = rest.substr(1);
    if (!ends_with_gguf(name.file) || name.file.find_first_of("\r\n") != kNone) {
      return std::nullopt;
    }
  }
  return name;
}

fs::path user_cache_folder() {
  const std::string cache = environment("XDG_CACHE_HOME");
  return expanded(cache.empty() ? "~/.cache" : cache);
}

fs::path hub_cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = environment(name); !folder.empty()) {
      return expanded(folder);
    }
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) {
    return expanded(home) / "hub";
  }
  return user_cache_folder() / "huggingface" / "hub";
}

std::optional<fs::path> find_in_hub_cache(const HubName& name) {
  std::string folder = "models--" + name.repository;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path path = hub_cache_folder() / folder;
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    return std::nullopt;
  }
  return CachedModel(name, path).find();
}

namespace {

/// Throws WeightsError for the address of a web page, saying the model's name if it is one of the
/// hub's.
void refuse_address(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos) {
    return;
  }
  std::string name = text.substr(scheme + 3);
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    name.erase(0, name.starts_with(host) ? host.size() : 0);
  }
  const size_t slash = name.find('/');
  name = name.substr(0, slash == std::string::npos ? slash : name.find('/', slash + 1));
  throw WeightsError(fmt::format(
      "{}: is an address. Name a folder, a GGUF file, or a model of the hub that was downloaded{}.",
      text, parse_hub_name(name) ? ": " + name : ", as OWNER/NAME"));
}

}  // namespace

fs::path find_model(const std::string& text) {
  std::error_code code;
  const auto name = parse_hub_name(text);
  if (!fs::exists(text, code)) {
    refuse_address(text);
  }
  if (fs::exists(text, code) || !name) {
    return text;
  }
  const auto found = find_in_hub_cache(*name);
  if (!found) {
    throw WeightsError(
        fmt::format("{}: no such file or folder here, and no such model in the Hugging Face cache "
                    "({}). If it is "
                    "one of the hub, download it: {}",
                    text, hub_cache_folder().string(), download_command(*name)));
  }
  return *found;
}

}  // namespace specdec
