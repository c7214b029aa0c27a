#include "experiments/components/adapter_choice.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "experiments/components/model_loading.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kBase = test_data("gemma3-a").string();
const std::string kAdapter = test_data("gemma3-lora-a").string();

TEST(AdapterChoiceTest, AScaleMayFollowTheFolder) {
  EXPECT_EQ(parse_adapter(kAdapter).path, kAdapter);
  EXPECT_EQ(parse_adapter(kAdapter).scale, 1.0);
  for (const double scale : {0.5, -2.0, 0.0, 1e-3}) {
    const AdapterChoice parsed = parse_adapter(adapter_text({kAdapter, scale}));
    EXPECT_EQ(parsed.path, kAdapter);
    EXPECT_EQ(parsed.scale, scale);
  }
}

TEST(AdapterChoiceTest, AFolderWithAColonNeedsNoScale) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "v:2";
  std::filesystem::create_directory(path);
  EXPECT_EQ(parse_adapter(path.string()).path, path);
  EXPECT_EQ(parse_adapter(path.string() + ":0.5").scale, 0.5);
}

TEST(AdapterChoiceTest, MistakesSayWhatIsTaken) {
  const auto refused = [](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_adapter(text); });
  };
  EXPECT_THAT(refused("/no/such/lora"), HasSubstr("'/no/such/lora': no such folder"));
  EXPECT_THAT(refused("/no/such/lora:0.5"), HasSubstr("'/no/such/lora': no such folder"));
  for (const char* scale : {":", ":strong", ":0.5x", ":nan", ":inf"}) {
    EXPECT_THAT(refused(kAdapter + scale), HasSubstr("a scale, a number such as 0.5")) << scale;
  }
}

/// The first logits of a model with these adapters.
Tensor logits_with(ModelLoader& loader, const std::vector<AdapterChoice>& adapters) {
  const std::vector<Token> prompt{2, 5, 7};
  return loader.load(kBase, adapters)->prefill_get_last_logits(prompt).clone();
}

TEST(ModelLoaderTest, AdaptersAreSwitchedWithoutLoadingAgain) {
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const std::vector<Token> prompt{2, 5, 7};
  const auto model = loader.load(kBase);
  const auto* const weights = &model->weights();
  const auto logits = [&](const std::vector<AdapterChoice>& adapters) {
    loader.set_adapters(*model, kBase, adapters);
    return model->prefill_get_last_logits(prompt).clone();
  };
  const Tensor plain = logits({});
  EXPECT_TRUE(at::equal(logits({{kAdapter, 0.5}}), logits_with(loader, {{kAdapter, 0.5}})));
  EXPECT_EQ(model->length(), 3);
  const auto adapter = model->adapters().adapters().front().adapter;
  loader.set_adapters(*model, kBase, {{kAdapter, 0.5}});
  EXPECT_EQ(model->length(), 3) << "the same ones: the cache is theirs";
  loader.set_adapters(*model, kBase, {{kAdapter, 1.0}});
  EXPECT_EQ(model->length(), 0) << "keys and values of other adapters";
  EXPECT_EQ(model->adapters().adapters().front().adapter, adapter) << "read once";
  EXPECT_TRUE(at::equal(logits({}), plain));
  EXPECT_EQ(&model->weights(), weights);
}

TEST(AdapterChoiceTest, NamedOnesAreOfThosePromptsThatAskForThem) {
  const std::vector<AdapterChoice> all = {{"a", 1.0, "x"}, {"b", 1.0, ""}, {"c", 1.0, "z"}};
  const auto paths = [&](const std::vector<std::string>& names) {
    std::vector<std::string> chosen;
    for (const AdapterChoice& adapter : adapters_for(all, names)) {
      chosen.push_back(adapter.path.string());
    }
    return chosen;
  };
  EXPECT_THAT(paths({}), ElementsAre("b"));
  EXPECT_THAT(paths({"z", "x"}), ElementsAre("a", "b", "c"));
  EXPECT_EQ(unknown_adapter(all, {"x", "z"}), "");
  EXPECT_THAT(unknown_adapter(all, {"x", "y"}), HasSubstr("no adapter 'y'"));
  EXPECT_THAT(unknown_adapter({}, {"y"}), HasSubstr("names none"));
}

TEST(ModelLoaderTest, AdaptersBelongToTheLoadedInstance) {
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const Tensor plain = logits_with(loader, {});
  const Tensor adapted = logits_with(loader, {{kAdapter, 1.0}});
  EXPECT_FALSE(at::equal(adapted, plain));
  EXPECT_TRUE(at::equal(logits_with(loader, {}), plain));
  EXPECT_TRUE(at::equal(logits_with(loader, {{kAdapter, 0.0}}), plain));
  EXPECT_FALSE(at::equal(logits_with(loader, {{kAdapter, 0.5}}), adapted));
}

TEST(ModelLoaderTest, FingerprintsHoldTheAdapters) {
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const auto base = loader.load(kBase);
  EXPECT_EQ(loader.fingerprints().size(), 1);
  const auto adapted = loader.load(kBase, {{kAdapter, 1.0}});
  EXPECT_EQ(loader.fingerprints().at(kBase), base->adapters().fingerprint());
  EXPECT_EQ(loader.fingerprints().at(kAdapter),
            adapted->adapters().adapters().front().adapter->fingerprint);
}

TEST(ModelLoaderTest, HeadsOfTheBaseUnderAnAdaptedTargetAreWarnedOf) {
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const auto base = loader.load(kBase);
  loader.note_fingerprint("models/head", "0");
  EXPECT_THAT(loader.warnings(), ElementsAre());
  const auto adapted = loader.load(kBase, {{kAdapter, 1.0}});
  loader.note_fingerprint("models/head", "0");
  EXPECT_THAT(loader.warnings(),
              ElementsAre(testing::AllOf(HasSubstr("models/head"), HasSubstr("with adapters"))));
}

TEST(ModelLoaderTest, AnAdapterOfAnotherBaseIsRefused) {
  ModelLoader loader({.dtype = "float32", .threads = 1});
  EXPECT_THAT(error_message<Error>([&] {
                (void)loader.load(test_data("qwen3-a"), {{kAdapter, 1.0}});
              }),
              HasSubstr(kAdapter));
}

}  // namespace
}  // namespace specdec
