// Any text is either refused with ConfigError, or a tree whose own text is read back as the same;
// reading keys of it by type never fails otherwise.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/error.h"
#include "experiments/config/config_node.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/config/yaml_writer.h"

namespace {

void read_keys(const std::shared_ptr<specdec::YamlTree>& tree) {
  const auto errors = std::make_shared<specdec::ConfigErrors>();
  const specdec::ConfigNode node(tree, errors);
  (void)node.get<int64_t>("seed", 0);
  (void)node.get<double>("temperature", 0.0, {0.0, 10.0});
  (void)node.get<bool>("chat", false);
  (void)node.get<std::string>("name", "");
  (void)node.child("sampling").get_list<std::string>("strings", {});
  node.refuse_unknown_keys();
  try {
    errors->throw_if_any();
  } catch (const specdec::ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::shared_ptr<specdec::YamlTree> tree;
  try {
    tree = specdec::parse_yaml(text, "fuzz", true);
  } catch (const specdec::ConfigError&) {
    return 0;
  }
  read_keys(tree);
  const std::string written = specdec::write_yaml(*tree);
  if (specdec::write_yaml(*specdec::parse_yaml(written, "written", true)) != written) {
    std::abort();
  }
  return 0;
}
