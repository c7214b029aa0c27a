#include "experiments/components/machine_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "core/formats/gguf/gguf.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_writer.h"

namespace specdec {
namespace {

constexpr const char* kFileName = "specdec-profile.yaml";
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostPageSize = int64_t{1} << 20;
constexpr const char* kWeights = "weights";

/// The drafter as the file has it, with its weights relative to `folder`.
std::shared_ptr<YamlTree> drafter_in(const std::filesystem::path& folder, const std::string& text) {
  const auto tree = parse_yaml(text, kFileName, false);
  if (const auto* weights = tree->find(kWeights)) {
    std::error_code code;
    const auto from = std::filesystem::canonical(folder, code);
    const std::filesystem::path path = weights->value->text;
    if (!code && path.is_absolute()) {
      weights->value->text = path.lexically_proximate(from).string();
    }
  }
  return tree;
}

/// Notes a mistake where the key `drafter` is no map, or has a type that there is not.
void check_drafter(const ConfigNode& draft, const YamlTree* drafter, const Components& components) {
  if (drafter == nullptr || drafter->kind != YamlTree::Kind::kMap) {
    draft.fail("drafter", "should be a drafter's config, such as {type: prompt_lookup}");
    return;
  }
  const auto* type = drafter->find("type");
  const std::string name = type == nullptr ? "" : type->value->text;
  if (components.drafters.entries().count(name) == 0) {
    draft.fail("drafter", fmt::format("unknown type '{}'{}", name,
                                      known_names_text(name, components.drafters.names())));
  }
}

/// `from`: where the file is.
std::vector<ProfiledDraft> read_drafts(const ConfigNode& root, const std::filesystem::path& from,
                                       const Components& components) {
  root.ignore("drafts");  // known, also where it is not given
  std::vector<ProfiledDraft> drafts;
  for (const ConfigNode& node :
       root.has("drafts") ? root.children("drafts") : std::vector<ConfigNode>()) {
    ProfiledDraft draft;
    draft.draft_length = node.require<int64_t>("draft_length", {1, kMaxDraftLength});
    const auto drafter = node.raw("drafter");
    check_drafter(node, drafter.get(), components);
    if (drafter != nullptr) {
      draft.drafter = drafter_text(*drafter, from);
    }
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

std::shared_ptr<YamlTree> number_tree(int64_t value) {
  return YamlTree::scalar(std::to_string(value), false);
}

}  // namespace

std::filesystem::path machine_profile_file(const std::filesystem::path& model) {
  std::error_code code;
  return std::filesystem::is_directory(model, code)
             ? model / kFileName
             : std::filesystem::path(fmt::format("{}.{}", model.string(), kFileName));
}

MachineProfile read_machine_profile(const std::filesystem::path& file,
                                    const Components& components) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode root(load_config(file, {}, *errors), errors, file.parent_path());
  MachineProfile profile;
  profile.processor = root.require<std::string>("processor");
  profile.cores = root.require<int64_t>("cores", {1, int64_t{1} << 20});
  if (root.has("threads")) {
    const ConfigNode threads = root.child("threads");
    profile.prefill_threads = threads.require<int64_t>("prefill", {1, kMostThreads});
    profile.decode_threads = threads.require<int64_t>("decode", {1, kMostThreads});
  } else {
    root.ignore("threads");
  }
  profile.page_size = root.find<int64_t>("page_size", {1, kMostPageSize}).value_or(0);
  profile.dtype = root.get<std::string>("dtype", "");
  profile.kv_dtype = root.get<std::string>("kv_dtype", "");
  note_error(root, "dtype", [&] { (void)parse_dtype(profile.dtype); });
  note_error(root, "kv_dtype", [&] { (void)parse_kv_dtype(profile.kv_dtype); });
  profile.drafts = read_drafts(root, file.parent_path(), components);
  root.refuse_unknown_keys();
  errors->throw_if_any();
  return profile;
}

void write_machine_profile(const std::filesystem::path& file, const MachineProfile& profile) {
  const auto tree = YamlTree::map("");
  tree->set("processor", "", YamlTree::scalar(profile.processor, true));
  tree->set("cores", "", number_tree(profile.cores));
  if (profile.decode_threads > 0) {
    const auto threads = YamlTree::map("");
    threads->set("prefill", "", number_tree(profile.prefill_threads));
    threads->set("decode", "", number_tree(profile.decode_threads));
    tree->set("threads", "", threads);
  }
  if (profile.page_size > 0) {
    tree->set("page_size", "", number_tree(profile.page_size));
  }
  for (const auto& [key, value] :
       {std::pair{"dtype", profile.dtype}, std::pair{"kv_dtype", profile.kv_dtype}}) {
    if (!value.empty()) {
      tree->set(key, "", YamlTree::scalar(value, false));
    }
  }
  if (!profile.drafts.empty()) {
    const auto drafts = std::make_shared<YamlTree>();
    drafts->kind = YamlTree::Kind::kList;
    for (const ProfiledDraft& draft : profile.drafts) {
      const auto item = YamlTree::map("");
      item->set("drafter", "", drafter_in(file.parent_path(), draft.drafter));
      item->set("draft_length", "", number_tree(draft.draft_length));
      drafts->items.push_back(item);
    }
    tree->set("drafts", "", drafts);
  }
  write_text_file(
      file, "# Measured by 'specdec profile MODEL --save'; generate, chat and run read it.\n" +
                write_yaml(*tree));
}

std::string drafter_text(const YamlTree& drafter, const std::filesystem::path& folder) {
  std::map<std::string, std::shared_ptr<YamlTree>> sorted;
  for (const YamlTree::Entry& entry : drafter.entries) {
    auto value = entry.value->clone();
    if (entry.key == kWeights && value->kind == YamlTree::Kind::kScalar) {
      std::error_code code;
      for (const std::filesystem::path& path :
           {std::filesystem::path(value->text), folder / value->text}) {
        if (const auto found = std::filesystem::canonical(path, code); !code) {
          value->text = found.string();
          break;
        }
      }
      value->quoted = true;
    }
    sorted[entry.key] = std::move(value);
  }
  const auto tree = YamlTree::map("");
  for (auto& [key, value] : sorted) {
    tree->set(key, "", std::move(value));
  }
  return write_yaml_flow(*tree);
}

ProfileDefaults::ProfileDefaults(const std::filesystem::path& model, const MachineKind& machine,
                                 const Components& components) {
  const auto file = machine_profile_file(model);
  std::error_code code;
  if (!std::filesystem::exists(file, code)) {
    return;
  }
  file_ = file;
  MachineProfile profile = read_machine_profile(file, components);
  if (machine.device != "cpu") {
    unused_ = fmt::format("it is of the CPU, and this runs on '{}'", machine.device);
  } else if (profile.processor != machine.processor || profile.cores != machine.cores) {
    unused_ = fmt::format(
        "it was measured on {} with {} cores, and this is {} with {}; measure anew with 'specdec "
        "profile {} --save'",
        profile.processor, profile.cores, machine.processor, machine.cores, model.string());
  } else {
    values_ = std::move(profile);
  }
}

void ProfileDefaults::note(const std::string& taken) {
  if (std::find(taken_.begin(), taken_.end(), taken) == taken_.end()) {
    taken_.push_back(taken);
  }
}

std::string ProfileDefaults::take_dtype() {
  if (!values_.dtype.empty()) {
    note("dtype " + values_.dtype);
  }
  return values_.dtype;
}

std::string ProfileDefaults::take_kv_dtype() {
  if (!values_.kv_dtype.empty()) {
    note("kv_dtype " + values_.kv_dtype);
  }
  return values_.kv_dtype;
}

void ProfileDefaults::take_threads(ModelOptions& options) {
  if (options.threads > 0 || values_.decode_threads == 0 ||
      std::getenv("OMP_NUM_THREADS") != nullptr) {
    return;
  }
  options.threads = values_.decode_threads;
  options.prefill_threads = values_.prefill_threads;
  options.thread_reason = file_.string();
  note(fmt::format("threads {} for decoding, {} for prefills", values_.decode_threads,
                   values_.prefill_threads));
}

void ProfileDefaults::take_cache(ModelOptions& options, const Components& components) {
  if (values_.page_size > 0 && options.cache.yaml.empty()) {
    options.cache = parse_cache(fmt::format("{{type: paged, page_size: {}}}", values_.page_size),
                                components, "the machine profile's cache");
    note(fmt::format("page_size {}", values_.page_size));
  }
}

void ProfileDefaults::take_all(ModelOptions& options, const Components& components) {
  take_threads(options);
  take_cache(options, components);
  if (options.dtype.empty()) {
    options.dtype = take_dtype();
  }
  if (options.kv_dtype.empty() && !options.cache.format) {
    options.kv_dtype = take_kv_dtype();
  }
}

std::optional<int64_t> ProfileDefaults::take_draft_length(const YamlTree& drafter,
                                                          const std::filesystem::path& folder) {
  if (values_.drafts.empty() || drafter.kind != YamlTree::Kind::kMap) {
    return std::nullopt;
  }
  const std::string wanted = drafter_text(drafter, folder);
  for (const ProfiledDraft& draft : values_.drafts) {
    if (draft.drafter == wanted) {
      note(fmt::format("draft_length {} with {}", draft.draft_length, wanted));
      return draft.draft_length;
    }
  }
  return std::nullopt;
}

std::string ProfileDefaults::text() const {
  if (!unused_.empty()) {
    return fmt::format("{}: not used: {}.", file_.string(), unused_);
  }
  return taken_.empty() ? ""
                        : fmt::format("{}: gives {} (--no-machine-profile leaves it out).",
                                      file_.string(), fmt::join(taken_, ", "));
}

}  // namespace specdec
